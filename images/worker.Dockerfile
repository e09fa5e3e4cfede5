# A worker: browsers, a virtual display, fonts, and the policy that drives them, on CPUs.
#
#   docker build -f images/worker.Dockerfile -t webgym-worker .
#
# BASE      the base image; give one with a digest to pin it
# TORCH     the build of PyTorch. Workers need no GPU: give one without CUDA, which is two gigabytes smaller, and with
#           PIP_ARGS the index that has it (--extra-index-url ...)
# CUDA      1 accepts a build with CUDA all the same
# EXTRAS    worker, or worker,vision (brings ultralytics, which is AGPL-3.0)
# PIP_ARGS  further options of pip
ARG BASE=docker.io/library/debian:bookworm-slim

FROM ${BASE} AS build
ARG PIP_ARGS=""
ARG TORCH="torch"
ARG CUDA=0
ARG EXTRAS=worker
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 python3-venv \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY images/constraints.txt images/
# Apart from our own code, which changes more often.
RUN python3 -m venv /opt/webgym \
 && /opt/webgym/bin/pip install --no-cache-dir --disable-pip-version-check -c images/constraints.txt ${PIP_ARGS} "${TORCH}" \
 && /opt/webgym/bin/python -c "import sys, torch; sys.exit(None if torch.version.cuda is None or '${CUDA}' == '1' else 'webgym: this PyTorch is a build with CUDA; see TORCH at the head of worker.Dockerfile')"
COPY core core
COPY workers workers
COPY learner learner
COPY operator operator
RUN /opt/webgym/bin/pip install --no-cache-dir --disable-pip-version-check -c images/constraints.txt ${PIP_ARGS} ".[${EXTRAS}]"

FROM ${BASE}
RUN apt-get update \
 && apt-get install -y --no-install-recommends \
      ca-certificates chromium fonts-liberation fonts-noto-cjk fonts-noto-color-emoji python3 tini xvfb \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin webgym
COPY --from=build /opt/webgym /opt/webgym
ENV PATH=/opt/webgym/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
ENTRYPOINT ["/usr/bin/tini", "--", "webgym"]
CMD ["worker"]
