# The operator; also the image of runs' Redis, since it has valkey-server on its PATH.
#
#   docker build -f images/operator.Dockerfile -t webgym-operator .
#
# BASE      the base image; give one with a digest to pin it
# PIP_ARGS  further options of pip, such as another index
ARG BASE=docker.io/library/debian:bookworm-slim

# What we depend on, apart from our own code, which changes more often.
FROM ${BASE} AS dependencies
ARG PIP_ARGS=""
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 python3-venv \
 && apt-get clean && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml images/constraints.txt images/requirements.py ./
RUN python3 -m venv /opt/webgym \
 && python3 requirements.py operator > requirements.txt \
 && /opt/webgym/bin/pip install -c constraints.txt ${PIP_ARGS} -r requirements.txt

FROM dependencies AS code
COPY README.md LICENSE ./
COPY core core
COPY workers workers
COPY learner learner
COPY operator operator
RUN /opt/webgym/bin/pip wheel --no-deps ${PIP_ARGS} --wheel-dir /wheels .

FROM ${BASE}
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates python3 tini \
 && apt-get clean && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin webgym
COPY --from=dependencies /opt/webgym /opt/webgym
ENV PATH=/opt/webgym/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
COPY --from=code /wheels /tmp/wheels
# A link to the server that the wheel brings; the build fails where there is none for this machine.
RUN pip install --no-cache-dir --no-index --no-deps /tmp/wheels/*.whl && rm -r /tmp/wheels \
 && pip check \
 && ln -s "$(python -c 'from webgym.embedded import find_server; print(find_server())')" /usr/local/bin/valkey-server \
 && valkey-server --version
USER 10001:10001
ENTRYPOINT ["/usr/bin/tini", "--", "webgym"]
CMD ["operator"]
