"""Every fault that Triton would find late, or never, is found here."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from drut.errors import MissingDependencyError
from drut_export.pbtxt import QueueBounds
from drut_export.triton_check import check_repository, notes_on_repository
from drut_export.triton_files import write_triton_files
from triton_models import edit_config, serve_bundle


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return serve_bundle(tmp_path / "models")


def faults(model: Path) -> str:
    return "\n".join(check_repository(model.parent))


@pytest.mark.parametrize("target", ["cpu", "cuda", "tensorrt"])
@pytest.mark.parametrize("parallel", [False, True])
def test_what_drut_writes_is_sound(target: str, parallel: bool, tmp_path: Path) -> None:
    serve_bundle(tmp_path, "one", target=target, parallel=parallel)
    serve_bundle(tmp_path, "two", target=target, batch_invariant=False)
    assert check_repository(tmp_path) == []


QUEUE = "dynamic_batching { }"
CHANGES = {
    "another name": ('name: "tiny"', 'name: "other"', "names the model 'other'"),
    "a tensor's name": ('"input_ids" data_type', '"ids" data_type', "the graph ['attention"),
    "a type": (
        '"marker_mask" data_type: TYPE_BOOL dims: [ -1 ]',
        '"marker_mask" data_type: TYPE_INT64 dims: [ -1 ]',
        "'marker_mask' is TYPE_INT64 in the config, TYPE_BOOL in the graph",
    ),
    "a shape": (
        '"marker_pos" data_type: TYPE_INT64 dims: [ -1 ]',
        '"marker_pos" data_type: TYPE_INT64 dims: [ -1, 2 ]',
        "is [-1, 2] in the config, [-1] in the graph",
    ),
    "a fixed output": (
        '"act_logits" data_type: TYPE_FP32 dims: [ 2 ]',
        '"act_logits" data_type: TYPE_FP32 dims: [ -1 ]',
        "output 'act_logits' is [-1] in the config, [2] in the graph",
    ),
    "no reshape": (" reshape { shape: [ ] }", "", "'qtype' is [1] in the config, [] in the graph"),
    "a parameter nobody reads": (
        'key: "intra_op_thread_count"',
        'key: "session.intra_op.allow_spinning"',
        "'session.intra_op.allow_spinning' is read by nobody",
    ),
    "an override without effect": (
        QUEUE,
        "dynamic_batching { default_queue_policy { allow_timeout_override: true } }",
        "has no effect without",
    ),
    "a delay beside several instances": (
        QUEUE,
        "instance_group [ { count: 2 } ] dynamic_batching { max_queue_delay_microseconds: 100 "
        "default_queue_policy { max_queue_size: 9 } }",
        "lose throughput",
    ),
    "another tokenizer": (
        'key: "tokenizer_sha256" value: { string_value: "',
        'key: "tokenizer_sha256" value: { string_value: "00',
        "tokenizer_sha256 is 00",
    ),
    "a version that is not there": (
        "latest { num_versions: 1 }",
        "specific { versions: [7] }",
        "7",
    ),
    "no protobuf": ("max_batch_size: 64", "max_batch: 64", "cannot be read"),
    "warm-up without an input": (
        'key: "qtype" value: { data_type: TYPE_INT64 dims: [ 1 ] zero_data: true } }\n  },',
        'key: "q" value: { data_type: TYPE_INT64 dims: [ 1 ] zero_data: true } }\n  },',
        "does not have exactly the model's inputs",
    ),
    "warm-up larger than a batch": ("batch_size: 1\n", "batch_size: 65\n", "more rows than"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_for_the_worse_is_found(change: str, model: Path) -> None:
    old, new, message = CHANGES[change]
    edit_config(model, old, new)
    assert message in faults(model)


@pytest.mark.parametrize(
    ("target", "old", "new", "message"),
    [
        ("cuda", 'name: "cuda"', 'name: "cudaa"', "accelerator 'cudaa' is unknown"),
        ("cuda", 'key: "use_tf32"', 'key: "arena_extend_strategy"', "has no effect there"),
        ("tensorrt", "trt_engine_cache_path", "trt_cache_path", "no option 'trt_cache_path'"),
    ],
)
def test_a_misspelt_accelerator_is_found(
    target: str, old: str, new: str, message: str, tmp_path: Path
) -> None:
    model = serve_bundle(tmp_path, target=target)
    edit_config(model, old, new)
    assert message in faults(model)


def test_random_warm_up_data_is_found(model: Path) -> None:
    path = model / "config.pbtxt"
    path.write_text(path.read_text().replace("zero_data", "random_data"), encoding="utf-8")
    assert "random_data" in faults(model)


def test_rows_that_are_not_invariant_are_not_to_be_merged(tmp_path: Path) -> None:
    model = serve_bundle(tmp_path, batch_invariant=False)
    edit_config(model, "max_batch_size: 1\n", "max_batch_size: 2\n")
    assert "it has to be 1" in faults(model)


def test_missing_files_are_found(model: Path) -> None:
    decision = model.with_name("tiny_decision")
    (decision / "1" / "model.py").unlink()
    assert "model.py is missing" in faults(model)
    (decision / "config.pbtxt").unlink()
    assert "config.pbtxt is missing" in faults(model)
    shutil.rmtree(decision)
    assert "no decision model" in faults(model)
    (model / "config.pbtxt").unlink()
    assert "config.pbtxt is missing" in faults(model)


def test_a_decision_model_of_another_version_is_found(model: Path) -> None:
    old = (model.with_name("tiny_decision") / "config.pbtxt").read_text(encoding="utf-8")
    serve_bundle(model.parent, "tiny", 2)
    assert faults(model) == ""
    (model.with_name("tiny_decision") / "config.pbtxt").write_text(old, encoding="utf-8")
    assert "asks 'tiny' version '1', served is 'tiny' version 2" in faults(model)


def test_a_decision_model_without_its_graph_is_found(model: Path) -> None:
    serve_bundle(model.parent, "other")
    shutil.rmtree(model.parent / "other")
    assert "other_decision: its graph 'other' is not here" in faults(model)


def test_other_peoples_models_are_none_of_our_business(model: Path) -> None:
    (model.parent / "theirs" / "1").mkdir(parents=True)
    (model.parent / "theirs" / "config.pbtxt").write_text("anything", encoding="utf-8")
    assert faults(model) == ""


def test_a_damaged_bundle_is_a_fault_and_not_the_end(model: Path) -> None:
    serve_bundle(model.parent, "whole")
    manifest = model / "1" / "manifest.json"
    manifest.write_text(json.dumps({"format": 99}), encoding="utf-8")
    assert "tiny: " in faults(model)
    assert "whole: " not in faults(model)


def test_without_the_client_library_the_extra_is_named(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tritonclient.grpc", None)
    with pytest.raises(MissingDependencyError, match=r"drut\[triton\]"):
        check_repository(model.parent)


def test_a_rollback_is_sound(model: Path) -> None:
    serve_bundle(model.parent, "tiny", 2)
    write_triton_files(model, version=1)
    assert faults(model) == ""


@pytest.mark.parametrize("bounds", [QueueBounds(requests=9), QueueBounds(seconds=1.0)])
def test_a_queue_that_stalls_is_noted_and_no_fault(bounds: QueueBounds, model: Path) -> None:
    assert notes_on_repository(model.parent) == []
    write_triton_files(model, bounds=bounds)
    assert faults(model) == ""
    (note,) = notes_on_repository(model.parent)
    assert note.startswith("tiny: its queue")
    assert "--max-queue 0" in note


def test_priorities_and_the_decision_models_queue_are_noted_too(model: Path) -> None:
    edit_config(model, QUEUE, "dynamic_batching { priority_levels: 1 default_priority_level: 1 }")
    decision = model.with_name("tiny_decision")
    edit_config(decision, QUEUE, "dynamic_batching { default_queue_policy { max_queue_size: 4 } }")
    assert [note.partition(":")[0] for note in notes_on_repository(model.parent)] == [
        "tiny",
        "tiny_decision",
    ]


def test_what_cannot_be_read_has_no_notes(model: Path) -> None:
    (model / "config.pbtxt").unlink()
    edit_config(model.with_name("tiny_decision"), QUEUE, "dynamic_batching {")
    assert notes_on_repository(model.parent) == []
