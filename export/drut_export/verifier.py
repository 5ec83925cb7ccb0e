"""The engine that a graph is verified on: the one that will compute it, where it runs here."""

import warnings
from pathlib import Path

from drut.checkpoint.bundle import Bundle
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


def reopen_verifier(bundle: Bundle) -> Runtime:
    """Open a bundle's graph on the engine that its export verified it on.

    Raises:
        RuntimeUnavailableError: that engine does not run here, or the file cannot be loaded.
    """
    target = str(bundle.manifest.get("target") or "cpu")
    runtime = open_verifier(bundle.graph, bundle.precision, target)
    then = bundle.manifest.get("verified_with") or {}
    wanted = (then.get("name"), then.get("computing"))
    found = engine_of(runtime)
    if then and wanted != (found["name"], found["computing"]):
        runtime.close()
        raise RuntimeUnavailableError(
            f"bundle {bundle.name!r} was verified with {wanted[0]}, computing in {wanted[1]}; that "
            f"does not run here ({found['name']} in {found['computing']} would); install "
            "drut[openvino] on a processor that computes in bfloat16, or verify it where it runs"
        )
    return runtime


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
