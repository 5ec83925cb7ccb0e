"""Weights whose rows are used apart become initialisers of their own.

Only those are what quantisers, precisions and readers of a graph's weights look for; a split that
is left in the graph hides them all.
"""

from collections.abc import Iterator
from typing import Any, Final

import onnx_ir as ir
from numpy.typing import NDArray

PART: Final = ".part"
TRANSPOSED: Final = ".T"


def take_weights_apart(model: ir.Model) -> None:
    """Compute every `Split` of a weight along its rows, and the `Transpose` of what comes out.

    Parts are called `<weight>.part0`, `<weight>.part1` and so on, with `.T` if transposed.
    """
    for node in list(model.graph):
        if node.op_type != "Split" or node.attributes.get_int("axis", 0) != 0:
            continue
        weight, sizes = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
        if _array(weight) is None or _array(sizes) is None:
            continue
        _replace_outputs(model.graph, node, weight, sizes)
        model.graph.remove(node, safe=True)


def _replace_outputs(
    graph: ir.Graph, node: ir.Node, weight: ir.Value | None, sizes: ir.Value | None
) -> None:
    whole, lengths = _array(weight), _array(sizes)
    assert weight is not None
    assert whole is not None
    assert lengths is not None
    start = 0
    for index, (output, length) in enumerate(zip(node.outputs, lengths.tolist(), strict=True)):
        rows = whole[start : start + length]
        start += length
        name = f"{weight.name}{PART}{index}"
        for user in _transposes(output):
            _put(graph, user.outputs[0], f"{name}{TRANSPOSED}", rows.T)
            graph.remove(user, safe=True)
        if output.uses():
            _put(graph, output, name, rows)


def _transposes(value: ir.Value) -> Iterator[ir.Node]:
    for node, _ in list(value.uses()):
        if node.op_type == "Transpose" and list(node.attributes.get_ints("perm", ())) in (
            [1, 0],
            [],
        ):
            yield node


def _put(graph: ir.Graph, value: ir.Value, name: str, array: NDArray[Any]) -> None:
    """Let an initialiser take the place of a computed value."""
    made = graph.initializers.get(name)
    if made is None:
        tensor = ir.Tensor(array, name=name)
        made = ir.Value(
            name=name,
            shape=ir.Shape(array.shape),
            type=ir.TensorType(tensor.dtype),
            const_value=tensor,
        )
        graph.register_initializer(made)
    for node, index in list(value.uses()):
        node.replace_input_with(index, made)


def _array(value: ir.Value | None) -> NDArray[Any] | None:
    if value is None or value.const_value is None:
        return None
    return value.const_value.numpy()
