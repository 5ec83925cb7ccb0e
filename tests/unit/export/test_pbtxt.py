import re
from collections.abc import Callable
from typing import Any

import onnx
import pytest

from drut.checkpoint.bundle import Bundle
from drut_export.pbtxt import MAX_QUEUED, MAX_ROWS, TRITON_TYPES, render_pbtxt
from exports import CHECKPOINTS

TOKEN = re.compile(r'#.*|"[^"]*"|[A-Za-z_]\w*|-?\d+|[{}\[\]:,]')
ELEMENT_TYPES = {onnx.TensorProto.INT64: "int64", onnx.TensorProto.BOOL: "bool", 1: "float32"}


def parse(text: str) -> dict[str, Any]:
    """Read the protobuf text format, as much of it as a config uses."""
    tokens = [token for token in TOKEN.findall(text) if not token.startswith("#")]
    message = read_message(tokens)
    assert not tokens
    return message


def read_message(tokens: list[str]) -> dict[str, Any]:
    message: dict[str, Any] = {}
    while tokens and tokens[0] != "}":
        key = tokens.pop(0)
        if tokens[0] == ":":
            tokens.pop(0)
        assert key not in message
        message[key] = read_value(tokens)
        if tokens and tokens[0] == ",":
            tokens.pop(0)
    return message


def read_value(tokens: list[str]) -> Any:
    token = tokens.pop(0)
    if token == "{":
        message = read_message(tokens)
        assert tokens.pop(0) == "}"
        return message
    if token == "[":
        items = []
        while tokens[0] != "]":
            items.append(read_value(tokens))
            if tokens[0] == ",":
                tokens.pop(0)
        tokens.pop(0)
        return items
    return int(token) if token.lstrip("-").isdecimal() else token.strip('"')


def shape_in_triton(value: onnx.ValueInfoProto) -> list[int]:
    axes = value.type.tensor_type.shape.dim
    return [axis.dim_value or -1 for axis in axes][1:]


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_the_config_describes_the_graph(name: str, exported: Callable[[str], Bundle]) -> None:
    bundle = exported(name)
    config = parse((bundle.directory.parent / "config.pbtxt").read_text(encoding="utf-8"))
    graph = onnx.load(bundle.graph).graph
    for part, values in (("input", graph.input), ("output", graph.output)):
        assert [entry["name"] for entry in config[part]] == [value.name for value in values]
        for entry, value in zip(config[part], values, strict=True):
            kind = ELEMENT_TYPES[value.type.tensor_type.elem_type]
            assert entry["data_type"] == TRITON_TYPES[kind]
            seen = entry["reshape"]["shape"] if "reshape" in entry else entry["dims"]
            assert seen == shape_in_triton(value)
            assert entry["dims"], "Triton wants at least one dimension"
    assert config["name"] == name


def test_a_tensor_of_rows_alone_travels_as_a_column() -> None:
    inputs = parse(render_pbtxt("x", parallel=False, actions=2))["input"]
    (qtype,) = [entry for entry in inputs if entry["name"] == "qtype"]
    assert (qtype["dims"], qtype["reshape"]) == ([1], {"shape": []})


def test_the_queue_is_bounded_and_waiting_requests_time_out() -> None:
    config = parse(render_pbtxt("x", parallel=False, actions=2))
    assert config["max_batch_size"] == MAX_ROWS
    policy = config["dynamic_batching"]["default_queue_policy"]
    assert policy["max_queue_size"] == MAX_QUEUED
    assert policy["timeout_action"] == "REJECT"
    assert policy["default_timeout_microseconds"] > 0
    assert "preferred_batch_size" not in config["dynamic_batching"]


def test_one_instance_per_device_because_instances_do_not_share_weights() -> None:
    config = parse(render_pbtxt("x", parallel=False, actions=2))
    assert config["instance_group"] == [{"kind": "KIND_AUTO", "count": 1}]
    assert config["backend"] == "onnxruntime"
