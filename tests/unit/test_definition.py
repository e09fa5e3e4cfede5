"""An operator beside a definition that is newer than it is: what it takes, and whom it blames."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from operator_runs import run_body

from webgym.crd import build_crd
from webgym_operator.run import Run
from webgym_operator.schema_check import Definition, missing_fields


def newer_crd() -> dict[str, Any]:
    """A definition of days to come: fields, a value and a range more."""
    crd = copy.deepcopy(build_crd())
    (version,) = crd["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    speed = {"type": "integer", "default": 5}
    spec["wings"] = {
        "type": "object",
        "default": {},
        "properties": {"speed": speed, "colour": {"type": "string"}},
    }
    spec["workers"]["properties"]["env"]["items"]["properties"]["secret"] = {
        "type": "boolean",
        "default": False,
    }
    spec["task"]["properties"]["pace"] = {"type": "string", "default": "Slow"}
    spec["mode"]["enum"].append("Dreaming")
    spec["workers"]["properties"]["replicas"]["minimum"] = -1
    return crd


NEWER = Definition(newer_crd())


def test_defaults_that_nobody_asked_for_change_nothing() -> None:
    env = {"name": "COLOUR", "value": "blue"}
    given = run_body({"workers": {"env": [env | {"secret": False}]}, "wings": {"speed": 5}})
    given["spec"]["task"]["pace"] = "Slow"
    assert not missing_fields(newer_crd())
    run = Run.parse(given, NEWER)
    assert run.problem == ""
    assert run.data == Run.parse(run_body({"workers": {"env": [env]}}), NEWER).data


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"wings": {"speed": 6}}, "spec.wings"),
        ({"task": {"name": "miniwob.click-button", "pace": "Fast"}}, "spec.task.pace"),
        ({"workers": {"env": [{"name": "A", "value": "b", "secret": True}]}}, "spec.workers.env.0.secret"),
        ({"mode": "Dreaming"}, "spec.mode"),
        ({"workers": {"replicas": -1}}, "spec.workers.replicas"),
    ],
)
def test_what_a_newer_definition_allows_is_not_the_user_s_fault(spec: dict[str, Any], field: str) -> None:
    run = Run.parse(run_body(spec), NEWER)
    assert run.manifest is None
    assert run.outdated
    assert "older than the cluster's CustomResourceDefinition" in run.problem
    assert field in run.problem


@pytest.mark.parametrize(
    "definition", [None, NEWER, Definition(build_crd()), Definition(build_crd(cel=False))]
)
@pytest.mark.parametrize(
    "spec",
    [
        {"workers": {"autoscaling": {"min": 9, "max": 3}}},
        {"task": {"name": "miniwob.click-button", "parms": {}}},
        {"seed": -1},
        {"seed": -1, "wings": {"speed": 6}},
    ],
)
def test_what_no_definition_allows_is_the_user_s_to_mend(
    spec: dict[str, Any], definition: Definition | None
) -> None:
    run = Run.parse(run_body(spec), definition)
    assert run.manifest is None
    assert run.problem
    assert not run.outdated


def test_where_the_definition_may_not_be_read_a_server_keeps_only_what_it_knows() -> None:
    run = Run.parse(run_body({"workers": {"wings": True}}))
    assert run.outdated
    assert "spec.workers.wings" in run.problem
