import numpy as np
import onnx_ir as ir
import pytest

from drut_export.weights_apart import take_weights_apart

WEIGHT = np.arange(24, dtype=np.float32).reshape(6, 4)


def graph_of(weight: np.ndarray, sizes: list[int], *, axis: int = 0) -> ir.Model:
    """x @ first.T + (y @ second), both of one split weight."""
    held = ir.Value(name="w", const_value=ir.tensor(weight, name="w"))
    lengths = ir.Value(name="sizes", const_value=ir.tensor(np.array(sizes), name="sizes"))
    x, y = (ir.Value(name=name) for name in "xy")
    split = ir.node("Split", [held, lengths], {"axis": axis}, num_outputs=2)
    turned = ir.node("Transpose", [split.outputs[0]], {"perm": [1, 0]})
    first = ir.node("MatMul", [x, turned.outputs[0]])
    second = ir.node("MatMul", [y, split.outputs[1]])
    graph = ir.Graph(
        [x, y],
        [first.outputs[0], second.outputs[0]],
        nodes=[split, turned, first, second],
        initializers=[held, lengths],
    )
    return ir.Model(graph, ir_version=10)


def test_parts_are_initialisers_named_after_the_weight() -> None:
    model = graph_of(WEIGHT, [2, 4])
    take_weights_apart(model)
    assert [node.op_type for node in model.graph] == ["MatMul", "MatMul"]
    first, second = (node.inputs[1] for node in model.graph)
    assert (first.name, second.name) == ("w.part0.T", "w.part1")
    assert np.array_equal(first.const_value.numpy(), WEIGHT[:2].T)
    assert np.array_equal(second.const_value.numpy(), WEIGHT[2:])
    assert {"w.part0.T", "w.part1"} <= set(model.graph.initializers)


def test_a_split_along_columns_is_left_alone() -> None:
    model = graph_of(WEIGHT, [1, 3], axis=1)
    take_weights_apart(model)
    assert [node.op_type for node in model.graph] == ["Split", "Transpose", "MatMul", "MatMul"]


@pytest.mark.parametrize("name", ["w", "sizes"])
def test_a_split_of_what_is_not_known_is_left_alone(name: str) -> None:
    model = graph_of(WEIGHT, [2, 4])
    model.graph.initializers[name].const_value = None
    take_weights_apart(model)
    assert "Split" in [node.op_type for node in model.graph]
