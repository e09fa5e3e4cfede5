# The operator; also the image of runs' Redis, since it has valkey-server on its PATH.
#
#   docker build -f images/operator.Dockerfile -t webgym-operator .
#
# BASE      the base image; give one with a digest to pin it
# PIP_ARGS  further options of pip, such as another index
ARG BASE=docker.io/library/debian:bookworm-slim

FROM ${BASE} AS build
ARG PIP_ARGS=""
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 python3-venv \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY images/constraints.txt images/
COPY core core
COPY workers workers
COPY learner learner
COPY operator operator
RUN python3 -m venv /opt/webgym \
 && /opt/webgym/bin/pip install --no-cache-dir --disable-pip-version-check -c images/constraints.txt ${PIP_ARGS} '.[operator]'

FROM ${BASE}
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates python3 tini \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin webgym
COPY --from=build /opt/webgym /opt/webgym
# A link to the server that the wheel brings; the build fails where there is none for this machine.
RUN ln -s "$(/opt/webgym/bin/python -c 'from webgym.embedded import find_server; print(find_server())')" /usr/local/bin/valkey-server \
 && valkey-server --version
ENV PATH=/opt/webgym/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
ENTRYPOINT ["/usr/bin/tini", "--", "webgym"]
CMD ["operator"]
