"""The only chooser of a runtime: a name and options become something that runs a bundle's graph."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from drut.checkpoint.bundle import Bundle
from drut.checkpoint.opened import Checkpoint
from drut.errors import (
    CheckpointNotFoundError,
    GraphContractError,
    InvalidRequestError,
    InvalidTypeError,
)
from drut.runtimes.base import Runtime
from drut.runtimes.triton_options import TritonOptions

RuntimeName: TypeAlias = Literal["onnxruntime", "ort", "openvino", "triton"]


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """Everything any runtime can be told; each reads what concerns it."""

    device: str = "auto"
    threads: int | None = None  # of one forward pass on the CPU; None: the usable processors
    concurrent_passes: int | None = None  # that OpenVINO prepares for; None: one
    providers: Any = None  # ONNX Runtime's execution providers, instead of what `device` implies
    # By execution provider, or `openvino`: properties of that runtime.
    provider_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    session_options: Any = None
    memory_limit_mb: int | None = None  # of ONNX Runtime's arena on a CUDA device
    shrink_memory: bool = False  # ONNX Runtime gives memory back after every pass
    server: TritonOptions | None = None  # of the runtime triton, which needs one

    def of_onnxruntime(self) -> list[str]:
        """Names of what is given and concerns ONNX Runtime alone."""
        given = {
            "providers": self.providers is not None,
            "session_options": self.session_options is not None,
            "memory_limit_mb": self.memory_limit_mb is not None,
            "shrink_memory": self.shrink_memory,
        }
        return [name for name, is_given in given.items() if is_given]


def open_runtime(
    runtime: RuntimeName | Runtime, checkpoint: Checkpoint, options: RuntimeOptions | None = None
) -> Runtime:
    """Open the runtime of that name for a checkpoint; a runtime object is checked and returned.

    Raises:
        InvalidRequestError: no runtime of that name.
        CheckpointNotFoundError: the checkpoint was never exported.
        GraphContractError: the runtime's graph is not one for this checkpoint.
        RuntimeUnavailableError: it cannot run here.
    """
    options = options or RuntimeOptions()
    if options.server is not None and runtime != "triton":
        named = repr(runtime) if isinstance(runtime, str) else type(runtime).__name__
        raise InvalidRequestError(
            f"url {options.server.url!r} has no meaning for runtime {named}; pass runtime='triton'"
        )
    if not isinstance(runtime, str):
        if isinstance(runtime, type) or not isinstance(runtime, Runtime):
            raise InvalidTypeError(
                f"runtime must be {_known()}, or an object with info, forward and close, "
                f"got {type(runtime).__name__}"
            )
        return _checked(runtime, checkpoint)
    if runtime not in (*_OPENERS, "triton"):
        raise InvalidRequestError(f"unknown runtime {runtime!r}; use {_known()}")
    if runtime == "triton":  # the graph lies on the server
        return _open_triton(checkpoint, options)
    if checkpoint.bundle is None:
        raise CheckpointNotFoundError(
            f"{checkpoint.directory} has no exported graph; make one with: "
            f"drut export {checkpoint.directory} --name NAME"
        )
    return _checked(_OPENERS[runtime](checkpoint.bundle, options), checkpoint)


def _open_triton(checkpoint: Checkpoint, options: RuntimeOptions) -> Runtime:
    if options.server is None:
        raise InvalidRequestError(
            "runtime 'triton' needs the address of a server: pass url='grpc://HOST:8001' or "
            "'http://HOST:8000', or set DRUT_TRITON_URL"
        )
    from drut.runtimes.triton import TritonRuntime

    return TritonRuntime(options.server, checkpoint, device=options.device)


def _open_ort(bundle: Bundle, options: RuntimeOptions) -> Runtime:
    from drut.runtimes.ort import OrtOptions, OrtRuntime

    chosen = OrtOptions(
        device=options.device,
        threads=options.threads,
        providers=options.providers,
        provider_options=options.provider_options,
        session_options=options.session_options,
        memory_limit_mb=options.memory_limit_mb,
        shrink_memory=options.shrink_memory,
    )
    return OrtRuntime(
        bundle.graph,
        chosen,
        precision=bundle.precision,
        batch_invariant=bundle.batch_invariant,
    )


def _open_openvino(bundle: Bundle, options: RuntimeOptions) -> Runtime:
    from drut.runtimes.openvino import OpenVinoOptions, OpenVinoRuntime

    if options.of_onnxruntime():
        raise InvalidRequestError(
            f"{' and '.join(options.of_onnxruntime())} mean something to ONNX Runtime only; give "
            "the properties of OpenVINO as provider_options={'openvino': {...}}"
        )
    properties = options.provider_options.get("openvino", {})
    return OpenVinoRuntime(
        bundle.graph,
        OpenVinoOptions(
            options.device, options.threads, options.concurrent_passes or 1, properties
        ),
        precision=bundle.precision,
        batch_invariant=bundle.batch_invariant,
    )


def _checked(runtime: Runtime, checkpoint: Checkpoint) -> Runtime:
    if runtime.info.parallel != checkpoint.config.parallel:
        raise GraphContractError(
            f"the checkpoint has option_layout {checkpoint.config.option_layout!r}, but the "
            f"runtime's graph {'has' if runtime.info.parallel else 'lacks'} the inputs of the "
            "parallel layout; export the checkpoint again"
        )
    return runtime


def _known() -> str:
    return " or ".join([*(repr(name) for name in _OPENERS if name != "ort"), "'triton'"])


_OPENERS: Final[Mapping[str, Callable[[Bundle, RuntimeOptions], Runtime]]] = MappingProxyType(
    {"onnxruntime": _open_ort, "ort": _open_ort, "openvino": _open_openvino}
)
