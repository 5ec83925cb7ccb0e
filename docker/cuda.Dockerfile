# The SDK and its command line, with ONNX Runtime for NVIDIA GPUs.
#
#   docker build -f docker/cuda.Dockerfile -t drut:cuda .
#
# docs/docker.md says how to give the base image by its digest.
ARG PYTHON_IMAGE=python:3.12.12-slim-bookworm

FROM ${PYTHON_IMAGE} AS base
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore

FROM base AS wheel
WORKDIR /source
COPY constraints.txt ./
RUN python -m pip install --constraint constraints.txt hatchling
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY src src
COPY export export
COPY model_repository model_repository
RUN python -m pip wheel --no-deps --no-build-isolation --wheel-dir /wheels .

# A layer of its own, of gigabytes, which changes only with the constraints. CUDA and cuDNN come
# as wheels; the driver is the host's.
FROM base AS packages
WORKDIR /source
COPY constraints.txt docker/constraints-cuda.txt ./
RUN python -m venv /opt/drut \
    && /opt/drut/bin/python -m pip install \
        --constraint constraints.txt --constraint constraints-cuda.txt \
        numpy tokenizers huggingface-hub rich 'onnxruntime-gpu[cuda,cudnn]' py3langid \
        'tritonclient[http,grpc]'

FROM base
RUN groupadd --gid 10001 drut \
    && useradd --uid 10001 --gid 10001 --create-home drut \
    && install --directory --owner=10001 --group=10001 /models
COPY --from=packages /opt/drut /opt/drut
RUN --mount=type=bind,from=wheel,source=/wheels,target=/wheels \
    /opt/drut/bin/python -m pip install --no-deps /wheels/*.whl \
    && /opt/drut/bin/python -m pip check
COPY docker/smoke.py docker/smoke_server.py docker/smoke_rows.json /opt/smoke/
# Threads that spin take processors from whoever else the container's quota is for. From 1.29
# on ONNX Runtime reports to its makers unless this variable is there before it is imported.
ENV PATH=/opt/drut/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    OMP_WAIT_POLICY=passive \
    ORT_DISABLE_TELEMETRY=1 \
    DRUT_MODEL_REPOSITORY=/models \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
WORKDIR /home/drut
USER 10001:10001
# As process 1 Python would not notice SIGTERM; SIGINT it turns into an orderly end.
STOPSIGNAL SIGINT
HEALTHCHECK --interval=5m --timeout=30s --start-period=30s --retries=2 CMD ["drut", "doctor"]
ENTRYPOINT ["drut"]
CMD ["doctor"]
