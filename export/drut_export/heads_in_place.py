"""Attention that reads its heads side by side, as matrix products leave them.

Tracing moves heads in front of the tokens, and back behind attention. ONNX Runtime's CPU kernel
reads them where they are, with the same answer to the last bit; other engines were not asked, so
this is for graphs that only ONNX Runtime runs.
"""

from dataclasses import dataclass
from typing import Final

import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

SWAPPED: Final = (0, 2, 1, 3)
"""Tokens and heads change places."""

JOINED_AXES: Final = 3
"""Rows, tokens, and all heads side by side."""


@dataclass(frozen=True, slots=True)
class _Heads:
    """A value that is divided into heads: where it comes from, and how many there are."""

    joined: ir.Value  # [rows, tokens, heads * size]
    count: int


def take_heads_in_place(model: ir.Model) -> int:
    """Remove the transposes around every `Attention` that has them on all sides.

    Behind rotary embeddings they stay: those are computed head by head. Opsets without the
    operator have nothing to change.

    Args:
        model: changed in place; all of its operators have to be ONNX's own.

    Returns:
        How many were changed.
    """
    found = [node for node in model.graph if node.op_type == "Attention" and not node.domain]
    if not found:
        return 0
    ShapeInferencePass()(model)
    return sum(_take(model.graph, node) for node in found)


def _take(graph: ir.Graph, node: ir.Node) -> bool:
    query, key, value = (_heads(each) for each in node.inputs[:3])
    joined = _joined(node)
    if query is None or key is None or value is None or joined is None or key.count != value.count:
        return False
    sources = [query.joined, key.joined, value.joined]
    counts = {"q_num_heads": query.count, "kv_num_heads": key.count}
    made = ir.node("Attention", [*sources, *node.inputs[3:]], {**node.attributes, **counts})
    graph.insert_before(node, [made])
    for user, index in list(joined.uses()):
        user.replace_input_with(index, made.outputs[0])
    return True


def _heads(value: ir.Value | None) -> _Heads | None:
    """Where heads come from that were put side by side before; None if they were not."""
    swap = None if value is None else value.producer()
    if swap is None or not _swaps(swap) or swap.inputs[0] is None:
        return None
    divide = swap.inputs[0].producer()
    if divide is None or divide.op_type != "Reshape" or divide.inputs[0] is None:
        return None
    width, size = _width(divide.inputs[0], JOINED_AXES), _width(value, len(SWAPPED))
    if width is None or size is None:
        return None
    return _Heads(divide.inputs[0], width // size)


def _joined(node: ir.Node) -> ir.Value | None:
    """What puts all heads side by side again, if nothing else is done with the output."""
    for operator in (_swaps, _joins):
        uses = list(node.outputs[0].uses())
        if len(node.outputs) != 1 or len(uses) != 1 or not operator(uses[0][0]):
            return None
        node = uses[0][0]
    return node.outputs[0]


def _swaps(node: ir.Node) -> bool:
    axes = tuple(node.attributes.get_ints("perm", ()))
    return node.op_type == "Transpose" and axes == SWAPPED


def _joins(node: ir.Node) -> bool:
    shape = node.outputs[0].shape
    return node.op_type == "Reshape" and shape is not None and len(shape) == JOINED_AXES


def _width(value: ir.Value | None, axes: int) -> int | None:
    """Size of the last axis, where it is known and there are that many axes."""
    shape = None if value is None else value.shape
    if shape is None or len(shape) != axes:
        return None
    last = shape[-1]
    return last if isinstance(last, int) else None
