"""Matrix products in int8, with a scale for every token: see docs/decisions/0008."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from drut.errors import ExportError
from drut_export.heads_in_place import take_heads_in_place
from drut_export.quantise_weights import (
    COLUMNS,
    LEVELS,
    constant,
    float_products,
    is_large_matrix,
    large_tables,
    quantise,
    store_tables_as_int8,
)
from drut_export.sensitivity import choose_left_out
from drut_export.trial_probe import Probe

CONTRIB: Final = "com.microsoft"
LEAST_OUTPUTS: Final = 8
"""Narrower products are cheaper in float32 than their activations are to quantise."""

LEAST_SCALE: Final = 1e-10
"""Keeps a token of nothing but zeros from being divided by zero."""

CENTRE: Final = 128
BLOCKS_SINCE: Final = 21
"""Opset from which an axis may be divided into blocks with a scale each: here one a token."""

LEAST_VALUES: Final[Mapping[str, float]] = {"Gelu": -0.17003, "Relu": 0.0}
"""Activation functions whose least value is known: their levels all lie above it."""

FLOOR: Final = 1e-5

Maxima = Mapping[str, NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Linear:
    """One matrix product with a constant weight [inputs, outputs]."""

    node: ir.Node
    source: ir.Value
    weight: ir.Value

    @property
    def name(self) -> str:
        """The weight's name."""
        return str(self.weight.name)

    @property
    def array(self) -> NDArray[np.float32]:
        """The weight."""
        assert self.weight.const_value is not None
        return self.weight.const_value.numpy()


@dataclass(slots=True)
class _Levels:
    """One input as levels, with what makes products of them float again."""

    levels: ir.Value  # uint8
    scales: ir.Value  # float32, one for each token
    zero: ir.Value | None  # the level that stands for zero
    stretch: NDArray[np.float64]  # of each channel; weights are multiplied by it
    shift: float = 0.0  # added to the input before it was quantised
    nodes: list[ir.Node] = field(default_factory=list)


def compute_in_int8(model: ir.Model, probe: Probe) -> tuple[str, ...]:
    """Compute large matrix products in int8 where the answers stand it; tables become int8 too.

    Weights have one scale per output channel, activations one per token, so that neighbours and
    padding change nothing.

    Args:
        model: the float32 graph, changed in place.
        probe: of the same graph.

    Returns:
        Names of the weights that still compute in float32, and of tables that stay so.

    Raises:
        ExportError: the answers stand none of it.
    """
    maxima = probe.channel_maxima(sorted(_normalised(model)))
    products = {each.name: _size(each.weight) for each in linears(model)}
    tables = {str(table.name): _size(table) for table in large_tables(model)}

    def rewrite(graph: ir.Model, left_out: Collection[str]) -> ir.Model:
        quantise_products(graph, maxima, left_out)
        store_tables_as_int8(graph, left_out)
        return graph

    left_out = choose_left_out(
        {**products, **tables}, lambda names: probe.distance(rewrite(probe.model(), names))
    )
    if products.keys() <= left_out:
        raise ExportError(
            "no matrix product of this checkpoint can be computed in int8 without moving its "
            "answers too far; export with precision int8-weights or fp32"
        )
    take_heads_in_place(model)
    rewrite(model, left_out)
    return (*float_products(model), *(name for name in tables if name in left_out))


def _size(value: ir.Value) -> int:
    return 0 if value.const_value is None else value.const_value.size


def linears(model: ir.Model) -> Iterator[Linear]:
    """Matrix products worth computing in int8, in the graph's order."""
    for node in model.graph:
        source, weight = (*node.inputs, None, None)[:2]
        if node.op_type != "MatMul" or source is None or weight is None:
            continue
        if is_large_matrix(weight) and weight.shape is not None:
            outputs = weight.shape[1]
            if isinstance(outputs, int) and outputs >= LEAST_OUTPUTS:
                yield Linear(node, source, weight)


