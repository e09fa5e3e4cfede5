# A worker: browsers, a virtual display, fonts, and the policy that drives them, on CPUs.
#
#   docker build -f images/worker.Dockerfile -t webgym-worker .
#
# BASE         the base image; give one with a digest to pin it
# TORCH        the requirement, such as torch==2.13.0
# TORCH_INDEX  the index that has PyTorch without CUDA, which is two gigabytes smaller; empty where another has it
# CUDA         1 wants a build of PyTorch with CUDA, which is PyPI's own on Linux; 0 wants one without
# EXTRAS       worker, or worker,vision (brings ultralytics, which is AGPL-3.0)
# PIP_ARGS     further options of pip, such as another index
ARG BASE=docker.io/library/debian:bookworm-slim

# What we depend on, apart from our own code, which changes more often.
FROM ${BASE} AS dependencies
ARG PIP_ARGS=""
ARG TORCH=torch
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ARG CUDA=0
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1
RUN apt-get update \
 && apt-get install -y --no-install-recommends binutils python3 python3-venv \
 && apt-get clean && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY images/constraints.txt ./
RUN python3 -m venv /opt/webgym \
 && if [ "${CUDA}" = 1 ]; then index=""; else index="${TORCH_INDEX:+--extra-index-url ${TORCH_INDEX}}"; fi \
 && /opt/webgym/bin/pip install -c constraints.txt ${PIP_ARGS} ${index} "${TORCH}" \
 && /opt/webgym/bin/python -c "import sys, torch; sys.exit(None if (torch.version.cuda is not None) == ('${CUDA}' == '1') else 'webgym: CUDA is ${CUDA}, and this PyTorch is a build for %s; see TORCH_INDEX at the head of the Dockerfile' % (torch.version.cuda or 'CPUs'))"
ARG EXTRAS=worker
COPY pyproject.toml images/requirements.py images/shrink.py ./
# Playwright finds and installs browsers, and brings a Node.js for that; here there is Debian's Chromium.
RUN python3 requirements.py "${EXTRAS}" --without playwright > requirements.txt \
 && /opt/webgym/bin/pip install -c constraints.txt ${PIP_ARGS} -r requirements.txt \
 && python3 shrink.py /opt/webgym

FROM dependencies AS code
COPY README.md LICENSE ./
COPY core core
COPY workers workers
COPY learner learner
COPY operator operator
RUN /opt/webgym/bin/pip wheel --no-deps ${PIP_ARGS} --wheel-dir /wheels .

FROM ${BASE}
# Left out: drivers of graphics cards and the compiler behind them (pages are drawn in software, by Chromium itself), a
# debugger's layer of Vulkan, a second cut of the CJK fonts, icons of a desktop, translations, manuals.
RUN for path in '/usr/lib/*/dri/*' '/usr/lib/*/libLLVM*' '/usr/lib/*/libz3.so*' \
      /usr/lib/chromium/libVkLayer_khronos_validation.so '/usr/share/fonts/opentype/noto/NotoSerifCJK*' \
      '/usr/share/icons/Adwaita/*/*' '/usr/share/locale/*' '/usr/share/man/*' '/usr/share/info/*' '/usr/share/doc/*'; \
    do echo "path-exclude=$path"; done > /etc/dpkg/dpkg.cfg.d/webgym \
 && echo 'path-include=/usr/share/doc/*/copyright' >> /etc/dpkg/dpkg.cfg.d/webgym \
 && apt-get update \
 && apt-get install -y --no-install-recommends \
      ca-certificates chromium fonts-liberation fonts-noto-cjk fonts-noto-color-emoji python3 tini xvfb \
 && apt-get clean && rm -rf /var/lib/apt/lists/* /etc/dpkg/dpkg.cfg.d/webgym \
 && useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin webgym
ENV PATH=/opt/webgym/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
COPY --from=dependencies /opt/webgym /opt/webgym
COPY --from=code /wheels /tmp/wheels
RUN pip install --no-cache-dir --no-index --no-deps /tmp/wheels/*.whl && rm -r /tmp/wheels && pip check
USER 10001:10001
ENTRYPOINT ["/usr/bin/tini", "--", "webgym"]
CMD ["worker"]
