"""How a graph stores its weights, and how far its answers may then be from the checkpoint's.

A further precision is one entry of `PRECISIONS`: a name, a rewrite of the graph, a tolerance.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from drut.errors import ExportError

LEAST_ELEMENTS: Final = 4096
"""Smaller matrices stay as they are: nothing to gain."""

LEVELS: Final = 127
ROWS, COLUMNS = 0, 1


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a graph may be from the torch model, absolute. Probabilities at temperature 1."""

    logits: float
    probabilities: float
    equal_choices: float  # least share of rows with the same best option, ties aside
    batch: float  # logits of a row alone against the same row in a padded batch


@dataclass(frozen=True, slots=True)
class Precision:
    """One way to store and compute the numbers of a graph."""

    name: str
    summary: str
    rewrite: Callable[[ir.Model], None]  # changes the float32 graph in place
    tolerance: Tolerance


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


def keep_float32(model: ir.Model) -> None:
    """Leave the graph as it is."""


def store_weights_as_int8(model: ir.Model) -> None:
    """Store large matrices as int8 with one float32 scale per output channel or embedding row.

    Computing stays float32, so answers do not depend on the batch. Weights of matrix products
    are dequantised by constant nodes that ONNX Runtime folds while loading; embedding rows are
    dequantised after they were looked up, so that the table stays small in memory as well.
    """
    for value in list(model.graph.initializers.values()):
        uses = [(node, index) for node, index in value.uses()]
        axes = {_channel_axis(node, index) for node, index in uses}
        if not _is_large_matrix(value) or len(axes) != 1 or None in axes:
            continue
        node, _ = uses[0]
        axis = axes.pop()
        assert axis is not None
        if node.op_type == "Gather":
            _store_table(model.graph, value)
        else:
            _store_weight(model.graph, value, axis)


def quantise(array: NDArray[np.float32], axis: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Symmetric int8 grid along one axis: `values * scales` is `array` to half a step.

    Args:
        array: float32 matrix.
        axis: the axis that keeps one scale per entry.

    Returns:
        Values in -127..127, and scales that broadcast against them.
    """
    largest = np.abs(array.astype(np.float64)).max(axis=1 - axis, keepdims=True)
    scales = (np.where(largest > 0, largest, LEVELS) / LEVELS).astype(np.float32)
    return np.rint(array / scales).astype(np.int8), scales


def _is_large_matrix(value: ir.Value) -> bool:
    tensor = value.const_value
    return (
        tensor is not None
        and tensor.dtype == ir.DataType.FLOAT
        and len(tensor.shape) == 2
        and tensor.size >= LEAST_ELEMENTS
    )


def _channel_axis(node: ir.Node, index: int) -> int | None:
    """Axis of the output channels of a weight, or of the rows of a table; None if it is neither."""
    if node.op_type == "MatMul" and index == 1:
        return COLUMNS
    if node.op_type == "Gemm" and index == 1:
        return ROWS if node.attributes.get_int("transB", 0) else COLUMNS
    if node.op_type == "Gather" and index == 0 and not node.attributes.get_int("axis", 0):
        return ROWS
    return None


def _store_weight(graph: ir.Graph, weight: ir.Value, axis: int) -> None:
    users = list(weight.uses())
    values, scales = _split(graph, weight, axis)
    cast = ir.node("Cast", [values], {"to": ir.DataType.FLOAT})
    scaled = ir.node("Mul", [cast.outputs[0], scales])
    graph.insert_before(users[0][0], [cast, scaled])
    for node, index in users:
        node.replace_input_with(index, scaled.outputs[0])


def _store_table(graph: ir.Graph, table: ir.Value) -> None:
    users = [node for node, _ in table.uses()]
    values, scales = _split(graph, table, ROWS)
    for node in users:
        row_scales = ir.node("Gather", [scales, node.inputs[1]])
        node.replace_input_with(0, values)
        cast = ir.node("Cast", [node.outputs[0]], {"to": ir.DataType.FLOAT})
        scaled = ir.node("Mul", [cast.outputs[0], row_scales.outputs[0]])
        rest = [use for use in node.outputs[0].uses() if use[0] is not cast]
        for user, index in rest:
            user.replace_input_with(index, scaled.outputs[0])
        graph.insert_after(node, [row_scales, cast, scaled])


def _split(graph: ir.Graph, value: ir.Value, axis: int) -> tuple[ir.Value, ir.Value]:
    """Two initialisers in the place of one."""
    assert value.const_value is not None
    values, scales = quantise(value.const_value.numpy(), axis)
    return _constant(graph, f"{value.name}.int8", values), _constant(
        graph, f"{value.name}.scales", scales
    )


def _constant(graph: ir.Graph, name: str, array: NDArray[Any]) -> ir.Value:
    tensor = ir.Tensor(array, name=name)
    value = ir.Value(
        name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor
    )
    graph.register_initializer(value)
    return value


PRECISIONS: Final[Mapping[str, Precision]] = MappingProxyType(
    {
        precision.name: precision
        for precision in (
            Precision(
                "fp32",
                "weights and computing in float32",
                keep_float32,
                Tolerance(logits=5e-3, probabilities=5e-4, equal_choices=1.0, batch=5e-4),
            ),
            Precision(
                "int8-weights",
                "weights stored as int8, computing in float32: a file a quarter of the size",
                store_weights_as_int8,
                Tolerance(logits=1.0, probabilities=0.1, equal_choices=0.9, batch=5e-4),
            ),
        )
    }
)
"""Precisions by name."""
