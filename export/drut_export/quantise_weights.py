"""Weights stored as int8 with scales, multiplied back to float32 before they are computed with."""

from collections.abc import Collection, Iterator
from typing import Any, Final

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

LEAST_ELEMENTS: Final = 4096
"""Smaller matrices stay as they are: nothing to gain."""

LEVELS: Final = 127
ROWS, COLUMNS = 0, 1


def large_tables(model: ir.Model) -> list[ir.Value]:
    """Float32 tables of embeddings that are worth storing in another form."""
    return [
        value
        for value in model.graph.initializers.values()
        if is_large_matrix(value)
        and {node.op_type for node, _ in value.uses()} == {"Gather"}
        and {channel_axis(node, index) for node, index in value.uses()} == {ROWS}
    ]


def store_tables_as_int8(model: ir.Model, left_out: Collection[str] = ()) -> None:
    """Store large tables as int8 with one float32 scale per row, but for those left out."""
    for table in large_tables(model):
        if table.name not in left_out:
            store_table(model.graph, table)


def store_weights_as_int8(model: ir.Model) -> None:
    """Store large matrices as int8 with one float32 scale per output channel or embedding row.

    Computing stays float32, so answers do not depend on the batch. Weights of matrix products
    are dequantised by constant nodes that ONNX Runtime folds while loading; embedding rows are
    dequantised after they were looked up, so that the table stays small in memory as well.
    """
    for value in list(model.graph.initializers.values()):
        uses = [(node, index) for node, index in value.uses()]
        axes = {channel_axis(node, index) for node, index in uses}
        if not is_large_matrix(value) or len(axes) != 1 or None in axes:
            continue
        node, _ = uses[0]
        axis = axes.pop()
        assert axis is not None
        if node.op_type == "Gather":
            store_table(model.graph, value)
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


def is_large_matrix(value: ir.Value) -> bool:
    """Whether it is a float32 matrix worth storing in another form."""
    tensor = value.const_value
    return (
        tensor is not None
        and tensor.dtype == ir.DataType.FLOAT
        and len(tensor.shape) == 2
        and tensor.size >= LEAST_ELEMENTS
    )


def channel_axis(node: ir.Node, index: int) -> int | None:
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


def store_table(graph: ir.Graph, table: ir.Value) -> None:
    """Store one embedding table as int8; what was looked up is multiplied back."""
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
    return constant(graph, f"{value.name}.int8", values), constant(
        graph, f"{value.name}.scales", scales
    )


def constant(graph: ir.Graph, name: str, array: NDArray[Any]) -> ir.Value:
    """The initialiser of that name, made if it is not there."""
    if name in graph.initializers:
        return graph.initializers[name]
    tensor = ir.Tensor(array, name=name)
    value = ir.Value(
        name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor
    )
    graph.register_initializer(value)
    return value


def float_products(model: ir.Model) -> Iterator[str]:
    """Names of constant weights that matrix products compute with in float32."""
    for node in model.graph:
        weight = node.inputs[1] if len(node.inputs) > 1 else None
        if node.op_type in ("MatMul", "Gemm") and weight is not None and is_float(weight):
            yield str(weight.name)


def is_float(value: ir.Value) -> bool:
    """Whether it is a float32 constant."""
    return value.const_value is not None and value.const_value.dtype == ir.DataType.FLOAT
