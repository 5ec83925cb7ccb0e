"""The encoder and the head in float16; everything that float16 would harm stays in float32.

Made by hand since the converters of ONNX Runtime and onnxconverter-common need the whole model in
one protobuf and choose by kind of operator: they turn rotary tables into float16 as well, in which
positions beyond 2048 do not exist, and put conversions around every operator they leave alone.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import onnx_ir as ir

from drut.errors import ExportError
from drut_export.quantise_weights import constant, float_products, is_float
from drut_export.trial_probe import Probe

SUFFIX: Final = ".fp16"
LARGEST: Final = 65504.0
HEADROOM: Final = 16.0
"""Other texts may have values that many times as large as those that were measured."""

NO_FLOATS: Final = frozenset({"Shape", "Cast", "IsNaN", "IsInf"})
"""Operators that read floats and give something else."""

LAST_SCORE: Final = "scorer."
FLOATS: Final = {
    "Add": (0, 1),
    "Sub": (0, 1),
    "Mul": (0, 1),
    "Div": (0, 1),
    "MatMul": (0, 1),
    "Gemm": (0, 1, 2),
    "LayerNormalization": (0, 1, 2),
    "Attention": (0, 1, 2),
    "Concat": None,
    "Where": (1, 2),
}
"""Which inputs of an operator are floats: None all of them, and the first one of any other."""


def compute_in_fp16(model: ir.Model, probe: Probe) -> tuple[str, ...]:
    """Compute in float16 from the embeddings to the state that is scored.

    Angles of positions, the last product of the scorer, masking, the action's features and every
    step whose values come near the end of float16's range stay in float32; so do the outputs.

    Args:
        model: the float32 graph, changed in place.
        probe: of the same graph.

    Returns:
        Names of the weights whose products compute in float32.

    Raises:
        ExportError: a weight does not fit into float16.
    """
    stream = _stream(model.graph)
    largest = probe.maxima([str(node.outputs[0].name) for node in stream])
    limit = LARGEST / HEADROOM
    kept = [node for node in stream if largest[str(node.outputs[0].name)] <= limit]
    half = _Half(model.graph, set(kept))
    for node in kept:
        half.convert(node)
    half.finish()
    return tuple(float_products(model))


class _Half:
    """Moves nodes of a graph to float16 and puts a conversion where they meet others."""

    def __init__(self, graph: ir.Graph, nodes: set[ir.Node]) -> None:
        self._graph = graph
        self._nodes = nodes
        self._narrow: dict[ir.Value, ir.Value] = {}

    def convert(self, node: ir.Node) -> None:
        for index in _float_inputs(node):
            value = node.inputs[index]
            if value is not None and value.producer() not in self._nodes:
                node.replace_input_with(index, self._half_of(value))

    def finish(self) -> None:
        """Give float32 back to nodes outside."""
        for node in self._nodes:
            for value in node.outputs:
                outside = [(n, i) for n, i in value.uses() if n not in self._nodes]
                if not outside:
                    continue
                wide = ir.node("Cast", [value], {"to": ir.DataType.FLOAT})
                self._graph.insert_after(node, wide)
                for user, index in outside:
                    user.replace_input_with(index, wide.outputs[0])

    def _half_of(self, value: ir.Value) -> ir.Value:
        if value not in self._narrow:
            self._narrow[value] = self._made(value)
        return self._narrow[value]

    def _made(self, value: ir.Value) -> ir.Value:
        tensor = value.const_value
        if tensor is not None:
            array = tensor.numpy()
            if array.size and not np.abs(array).max() <= LARGEST:
                raise ExportError(
                    f"{value.name} has values beyond float16's largest, {LARGEST:.0f}; export "
                    "with precision fp32 or bf16"
                )
            return constant(self._graph, f"{value.name}{SUFFIX}", array.astype(np.float16))
        cast = ir.node("Cast", [value], {"to": ir.DataType.FLOAT16})
        producer = value.producer()
        assert producer is not None  # a graph input is no float
        self._graph.insert_after(producer, cast)
        return cast.outputs[0]


def _float_inputs(node: ir.Node) -> Iterator[int]:
    indices = FLOATS.get(node.op_type, (0,))
    yield from (
        range(len(node.inputs))
        if indices is None
        else (index for index in indices if index < len(node.inputs))
    )


def _stream(graph: ir.Graph) -> list[ir.Node]:
    """Nodes between the looked-up embeddings and the last scored state, in the graph's order."""
    reached: set[ir.Node] = set()
    for node in graph:
        first = node.inputs[0] if node.inputs else None
        table = node.op_type == "Gather" and first is not None and is_float(first)
        floats = (node.inputs[index] for index in _float_inputs(node))
        carried = any(value is not None and value.producer() in reached for value in floats)
        if (table or carried) and node.op_type not in NO_FLOATS:
            reached.add(node)
    needed = _before(_last_product(graph))
    return [node for node in graph if node in reached and node in needed]


def _last_product(graph: ir.Graph) -> ir.Node:
    found = [
        node
        for node in graph
        if node.op_type == "MatMul"
        and node.inputs[1] is not None
        and str(node.inputs[1].name).startswith(LAST_SCORE)
    ]
    if not found:
        raise ExportError("the graph has no scorer to stop at; export it again with this drut")
    return found[-1]


def _before(node: ir.Node) -> set[ir.Node]:
    """Every node that this one needs."""
    needed: set[ir.Node] = set()
    stack = [value.producer() for value in node.inputs if value is not None]
    while stack:
        found = stack.pop()
        if found is None or found in needed:
            continue
        needed.add(found)
        stack.extend(value.producer() for value in found.inputs if value is not None)
    return needed
