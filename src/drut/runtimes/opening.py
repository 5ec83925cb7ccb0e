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

RuntimeName: TypeAlias = Literal["onnxruntime", "ort"]


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """Everything any runtime can be told; each reads what concerns it."""

    device: str = "auto"
    threads: int | None = None  # of one forward pass on the CPU; None: the usable processors
    providers: Any = None  # ONNX Runtime's execution providers, instead of what `device` implies
    provider_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    session_options: Any = None


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
    if not isinstance(runtime, str):
        if isinstance(runtime, type) or not isinstance(runtime, Runtime):
            raise InvalidTypeError(
                f"runtime must be {_known()}, or an object with info, forward and close, "
                f"got {type(runtime).__name__}"
            )
        return _checked(runtime, checkpoint)
    if runtime not in _OPENERS:
        raise InvalidRequestError(f"unknown runtime {runtime!r}; use {_known()}")
    if checkpoint.bundle is None:
        raise CheckpointNotFoundError(
            f"{checkpoint.directory} has no exported graph; make one with: "
            f"drut export {checkpoint.directory} --name NAME"
        )
    return _checked(_OPENERS[runtime](checkpoint.bundle, options or RuntimeOptions()), checkpoint)


def _open_ort(bundle: Bundle, options: RuntimeOptions) -> Runtime:
    from drut.runtimes.ort import OrtOptions, OrtRuntime

    chosen = OrtOptions(
        device=options.device,
        threads=options.threads,
        providers=options.providers,
        provider_options=options.provider_options,
        session_options=options.session_options,
    )
    return OrtRuntime(bundle.graph, chosen, precision=bundle.precision)


def _checked(runtime: Runtime, checkpoint: Checkpoint) -> Runtime:
    if runtime.info.parallel != checkpoint.config.parallel:
        raise GraphContractError(
            f"the checkpoint has option_layout {checkpoint.config.option_layout!r}, but the "
            f"runtime's graph {'has' if runtime.info.parallel else 'lacks'} the inputs of the "
            "parallel layout; export the checkpoint again"
        )
    return runtime


def _known() -> str:
    names = [repr(name) for name in _OPENERS if name != "ort"]
    return " or ".join(names)


_OPENERS: Final[Mapping[str, Callable[[Bundle, RuntimeOptions], Runtime]]] = MappingProxyType(
    {"onnxruntime": _open_ort, "ort": _open_ort}
)