def quantise_products(model: ir.Model, maxima: Maxima, left_out: Collection[str] = ()) -> None:
    """Rewrite all large matrix products but those left out.

    Args:
        model: changed in place.
        maxima: of each channel of the inputs to stretch, by the value's name.
        left_out: names of weights that stay as they are.
    """
    by_source: dict[ir.Value, list[Linear]] = defaultdict(list)
    for each in linears(model):
        if each.name not in left_out:
            by_source[each.source].append(each)
    for source, users in by_source.items():
        levels = _quantise_input(model.graph, source, users, maxima.get(str(source.name)))
        model.graph.insert_before(users[0].node, levels.nodes)
        for each in users:
            _replace(model.graph, each, levels)
    if by_source:
        model.opset_imports[CONTRIB] = 1


def _normalised(model: ir.Model) -> set[str]:
    """Inputs whose channels differ in size by design, since a norm has weights."""
    return {
        str(each.source.name)
        for each in linears(model)
        if (made := each.source.producer()) is not None and made.op_type == "LayerNormalization"
    }


def _quantise_input(
    graph: ir.Graph, source: ir.Value, users: list[Linear], maxima: NDArray[np.float64] | None
) -> _Levels:
    made = source.producer()
    least = LEAST_VALUES.get(made.op_type) if made is not None else None
    channels = len(users[0].array)
    if least is not None:
        return _above(graph, source, channels, -least)
    stretch = np.ones(channels) if maxima is None else _stretch(maxima, users)
    nodes: list[ir.Node] = []
    value = source
    if maxima is not None:
        value = _stretched(graph, source, users, stretch, nodes)
    size = ir.node("Abs", [value])
    nodes.append(size)
    levels = _levels(graph, value, size.outputs[0], (channels, LEVELS, CENTRE), nodes)
    levels.stretch = stretch
    return levels


def _above(graph: ir.Graph, source: ir.Value, channels: int, shift: float) -> _Levels:
    """Levels 0..255 from the least value up."""
    nodes: list[ir.Node] = []
    value = source
    if shift:
        added = ir.node("Add", [source, _scalar(graph, shift)])
        nodes.append(added)
        value = added.outputs[0]
    levels = _levels(graph, value, value, (channels, 2 * LEVELS + 1, 0), nodes)
    levels.shift = shift
    return levels


def _stretch(maxima: NDArray[np.float64], users: list[Linear]) -> NDArray[np.float64]:
    """Share the range of each channel between activations and weights, with a mean of one."""
    weights = np.max([np.abs(each.array).max(axis=1) for each in users], axis=0)
    stretch = np.sqrt(maxima.clip(min=FLOOR) / weights.astype(np.float64).clip(min=FLOOR))
    return np.asarray(stretch / np.exp(np.log(stretch).mean()))


def _stretched(
    graph: ir.Graph,
    source: ir.Value,
    users: list[Linear],
    stretch: NDArray[np.float64],
    nodes: list[ir.Node],
) -> ir.Value:
    """The input divided by the stretch: by the norm itself where nobody else reads it."""
    norm = source.producer()
    factors = (1 / stretch).astype(np.float32)
    name = f"{users[0].name}.stretch"
    if norm is None or len(source.uses()) != len(users) or not _constants(norm):
        scaled = ir.node("Mul", [source, constant(graph, name, factors)])
        nodes.append(scaled)
        return scaled.outputs[0]
    for index, parameter in enumerate(_constants(norm), start=1):
        assert parameter.const_value is not None
        array = (parameter.const_value.numpy() * factors).astype(np.float32)
        norm.replace_input_with(index, constant(graph, f"{name}.norm{index}", array))
    return source


def _constants(norm: ir.Node) -> list[ir.Value]:
    """Weight and bias of a norm; nothing where one of them is computed."""
    values = [value for value in norm.inputs[1:] if value is not None]
    return values if all(value.const_value is not None for value in values) else []


def _levels(
    graph: ir.Graph,
    value: ir.Value,
    size: ir.Value,
    form: tuple[int, int, int],
    nodes: list[ir.Node],
) -> _Levels:
    """Append what maps each token's values to uint8 levels with a scale of its own."""
    channels, steps, centre = form
    last = constant(graph, "last_axis", np.asarray([-1], np.int64))
    largest = ir.node("ReduceMax", [size, last], {"keepdims": 1})
    step = ir.node("Mul", [largest.outputs[0], _scalar(graph, 1 / steps)])
    scales = ir.node("Max", [step.outputs[0], _scalar(graph, LEAST_SCALE)])
    nodes += [largest, step, scales]
    zero = constant(graph, f"level_{centre}", np.asarray(centre, np.uint8))
    append = _blocks if graph.opset_imports.get("", 0) >= BLOCKS_SINCE else _rows
    levels = append(graph, value, (scales.outputs[0], zero), channels, nodes)
    return _Levels(levels, scales.outputs[0], zero, np.ones(channels), nodes=nodes)


