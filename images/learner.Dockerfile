# A learner.
#
#   docker build -f images/learner.Dockerfile -t webgym-learner .                                 on CPUs
#   docker build -f images/learner.Dockerfile -t webgym-learner --build-arg CUDA=1 .              on GPUs
#
# BASE      the base image; give one with a digest to pin it
# CUDA      1 wants a build of PyTorch with CUDA, which is PyPI's own on Linux; 0 wants one without
# TORCH     the requirement, such as torch==2.13.0+cpu
# PIP_ARGS  further options of pip, such as the index that has that build (--extra-index-url ...)
ARG BASE=docker.io/library/debian:bookworm-slim

FROM ${BASE} AS build
ARG PIP_ARGS=""
ARG TORCH="torch"
ARG CUDA=0
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 python3-venv \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY images/constraints.txt images/
RUN python3 -m venv /opt/webgym \
 && /opt/webgym/bin/pip install --no-cache-dir --disable-pip-version-check -c images/constraints.txt ${PIP_ARGS} "${TORCH}" \
 && /opt/webgym/bin/python -c "import sys, torch; sys.exit(None if (torch.version.cuda is not None) == ('${CUDA}' == '1') else 'webgym: CUDA is ${CUDA}, and this PyTorch is a build for %s; see TORCH at the head of learner.Dockerfile' % (torch.version.cuda or 'CPUs'))"
COPY core core
COPY workers workers
COPY learner learner
COPY operator operator
RUN /opt/webgym/bin/pip install --no-cache-dir --disable-pip-version-check -c images/constraints.txt ${PIP_ARGS} '.[learner]'

FROM ${BASE}
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates python3 tini \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin webgym
COPY --from=build /opt/webgym /opt/webgym
ENV PATH=/opt/webgym/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
ENTRYPOINT ["/usr/bin/tini", "--", "webgym"]
CMD ["learner"]
