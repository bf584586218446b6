# The command line (the default target), and Flower nodes (--target flower): docs/install.md.
#   docker build --tag srfca .
#   docker build --tag srfca --build-arg TORCH_INDEX=URL .   # a small torch, see docs/install.md
#   docker build --tag srfca:cuda --build-arg DEVICE=cuda .
#   docker build --tag srfca:flower --target flower .
ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS wheel
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:${PYTHON}-slim AS torch
ARG DEVICE=cpu
ARG TORCH_INDEX=
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# Triton compiles its launchers with gcc.
# hadolint ignore=DL3008
RUN if [[ "$DEVICE" == cuda ]]; then \
      apt-get update && \
      apt-get install --yes --no-install-recommends gcc libc6-dev && \
      rm -rf /var/lib/apt/lists/*; \
    elif [[ "$DEVICE" != cpu ]]; then \
      echo "DEVICE must be cpu or cuda, not $DEVICE" >&2; exit 1; \
    fi
COPY constraints.txt /etc/srfca/
RUN pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} \
      --constraint /etc/srfca/constraints.txt torch && \
    useradd --create-home --uid 1000 srfca

# SuperLink and SuperNodes, with srfca and torch: the app itself comes from the SuperLink.
FROM torch AS flower
RUN --mount=type=bind,from=wheel,source=/wheels,target=/wheels \
    pip install --no-cache-dir --constraint /etc/srfca/constraints.txt \
      "$(echo /wheels/srfca-*.whl)[fast,flower]"
USER 1000:1000
WORKDIR /home/srfca
CMD ["flower-supernode", "--help"]

FROM torch AS command
RUN --mount=type=bind,from=wheel,source=/wheels,target=/wheels \
    pip install --no-cache-dir --constraint /etc/srfca/constraints.txt \
      "$(echo /wheels/srfca-*.whl)[fast,parquet,report,watch]"
USER 1000:1000
WORKDIR /home/srfca
ENTRYPOINT ["srfca"]
CMD ["--help"]
