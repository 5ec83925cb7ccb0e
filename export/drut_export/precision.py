"""How a graph stores its weights, and how far its answers may then be from the checkpoint's.

A further precision is one entry of `PRECISIONS`: a name, a rewrite of the graph, a tolerance, and
where such a graph can run.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import onnx_ir as ir

from drut.errors import ExportError
from drut_export.compute_bf16 import store_weights_as_bf16
from drut_export.compute_fp16 import compute_in_fp16
from drut_export.compute_int8 import compute_in_int8
from drut_export.quantise_weights import store_weights_as_int8
from drut_export.tolerance import Tolerance
from drut_export.trial_probe import Probe

EVERYWHERE: Final = ("cpu", "cuda", "tensorrt")


@dataclass(frozen=True, slots=True)
class Precision:
    """One way to store and compute the numbers of a graph.

    Args:
        name: as it stands in the manifest.
        summary: one line for people.
        rewrite: changes the float32 graph in place and returns the names of weights that it left
            out, which compute in float32 while others do not.
        tolerance: how far the graph may be from the torch model.
        targets: where the graph can run.
        instead: what to use on any other target.
        measures: whether `rewrite` runs variants of the graph; otherwise it gets no probe.
    """

    name: str
    summary: str
    rewrite: Callable[[ir.Model, Probe | None], tuple[str, ...]]
    tolerance: Tolerance
    targets: tuple[str, ...] = EVERYWHERE
    instead: str = "fp32"
    measures: bool = False


def get_precision(name: str) -> Precision:
    """Look a precision up by name.

    Raises:
        ExportError: there is none of that name.
    """
    try:
        return PRECISIONS[name]
    except KeyError:
        known = ", ".join(PRECISIONS)
        raise ExportError(f"there is no precision {name!r}; known are {known}") from None


def check_combination(name: str, target: str) -> Precision:
    """Look a precision up for a target.

    Raises:
        ExportError: no such precision or target, or one makes no sense on the other.
    """
    precision = get_precision(name)
    if target not in EVERYWHERE:
        raise ExportError(f"there is no target {target!r}; known are {', '.join(EVERYWHERE)}")
    if target not in precision.targets:
        raise ExportError(
            f"precision {name} is not for target {target}: {precision.instead}; {name} is for "
            f"{' and '.join(precision.targets)}"
        )
    return precision


def _keep_float32(model: ir.Model, probe: Probe | None) -> tuple[str, ...]:
    return ()


def _store_as_int8(model: ir.Model, probe: Probe | None) -> tuple[str, ...]:
    store_weights_as_int8(model)
    return ()


def _store_as_bf16(model: ir.Model, probe: Probe | None) -> tuple[str, ...]:
    store_weights_as_bf16(model)
    return ()


def _compute_int8(model: ir.Model, probe: Probe | None) -> tuple[str, ...]:
    assert probe is not None
    return compute_in_int8(model, probe)


def _compute_fp16(model: ir.Model, probe: Probe | None) -> tuple[str, ...]:
    assert probe is not None
    return compute_in_fp16(model, probe)


PRECISIONS: Final[Mapping[str, Precision]] = MappingProxyType(
    {
        precision.name: precision
        for precision in (
            Precision(
                "fp32",
                "weights and computing in float32",
                _keep_float32,
                Tolerance(logits=5e-3, probabilities=5e-4, equal_choices=1.0, batch=5e-4),
            ),
            Precision(
                "int8-weights",
                "weights stored as int8, computing in float32: a file a quarter of the size",
                _store_as_int8,
                Tolerance(logits=1.0, probabilities=0.1, equal_choices=0.9, batch=5e-4),
            ),
            Precision(
                "int8",
                "matrix products in int8 with a scale for every token: the fastest on CPUs",
                _compute_int8,
                Tolerance(logits=1.5, probabilities=0.15, equal_choices=0.95, batch=0.5),
                targets=("cpu",),
                instead="CUDA and TensorRT have no such operators, use fp16 there",
                measures=True,
            ),
            Precision(
                "fp16",
                "weights and computing in float16, sums and the answers' end in float32: for GPUs",
                _compute_fp16,
                Tolerance(logits=0.2, probabilities=0.03, equal_choices=0.98, batch=0.1),
                targets=("cuda", "tensorrt"),
                instead="processors compute float16 by converting it, use int8 or bf16 there",
                measures=True,
            ),
            Precision(
                "bf16",
                "weights stored as bfloat16, for engines that compute in it: OpenVINO, TensorRT",
                _store_as_bf16,
                Tolerance(logits=1.5, probabilities=0.15, equal_choices=0.95, batch=0.5),
                targets=("cpu", "tensorrt"),
                instead="ONNX Runtime would compute it in float32 on CUDA, use fp16 there",
            ),
        )
    }
)
"""Precisions by name."""
