"""Small ONNX graphs with the contract of a decision graph, or a broken one."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from drut.tensors import MASKED_LOGIT, OUTPUTS, TensorSpec, graph_inputs

OPSET = 18
IR_VERSION = 10

_TYPES = {
    "int64": TensorProto.INT64,
    "int32": TensorProto.INT32,
    "bool": TensorProto.BOOL,
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
}


def decision_model(
    *,
    parallel: bool = False,
    inputs: Sequence[TensorSpec] | None = None,
    outputs: Sequence[TensorSpec] = OUTPUTS,
    actions: int | str = 2,
) -> onnx.ModelProto:
    """A graph that declares `inputs` and `outputs` and computes something simple.

    A logit is (sum of the real ids + question type + marker position) mod 7, so that every input
    matters and padding does not; act logits are the number of real tokens. A graph whose inputs
    are not those of the contract returns constants. With a text as `actions` the act head is as
    wide as a row, so its width is not known from the file.
    """
    declared = graph_inputs(parallel=parallel) if inputs is None else inputs
    sound = {spec.name: spec for spec in declared}.items() >= {
        spec.name: spec for spec in graph_inputs(parallel=False)
    }.items()
    nodes = _computing(actions) if sound else _constants()
    initialisers = [
        numpy_helper.from_array(np.float32(MASKED_LOGIT), "masked"),
        numpy_helper.from_array(np.asarray([1], np.int64), "last_axis"),
        numpy_helper.from_array(np.int64(7), "seven"),
        numpy_helper.from_array(np.zeros((1, 2), np.float32), "one_row"),
    ]
    nodes += [
        _cast("logits_f32", "logits", outputs, "logits"),
        _cast("act_f32", "act_logits", outputs, "act_logits"),
    ]
    graph = helper.make_graph(
        nodes,
        "decision",
        [_value(spec) for spec in declared],
        [_value(spec, actions) for spec in outputs],
        initialisers,
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )


def write_graph(path: Path, **options: object) -> Path:
    """Write `decision_model(**options)` to a file."""
    onnx.save(decision_model(**options), path)  # type: ignore[arg-type]
    return path


def _computing(actions: int | str) -> list[onnx.NodeProto]:
    width = "one_row" if isinstance(actions, int) else "mask_f32"
    return [
        helper.make_node("Mul", ["input_ids", "attention_mask"], ["real_ids"]),
        helper.make_node("ReduceSum", ["real_ids", "last_axis"], ["of_row"], keepdims=1),
        helper.make_node("Unsqueeze", ["qtype", "last_axis"], ["kind"]),
        helper.make_node("Add", ["of_row", "kind"], ["row_number"]),
        helper.make_node("Add", ["row_number", "marker_pos"], ["sum"]),
        helper.make_node("Mod", ["sum", "seven"], ["remainder"]),
        helper.make_node("Cast", ["remainder"], ["scores"], to=TensorProto.FLOAT),
        helper.make_node("Where", ["marker_mask", "scores", "masked"], ["logits_f32"]),
        helper.make_node("ReduceSum", ["attention_mask", "last_axis"], ["length"], keepdims=1),
        helper.make_node("Cast", ["length"], ["length_f32"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["attention_mask"], ["mask_f32"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["length_f32", width], ["act_f32"]),
    ]


def _constants() -> list[onnx.NodeProto]:
    return [
        helper.make_node("Identity", ["one_row"], ["logits_f32"]),
        helper.make_node("Identity", ["one_row"], ["act_f32"]),
    ]


def _cast(source: str, target: str, outputs: Sequence[TensorSpec], name: str) -> onnx.NodeProto:
    kind = next((_TYPES[spec.dtype] for spec in outputs if spec.name == name), TensorProto.FLOAT)
    return helper.make_node("Cast", [source], [target], to=kind)


def _value(spec: TensorSpec, actions: int | str | None = None) -> onnx.ValueInfoProto:
    axes = [actions if axis == "actions" and actions else axis for axis in spec.axes]
    return helper.make_tensor_value_info(spec.name, _TYPES[spec.dtype], axes)