def _blocks(
    graph: ir.Graph,
    value: ir.Value,
    grid: tuple[ir.Value, ir.Value],
    channels: int,
    nodes: list[ir.Node],
) -> ir.Value:
    """Levels of a value whose last axis is one block."""
    scales, zero = grid
    zeros = _spread(zero, scales, nodes)
    block = {"axis": -1, "block_size": channels}
    levels = ir.node("QuantizeLinear", [value, scales, zeros], block)
    nodes.append(levels)
    return levels.outputs[0]


def _rows(
    graph: ir.Graph,
    value: ir.Value,
    grid: tuple[ir.Value, ir.Value],
    channels: int,
    nodes: list[ir.Node],
) -> ir.Value:
    """The same without blocks: tokens become rows of a matrix, one scale a row."""
    scales, zero = grid
    last = constant(graph, "last_axis", np.asarray([-1], np.int64))
    rows = constant(graph, f"rows_of_{channels}", np.asarray([-1, channels], np.int64))
    matrix = ir.node("Reshape", [value, rows])
    flat = ir.node("Reshape", [scales, last])
    nodes += [matrix, flat]
    zeros = _spread(zero, flat.outputs[0], nodes)
    levels = ir.node("QuantizeLinear", [matrix.outputs[0], flat.outputs[0], zeros], {"axis": 0})
    shape = ir.node("Shape", [value])
    shaped = ir.node("Reshape", [levels.outputs[0], shape.outputs[0]])
    nodes += [levels, shape, shaped]
    return shaped.outputs[0]


def _spread(zero: ir.Value, scales: ir.Value, nodes: list[ir.Node]) -> ir.Value:
    """The zero level in the shape of the scales."""
    shape = ir.node("Shape", [scales])
    zeros = ir.node("Expand", [zero, shape.outputs[0]])
    nodes += [shape, zeros]
    return zeros.outputs[0]


def _replace(graph: ir.Graph, each: Linear, levels: _Levels) -> None:
    weight = (each.array * levels.stretch[:, None]).astype(np.float32)
    values, scales = quantise(weight, COLUMNS)
    stored = constant(graph, f"{each.name}.int8", values)
    columns = constant(graph, f"{each.name}.scales", scales[0])
    product = ir.node(
        "MatMulIntegerToFloat",
        [levels.levels, stored, _scalar(graph, 1.0), columns, levels.zero],
        domain=CONTRIB,
    )
    scaled = ir.node("Mul", [product.outputs[0], levels.scales])
    nodes = [product, scaled]
    if levels.shift:
        # What the shift added to every product is the same for all tokens.
        added = levels.shift * (values.astype(np.float64) * scales).sum(axis=0)
        if not _taken_from_bias(graph, each, added):
            surplus = constant(graph, f"{each.name}.surplus", added.astype(np.float32))
            nodes.append(ir.node("Sub", [scaled.outputs[0], surplus]))
    graph.insert_before(each.node, nodes)
    for user, index in list(each.node.outputs[0].uses()):
        user.replace_input_with(index, nodes[-1].outputs[0])
    graph.remove(each.node, safe=True)


def _taken_from_bias(graph: ir.Graph, each: Linear, added: NDArray[np.float64]) -> bool:
    """Take a constant out of the bias behind a product; whether there is one."""
    uses = list(each.node.outputs[0].uses())
    if len(uses) != 1 or uses[0][0].op_type != "Add":
        return False
    add, index = uses[0]
    bias = add.inputs[1 - index]
    if bias is None or bias.const_value is None:
        return False
    array = (bias.const_value.numpy().astype(np.float64) - added).astype(np.float32)
    add.replace_input_with(1 - index, constant(graph, f"{each.name}.bias", array))
    return True


def _scalar(graph: ir.Graph, value: float) -> ir.Value:
    return constant(graph, f"scalar_{value!r}".replace(".", "_"), np.asarray(value, np.float32))
