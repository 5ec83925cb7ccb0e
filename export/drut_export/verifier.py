"""The engine that a graph is verified on: the one that will compute it, where it runs here."""

import warnings
from pathlib import Path

from drut.errors import MissingDependencyError, RuntimeUnavailableError
from drut.runtimes.base import Runtime
from drut.runtimes.ort import OrtOptions, OrtRuntime

COMPUTING = {"int8": "int8", "fp16": "fp16"}
"""What ONNX Runtime computes a precision's matrix products in; every other one in float32."""


def open_verifier(graph: Path, precision: str, target: str = "cpu") -> Runtime:
    """Open a graph for its verification on this machine's CPU.

    ONNX Runtime, but OpenVINO for `bf16` on the CPU, where it is installed and the processor
    computes in bfloat16; ONNX Runtime computes such a graph in float32.

    Raises:
        RuntimeUnavailableError: the file cannot be loaded.
    """
    if precision == "bf16" and target == "cpu" and (found := _openvino(graph)) is not None:
        return found
    return OrtRuntime(graph, OrtOptions(device="cpu"), precision=precision)


def engine_of(runtime: Runtime) -> dict[str, str]:
    """Name, version and computing precision of what ran, for the manifest."""
    info = runtime.info
    computing = info.details.get("computing", COMPUTING.get(info.precision, "fp32"))
    return {
        "name": info.name,
        "version": str(info.details.get("version", "unknown")),
        "device": info.device,
        "computing": str(computing),
    }


def _openvino(graph: Path) -> Runtime | None:
    """OpenVINO, if it computes in bfloat16 here."""
    try:
        from drut.runtimes.openvino import OpenVinoRuntime
    except MissingDependencyError:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a processor without bfloat16 is no fault here
        try:
            runtime = OpenVinoRuntime(graph, precision="bf16")
        except RuntimeUnavailableError:
            return None
    if runtime.info.precision == "bf16":
        return runtime
    runtime.close()
    return None
