"""Weights in bfloat16, half the size; the engine that loads them decides what it computes in."""

from typing import Final

import ml_dtypes
import onnx_ir as ir

from drut_export.quantise_weights import channel_axis, constant, is_large_matrix

SUFFIX: Final = ".bf16"


def store_weights_as_bf16(model: ir.Model) -> None:
    """Store large matrices as bfloat16, converted by a node that engines fold while loading.

    Tables are converted after the lookup, so that they stay small in memory.
    """
    for value in list(model.graph.initializers.values()):
        uses = list(value.uses())
        if not is_large_matrix(value) or any(channel_axis(*use) is None for use in uses):
            continue
        assert value.const_value is not None
        rounded = value.const_value.numpy().astype(ml_dtypes.bfloat16)
        stored = constant(model.graph, f"{value.name}{SUFFIX}", rounded)
        if all(node.op_type == "Gather" for node, _ in uses):
            for node, _ in uses:
                _convert_rows(model.graph, node, stored)
            continue
        cast = ir.node("Cast", [stored], {"to": ir.DataType.FLOAT})
        model.graph.insert_before(uses[0][0], cast)
        for node, index in uses:
            node.replace_input_with(index, cast.outputs[0])


def _convert_rows(graph: ir.Graph, lookup: ir.Node, stored: ir.Value) -> None:
    rows, users = lookup.outputs[0], list(lookup.outputs[0].uses())
    lookup.replace_input_with(0, stored)
    cast = ir.node("Cast", [rows], {"to": ir.DataType.FLOAT})
    graph.insert_after(lookup, cast)
    for user, index in users:
        user.replace_input_with(index, cast.outputs[0])
