from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from drut.checkpoint.bundle import Bundle
from drut.errors import InvalidRequestError
from drut.tensors import graph_inputs
from drut.triton_model import MAX_QUEUED
from drut_export.pbtxt import (
    CPU_THREADS,
    TARGETS,
    TRITON_TYPES,
    QueueBounds,
    ServedGraph,
    render_decision_pbtxt,
    render_pbtxt,
)
from drut_export.triton_check import check_config, check_repository
from exports import CHECKPOINTS
from graphs import write_graph

MANIFEST = {
    "version": 3,
    "option_layout": "sequential",
    "actions": 2,
    "max_len": 512,
    "head_max_len": 192,
    "precision": "fp32",
    "tokenizer_sha256": "ab" * 32,
    "tools": {"drut": "0.1.0"},
}
ELEMENT_TYPES = {onnx.TensorProto.INT64: "int64", onnx.TensorProto.BOOL: "bool", 1: "float32"}
TYPE_NAMES = model_config_pb2.DataType.Name


def parse(text: str) -> Any:
    return text_format.Parse(text, model_config_pb2.ModelConfig())


def rendered(**options: Any) -> Any:
    changes = options.pop("manifest", {})
    return parse(render_pbtxt("x", {**MANIFEST, **changes}, **options))


def shape_in_triton(value: onnx.ValueInfoProto) -> list[int]:
    axes = value.type.tensor_type.shape.dim
    return [axis.dim_value or -1 for axis in axes][1:]


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_the_config_describes_the_graph(name: str, exported: Callable[[str], Bundle]) -> None:
    bundle = exported(name)
    config = parse((bundle.directory.parent / "config.pbtxt").read_text(encoding="utf-8"))
    graph = onnx.load(bundle.graph).graph
    for entries, values in ((config.input, graph.input), (config.output, graph.output)):
        assert [entry.name for entry in entries] == [value.name for value in values]
        for entry, value in zip(entries, values, strict=True):
            kind = ELEMENT_TYPES[value.type.tensor_type.elem_type]
            assert TYPE_NAMES(entry.data_type) == TRITON_TYPES[kind]
            seen = entry.reshape.shape if entry.HasField("reshape") else entry.dims
            assert list(seen) == shape_in_triton(value)
            assert entry.dims, "Triton wants at least one dimension"
    assert config.name == name
    assert list(check_config(config, bundle)) == []
    assert check_repository(bundle.directory.parents[1]) == []


def test_a_tensor_of_rows_alone_travels_as_a_column() -> None:
    (qtype,) = [entry for entry in rendered().input if entry.name == "qtype"]
    assert list(qtype.dims) == [1]
    assert qtype.HasField("reshape")
    assert list(qtype.reshape.shape) == []


@pytest.mark.parametrize("target", TARGETS)
def test_the_servers_queue_has_nothing_that_stalls_requests(target: Any) -> None:
    """Any bound, and any priority, lets the batcher of server 2.51 oversleep."""
    for text in (
        render_pbtxt("x", MANIFEST, target=target),
        render_decision_pbtxt("x_decision", "x", MANIFEST, target=target),
    ):
        config = parse(text)
        assert config.HasField("dynamic_batching")
        assert config.dynamic_batching == model_config_pb2.ModelDynamicBatching()


def test_bounds_are_written_for_those_who_ask_and_callers_may_shorten_their_wait() -> None:
    batching = rendered(bounds=QueueBounds(9, 2.5)).dynamic_batching
    policy = batching.default_queue_policy
    assert policy.max_queue_size == 9
    assert policy.timeout_action == model_config_pb2.ModelQueuePolicy.REJECT
    # Triton ignores a caller's timeout that is not below this one.
    assert policy.allow_timeout_override
    assert policy.default_timeout_microseconds == 2_500_000
    # Delay and timeouts together lose throughput in servers before mid-2026.
    assert batching.max_queue_delay_microseconds == 0
    assert list(batching.preferred_batch_size) == []


@pytest.mark.parametrize(
    ("bounds", "size", "microseconds"),
    [(QueueBounds(requests=3), 3, 0), (QueueBounds(seconds=1e-9), 0, 1)],
)
def test_one_bound_does_not_bring_the_other(
    bounds: QueueBounds, size: int, microseconds: int
) -> None:
    policy = rendered(bounds=bounds).dynamic_batching.default_queue_policy
    assert (policy.max_queue_size, policy.default_timeout_microseconds) == (size, microseconds)
    assert policy.allow_timeout_override is bool(microseconds)


@pytest.mark.parametrize(
    ("target", "kind"), [("cpu", "KIND_CPU"), ("cuda", "KIND_GPU"), ("tensorrt", "KIND_GPU")]
)
def test_one_instance_on_the_target_because_instances_do_not_share_weights(
    target: Any, kind: str
) -> None:
    (group,) = rendered(target=target).instance_group
    assert (model_config_pb2.ModelInstanceGroup.Kind.Name(group.kind), group.count) == (kind, 1)


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="cpu, cuda, tensorrt"):
        rendered(target="tpu")


@pytest.mark.parametrize(("invariant", "rows"), [(True, 64), (None, 64), (False, 1)])
def test_rows_that_change_with_their_neighbours_run_alone(invariant: Any, rows: int) -> None:
    config = rendered(manifest={"batch_invariant": invariant})
    assert config.max_batch_size == rows
    assert max(sample.batch_size for sample in config.model_warmup) <= rows


