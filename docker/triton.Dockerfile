# NVIDIA's Triton with drut in it, for the decision models of a model repository.
#
#   docker build -f docker/triton.Dockerfile -t drut:triton .
#
# Releases before 24.12 have Python 3.10, and drut needs 3.11. docs/docker.md says what else a
# release must have, and how to give the base images by their digests.
ARG PYTHON_IMAGE=python:3.12.12-slim-bookworm
ARG TRITON_IMAGE=nvcr.io/nvidia/tritonserver:25.03-py3

FROM ${PYTHON_IMAGE} AS wheel
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore
WORKDIR /source
COPY constraints.txt ./
RUN python -m pip install --constraint constraints.txt hatchling
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY src src
COPY export export
COPY model_repository model_repository
RUN python -m pip wheel --no-deps --no-build-isolation --wheel-dir /wheels .

# Directories of our own, so that what NVIDIA has installed stays as it is. The Python backend of
# these images is made for numpy 1.
FROM ${TRITON_IMAGE} AS packages
WORKDIR /source
COPY constraints.txt ./
RUN sed '/^numpy==/d' constraints.txt > triton.txt \
    && python3 -m pip install --no-cache-dir --target /opt/packages --constraint triton.txt \
        numpy==1.26.4 tokenizers huggingface-hub rich

FROM ${TRITON_IMAGE}
COPY --from=packages /opt/packages /opt/packages
# From 1.29 on ONNX Runtime reports to its makers unless it is told not to.
ENV PYTHONDONTWRITEBYTECODE=1 \
    ORT_DISABLE_TELEMETRY=1
# The Python backend's interpreter ignores PYTHONPATH in some releases, but reads .pth files.
RUN --mount=type=bind,from=wheel,source=/wheels,target=/wheels \
    python3 -m pip install --no-cache-dir --no-deps --target /opt/drut /wheels/*.whl \
    && echo 'import sys; sys.path[:0] = ["/opt/drut", "/opt/packages"]' \
        > "$(python3 -c 'import site; print(site.getsitepackages()[0])')/drut.pth" \
    && python3 -c 'import drut.loading, drut.pipeline, numpy; assert numpy.__version__ < "2"'
COPY docker/health.py /opt/health/
# The user that NVIDIA's images have for the server.
USER 1000:1000
EXPOSE 8000 8001 8002
STOPSIGNAL SIGTERM
# The server's own readiness stays false for ever once any model has failed to load.
HEALTHCHECK --interval=10s --timeout=10s --start-period=120s --retries=3 \
    CMD ["python3", "/opt/health/health.py", "http://127.0.0.1:8000"]
# NVIDIA's entrypoint stays: it prepares CUDA and hands its process over to this command.
CMD ["tritonserver", "--model-repository=/models", "--http-port=8000", "--grpc-port=8001", \
    "--metrics-port=8002", "--exit-timeout-secs=30"]
