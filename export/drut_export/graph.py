"""The decision model as an ONNX graph, with the names and axes of `drut.tensors`."""

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray

from drut.checkpoint.bundle import GRAPH_NAME
from drut.errors import ExportError, GraphContractError
from drut.tensors import OUTPUTS, TensorSpec, graph_inputs
from drut_export.canonical import make_canonical
from drut_export.modeling import DecisionModel
from drut_export.portable import write_out_biases
from drut_export.triton_releases import PORTABLE, PRESENT, GraphFormat
from drut_export.weights_apart import TRANSPOSED, take_weights_apart

INLINE_BYTES: Final = 4_000_000
"""Weights beyond this go into a second file, which engines map instead of copying it."""

EXTERNAL_NAME: Final = f"{GRAPH_NAME}.data"

EXAMPLE_SIZES: Final = {"rows": 3, "tokens": 37, "options": 5}
"""Odd and different from each other, so that no axis is taken for a constant or for another."""


def build_graph(model: DecisionModel, form: GraphFormat = PRESENT) -> ir.Model:
    """Trace the model into a graph whose axes are all dynamic.

    Initialisers are called like the state-dict entry they hold, with `.part0`, `.part1` appended
    where its rows are used apart, and `.T` if transposed.

    Args:
        model: what to trace.
        form: opset and IR version of the graph.

    Raises:
        ExportError: torch cannot export the model.
        GraphContractError: the graph has other inputs, outputs or axes than `drut.tensors`.
    """
    specs = graph_inputs(parallel=model.parallel)
    try:
        with _quiet():
            program = torch.onnx.export(
                model.eval(),
                tuple(_example(spec) for spec in specs),
                input_names=[spec.name for spec in specs],
                output_names=[spec.name for spec in OUTPUTS],
                dynamic_shapes=tuple(dict(enumerate(spec.axes)) for spec in specs),
                opset_version=form.opset,
                dynamo=True,
                verbose=False,
            )
    except torch.onnx.errors.OnnxExporterError as exc:
        raise ExportError(
            f"torch {torch.__version__} could not export the model ({exc}); "
            "see the chained error, and export with the versions of constraints.txt"
        ) from exc
    if program is None:
        raise ExportError(f"torch {torch.__version__} returned no graph")
    graph = program.model
    take_weights_apart(graph)
    _name_weights(graph, model.state_dict())
    if form.opset <= PORTABLE.opset:
        write_out_biases(graph)
    make_canonical(graph)
    graph.ir_version = form.ir_version
    check_contract(graph, model)
    return graph


def save_graph(graph: ir.Model, directory: Path, *, inline_bytes: int = INLINE_BYTES) -> list[Path]:
    """Write `model.onnx`, and `model.onnx.data` beside it if the weights exceed `inline_bytes`.

    Returns:
        The files written.
    """
    path = directory / GRAPH_NAME
    weights = sum(value.nbytes for value in _constants(graph).values())
    if weights <= inline_bytes:
        ir.save(graph, path)
        return [path]
    ir.save(graph, path, external_data=EXTERNAL_NAME)
    return [path, directory / EXTERNAL_NAME]


def check_contract(graph: ir.Model, model: DecisionModel) -> None:
    """Compare inputs and outputs with `drut.tensors`.

    Raises:
        GraphContractError: naming the first difference.
    """
    wanted = [*graph_inputs(parallel=model.parallel), *OUTPUTS]
    found = [*graph.graph.inputs, *graph.graph.outputs]
    fixed = {"actions": model.actions}
    for spec, value in zip(wanted, found, strict=False):
        expected = (spec.name, spec.dtype, tuple(str(fixed.get(axis, axis)) for axis in spec.axes))
        dtype = str(value.dtype.numpy()) if value.dtype else "?"
        actual = (value.name, dtype, tuple(str(_axis(axis)) for axis in value.shape or ()))
        if actual != expected:
            raise GraphContractError(
                f"the graph has {actual} where {expected} was expected; export with the versions "
                "of constraints.txt"
            )
    if len(wanted) != len(found):
        raise GraphContractError(
            f"the graph has {len(found)} inputs and outputs, not {len(wanted)}"
        )


def _axis(axis: object) -> object:
    return axis.value if isinstance(axis, ir.SymbolicDim) else axis


def _example(spec: TensorSpec) -> torch.Tensor:
    shape = [EXAMPLE_SIZES[axis] for axis in spec.axes]
    example = torch.zeros(shape, dtype=getattr(torch, spec.dtype))
    # Real tokens everywhere but in the last row, whose second half is padding.
    if spec.name in ("attention_mask", "marker_mask"):
        example[...] = 1
        example[-1, shape[-1] // 2 :] = 0
    return example


def _name_weights(model: ir.Model, state: Mapping[str, torch.Tensor]) -> None:
    """Name folded transposes after the weight they came from."""
    taken = set(model.graph.initializers)
    matrices = {
        name: tensor.numpy()
        for name, tensor in state.items()
        if tensor.ndim == 2 and name not in taken
    }
    for old, array in _constants(model).items():
        if old in state or array.ndim != 2:
            continue
        found = next((n for n, m in matrices.items() if _same(m.T, array)), None)
        if found is not None:
            del matrices[found]
            model.graph.initializers[old].name = found + TRANSPOSED


def _same(left: NDArray[Any], right: NDArray[Any]) -> bool:
    # The first column rules out almost every pair without reading all of it.
    return (
        left.shape == right.shape
        and np.array_equal(left[:, 0], right[:, 0])
        and np.array_equal(left, right)
    )


def _constants(model: ir.Model) -> dict[str, NDArray[Any]]:
    return {
        name: value.const_value.numpy()
        for name, value in model.graph.initializers.items()
        if value.const_value is not None
    }


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence what tracing says about itself: optional packages, axes that share a name."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
