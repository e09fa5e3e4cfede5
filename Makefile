# Everything sets up what it needs and does nothing twice. `make run` is all it takes to see an agent learn.
#
#   make run                                    train on MiniWoB's click-button, about two minutes
#   make run ARGS="--set task.name=miniwob.click-link --set seed=3"
#   make test ARGS="tests/unit -k process"
#   make PYTHON=/opt/python3.12/bin/python3 ... choose the interpreter of the virtual environment
#   make PIP_ARGS="--extra-index-url URL" ...   more options for pip, such as an index of CPU builds of PyTorch

SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2
EXAMPLE := examples/miniwob-click-button.yaml
ARGS :=
PIP_ARGS :=
# What builds an image: `$(IMAGE_BUILD) -f FILE -t TAG .`
IMAGE_BUILD := docker build
IMAGE_TAG := 0.1.0
# The first Python that is new enough; asked for only when the environment has to be made.
PYTHON = $(shell for p in python3 python3.13 python3.12 python3.11 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

PROTO := core/webgym/protocol/webgym.proto
# protoc's Python modules need a protobuf runtime at least as new as protoc itself. This release fixes that at 6.31,
# the oldest that pyproject.toml allows, and so lives in an environment of its own.
PROTO_TOOLS := grpcio-tools==1.73.1

.DEFAULT_GOAL := help
.PHONY: help setup run test test-long test-cluster lint format proto crds images bench clean

help: ## show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup: $(VENV)/.packages $(VENV)/.system ## install what the other targets need, without running anything

run: setup ## train the example; ARGS are options of `webgym run`
	@$(BIN)/webgym run $(EXAMPLE) $(ARGS)

test: setup ## run the tests; ARGS are options of pytest, JOBS the processes that run them
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m "not long" $(ARGS)

test-long: setup ## run the tests that take half a minute each and more: whole runs under kills, several learners, soaks
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile -m long $(ARGS)

test-cluster: $(VENV)/.packages ## test against the cluster that KUBECONFIG names; skips without one
	@$(BIN)/python -m pytest tests/cluster $(ARGS)

lint: $(VENV)/.packages ## check style, types, layers and generated files
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python tools/check_proto.py
	@$(BIN)/webgym crds --check
	@$(BIN)/python tools/chart_readme.py --check
	@$(BIN)/python tools/constraints.py --check

format: $(VENV)/.packages ## mend what can be mended by itself
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

proto: $(VENV)/.proto-tools ## generate the protobuf module anew
	@$(VENV)/proto-tools/bin/python -m grpc_tools.protoc -I$(dir $(PROTO)) \
		--python_out=$(dir $(PROTO)) --pyi_out=$(dir $(PROTO)) $(PROTO)

crds: $(VENV)/.packages ## generate the CustomResourceDefinition and the spec's reference anew
	@$(BIN)/webgym crds

images: ## build the container images; IMAGE_BUILD, IMAGE_TAG and ARGS (such as --build-arg CUDA=1) say how
	@for name in operator worker learner; do \
		$(IMAGE_BUILD) -f images/$$name.Dockerfile -t webgym-$$name:$(IMAGE_TAG) $(ARGS) . || exit 1; done

bench: setup ## measure: a table of tasks, resumable; ARGS are options of the script
	@$(BIN)/python bench/tasks.py $(ARGS)

clean: ## remove environments, caches and build results; runs/ stays
	@rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.python:
	@test -n "$(PYTHON)" || { echo "webgym: no Python 3.11 or newer found: install one, or name it: make PYTHON=..." >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "webgym: $(PYTHON) cannot make a virtual environment: on Debian and Ubuntu, apt-get install python3-venv" >&2; exit 2; }
	@touch $@

$(VENV)/.packages: pyproject.toml $(VENV)/.python
	@echo "installing packages into $(VENV) (PyTorch takes a while the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) -e '.[worker,learner,operator,dev]'
	@touch $@

$(VENV)/.system: tools/setup-system.sh $(VENV)/.packages
	@sh tools/setup-system.sh $(BIN)
	@touch $@

$(VENV)/.proto-tools: $(VENV)/.python
	@$(BIN)/python -m venv $(VENV)/proto-tools
	@$(VENV)/proto-tools/bin/python -m pip install --quiet --disable-pip-version-check '$(PROTO_TOOLS)' setuptools
	@touch $@
