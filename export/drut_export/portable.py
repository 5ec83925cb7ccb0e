"""What an older ONNX Runtime needs to find in a graph that the present one does not."""

import numpy as np
import onnx_ir as ir


def write_out_biases(model: ir.Model) -> None:
    """Give every `LayerNormalization` without a bias one of zeros, which changes no answer.

    Up to ONNX Runtime 1.18 the fusion of attention reads the bias of every one, and the process
    ends where there is none.
    """
    made: dict[int, ir.Value] = {}
    for node in list(model.graph):
        if node.op_type != "LayerNormalization" or (len(node.inputs) > 2 and node.inputs[2]):
            continue
        scale = node.inputs[1]
        assert scale is not None
        assert scale.const_value is not None
        width = scale.const_value.size
        if width not in made:
            made[width] = _zeros(model.graph, width)
        node.resize_inputs(3)
        node.replace_input_with(2, made[width])


def _zeros(graph: ir.Graph, width: int) -> ir.Value:
    tensor = ir.Tensor(np.zeros(width, np.float32), name=f"zeros_{width}")
    value = ir.Value(
        name=tensor.name,
        shape=ir.Shape(tensor.shape),
        type=ir.TensorType(tensor.dtype),
        const_value=tensor,
    )
    graph.register_initializer(value)
    return value