def test_threads_are_few_unless_they_are_named() -> None:
    def threads(**options: Any) -> str:
        return str(rendered(**options).parameters["intra_op_thread_count"].string_value)

    assert threads() == str(CPU_THREADS)
    assert threads(threads=8) == "8"
    assert threads(target="cuda") == "1"


def test_clients_can_compare_tokenizer_and_version() -> None:
    for text in (render_pbtxt("x", MANIFEST), render_decision_pbtxt("y", "x", MANIFEST)):
        parameters = parse(text).parameters
        assert parameters["tokenizer_sha256"].string_value == "ab" * 32
        assert parameters["drut_version"].string_value == "0.1.0"


def test_the_highest_version_is_served_unless_one_is_pinned() -> None:
    assert rendered().version_policy.latest.num_versions == 1
    assert list(rendered(pinned=True).version_policy.specific.versions) == [3]


@pytest.mark.parametrize("parallel", [False, True])
def test_the_graph_can_run_every_warm_up(parallel: bool, tmp_path: Path) -> None:
    """A warm-up that fails can end the whole server."""
    layout = "parallel" if parallel else "sequential"
    config = rendered(manifest={"option_layout": layout})
    graph = write_graph(tmp_path / "model.onnx", parallel=parallel)
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    assert [sample.batch_size for sample in config.model_warmup] == [1, 16]
    for sample in config.model_warmup:
        feed = {}
        for spec in graph_inputs(parallel=parallel):
            entry = sample.inputs[spec.name]
            assert TYPE_NAMES(entry.data_type) == TRITON_TYPES[spec.dtype]
            assert entry.WhichOneof("input_data_type") == "zero_data"
            shape = (sample.batch_size, *entry.dims)
            zeros = np.zeros(shape, spec.dtype)
            feed[spec.name] = zeros if len(spec.axes) > 1 else zeros[:, 0]
        options, actions = session.run(None, feed)
        assert np.isfinite(options).all()
        assert np.isfinite(actions).all()


@pytest.mark.parametrize("max_len", [8, 256, 512, 8192])
def test_the_largest_warm_up_is_as_long_as_a_row_may_be(max_len: int) -> None:
    graph = ServedGraph("x", {**MANIFEST, "max_len": max_len})
    small, large = graph.warm_shapes()
    assert large[1] == max_len
    assert large[0] * large[1] <= 8192
    assert small[0] == 1
    assert small[1] <= max_len


def options_of(config: Any) -> tuple[str, dict[str, str]]:
    (entry,) = config.optimization.execution_accelerators.gpu_execution_accelerator
    return entry.name, dict(entry.parameters)


def test_cuda_computes_in_the_graphs_own_precision() -> None:
    assert options_of(rendered(target="cuda")) == ("cuda", {"use_tf32": "0"})
    # With the accelerator it would be overwritten by the backend's own default.
    parameters = rendered(target="cuda").parameters
    assert parameters["arena_extend_strategy"].string_value == "1"
    assert "arena_extend_strategy" not in rendered().parameters


def test_tensorrt_gets_one_profile_over_all_sizes_and_a_cache_of_its_own() -> None:
    name, given = options_of(rendered(target="tensorrt"))
    assert name == "tensorrt"
    assert given["precision_mode"] == "FP32"
    assert given["trt_engine_cache_path"].endswith("-x-3")
    profiles = [given[f"trt_profile_{kind}_shapes"] for kind in ("min", "opt", "max")]
    sizes = [
        {name: [int(n) for n in shape.split("x")] for name, _, shape in split(profile)}
        for profile in profiles
    ]
    names = [spec.name for spec in graph_inputs(parallel=False)]
    assert [list(each) for each in sizes] == [names] * 3
    assert sizes[2]["input_ids"] == [64, 512]
    assert sizes[2]["qtype"] == [64]
    for tensor in names:
        low, middle, high = (each[tensor] for each in sizes)
        assert all(a <= b <= c for a, b, c in zip(low, middle, high, strict=True))
    for shape in ServedGraph("x", MANIFEST).warm_shapes():
        assert all(a <= b for a, b in zip(shape[:2], sizes[2]["input_ids"], strict=True))
        assert shape[2] <= sizes[2]["marker_pos"][1]


def split(profile: str) -> list[tuple[str, str, str]]:
    return [part.partition(":") for part in profile.split(",")]


@pytest.mark.parametrize(
    ("precision", "mode"),
    [("fp32", "FP32"), ("int8-weights", "FP32"), ("fp16", "FP16"), ("bf16", "BF16")],
)
def test_tensorrt_is_no_less_precise_than_the_graph(precision: str, mode: str) -> None:
    config = rendered(target="tensorrt", manifest={"precision": precision})
    assert options_of(config)[1]["precision_mode"] == mode


def test_the_decision_model_takes_texts_and_knows_its_graph() -> None:
    config = parse(render_decision_pbtxt("x_decision", "x", MANIFEST))
    assert config.backend == "python"
    assert [(each.name, each.optional) for each in config.input] == [
        ("STATE", False),
        ("QUESTIONS", False),
        ("OPTIONS", True),
    ]
    assert [each.name for each in config.output] == ["ANSWERS"]
    assert config.parameters["graph"].string_value == "x"
    assert config.parameters["bundle_version"].string_value == "3"
    assert config.parameters["max_queue"].string_value == str(MAX_QUEUED)
