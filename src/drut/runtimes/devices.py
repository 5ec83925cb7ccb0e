"""What a device name means to ONNX Runtime."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from drut.errors import InvalidRequestError, InvalidTypeError

Provider: TypeAlias = tuple[str, dict[str, Any]]

CPU: Final = "CPUExecutionProvider"
CUDA: Final = "CUDAExecutionProvider"
TENSORRT: Final = "TensorrtExecutionProvider"

PROVIDER_OF: Final = {"cpu": CPU, "cuda": CUDA, "tensorrt": TENSORRT}
"""The provider that a named device promises."""

_DEVICE: Final = re.compile(r"(auto|cpu|cuda|tensorrt)(?::(\d+))?")


@dataclass(frozen=True, slots=True)
class Device:
    """A parsed device name. `auto` is not a promise; every other name is."""

    kind: str  # auto, cpu, cuda, tensorrt
    index: int = 0

    @property
    def name(self) -> str:
        """`cpu`, `cuda:0`, `tensorrt:0`, or `auto`."""
        return self.kind if self.kind in ("auto", "cpu") else f"{self.kind}:{self.index}"


def parse_device(device: object) -> Device:
    """Read `auto`, `cpu`, `cuda`, `cuda:N`, `tensorrt` or `tensorrt:N`, in any case.

    Raises:
        InvalidRequestError: any other name.
    """
    if device is None:
        return Device("auto")
    if not isinstance(device, str):
        raise InvalidTypeError(f"device must be a string, got {type(device).__name__}")
    match = _DEVICE.fullmatch(device.strip().lower())
    if match is None or (match[1] in ("auto", "cpu") and match[2]):
        raise InvalidRequestError(
            f"unknown device {device!r}; use auto, cpu, cuda, cuda:N, tensorrt or tensorrt:N"
        )
    return Device(match[1], int(match[2] or 0))


def providers_for(
    device: Device, available: Sequence[str], options: Mapping[str, Mapping[str, Any]]
) -> list[Provider]:
    """Execution providers to ask for, most wanted first.

    TensorRT is never asked for unless it is named, since building an engine takes minutes.

    Args:
        device: what the caller wants.
        available: the providers compiled into this onnxruntime.
        options: further options by provider name, which win over ours.
    """
    wanted: list[Provider] = []
    if device.kind == "tensorrt":
        wanted.append((TENSORRT, {"device_id": device.index}))
    if device.kind in ("cuda", "tensorrt") or (device.kind == "auto" and CUDA in available):
        # Heuristic search: an exhaustive one is repeated for every new shape.
        wanted.append((CUDA, {"device_id": device.index, "cudnn_conv_algo_search": "HEURISTIC"}))
    wanted.append((CPU, {}))
    return [(name, {**ours, **options.get(name, {})}) for name, ours in wanted]


def limited(providers: Sequence[Provider], megabytes: int) -> list[Provider]:
    """The same providers, with a bound for the memory that CUDA's arena takes.

    The arena grows by what is asked for: doubling, its usual way, would hit the bound early.

    Raises:
        InvalidRequestError: none of them is CUDA, whose arena alone has a bound.
    """
    if CUDA not in dict(providers):
        raise InvalidRequestError(
            "memory_limit_mb bounds the memory of a CUDA device, and none is used here; lower "
            "max_batch_tokens, or pass shrink_memory=True"
        )
    bound = {"gpu_mem_limit": megabytes << 20, "arena_extend_strategy": "kSameAsRequested"}
    return [(name, {**bound, **own} if name == CUDA else own) for name, own in providers]


def device_of(provider: str, index: int) -> str:
    """Name of the device that a provider runs on."""
    if provider == CUDA:
        return f"cuda:{index}"
    if provider == TENSORRT:
        return f"tensorrt:{index}"
    return "cpu" if provider == CPU else provider
