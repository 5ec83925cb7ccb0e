import json
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from drut.checkpoint.config import read_config
from drut.errors import CheckpointFormatError, CheckpointNotFoundError
from drut_export.checkpoint_loading import load_model, save_checkpoint
from drut_export.encoders import without_initial_weights
from drut_export.modeling import DecisionModel
from drut_export.trial_batches import ModelFacts, TrialShape, make_batch
from golden_values import golden_cases
from small_models import BERT, random_model, run
from tiny_checkpoint import TINY, TINY_PARALLEL, copy_of_tiny

State = dict[str, torch.Tensor]
BATCH = make_batch(TrialShape(2, 40, 3), ModelFacts(vocabulary=800))


def load(directory: Path) -> DecisionModel:
    return load_model(directory, read_config(directory))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return copy_of_tiny(tmp_path / "checkpoint")


def rewrite(checkpoint: Path, change: Callable[[State], Any]) -> None:
    path = checkpoint / "model.safetensors"
    state = load_file(path)
    change(state)
    path.unlink()
    save_file(state, path)


def configure(checkpoint: Path, **changes: Any) -> None:
    path = checkpoint / "rl_agent_config.json"
    config = json.loads(path.read_text(encoding="utf-8")) | changes
    path.write_text(json.dumps(config), encoding="utf-8")


def without(prefix: str) -> Callable[[State], None]:
    def change(state: State) -> None:
        for name in [name for name in state if name.startswith(prefix)]:
            del state[name]

    return change


def cast(dtype: torch.dtype) -> Callable[[State], None]:
    return lambda state: state.update({name: tensor.to(dtype) for name, tensor in state.items()})


def filled(name: str, value: float) -> Callable[[State], None]:
    return lambda state: state.update({name: torch.full_like(state[name], value)})


def shaped(name: str, *shape: int) -> Callable[[State], None]:
    return lambda state: state.update({name: torch.zeros(shape)})


WEIGHTS: dict[str, tuple[Callable[[State], Any], str | None]] = {
    "w-no-scorer": (without("scorer."), "lacks scorer.0.weight, "),
    "w-no-head": (without("head."), "lacks head.layers.0"),
    "w-no-norm": (without("encoder.final_norm"), r"lacks encoder\.final_norm\.weight;"),
    "w-shape": (
        shaped("type_emb.weight", 4, 64),
        r"type_emb\.weight \[4, 64\] instead of \[3, 64\]",
    ),
    "w-temp-shape": (shaped("temperature", 4), r"temperature \[4\] instead of \[3\]"),
    "w-temp-value": (filled("temperature", 9.0), None),
    "w-bf16": (cast(torch.bfloat16), None),
}
CONFIGS: dict[str, tuple[dict[str, Any], str | None]] = {
    "cfg-head_layers=0": ({"head_layers": 0}, r"unknown head\.layers\.0.* and 19 more"),
    "cfg-head_layers=1": ({"head_layers": 1}, r"unknown head\.layers\.1"),
    "cfg-head_layers=3": ({"head_layers": 3}, r"lacks head\.layers\.2"),
    "cfg-act_costs={'a': 0, 'b': 1}": ({"act_costs": {"a": 0, "b": 1}}, r"act_head\.2\.weight \[2"),
    "cfg-act_costs=[1]": ({"act_costs": [1]}, None),
}
LOADS = {case["id"]: bool(case.get("loads")) for case in golden_cases("load.json")}


def check(checkpoint: Path, case: str, message: str | None) -> None:
    assert LOADS[case] is (message is None)
    if message is None:
        assert load(checkpoint)
    else:
        with pytest.raises(CheckpointFormatError, match=message):
            load(checkpoint)


@pytest.mark.parametrize("case", WEIGHTS)
def test_weights_load_or_fail_as_in_the_golden_cases(checkpoint: Path, case: str) -> None:
    change, message = WEIGHTS[case]
    rewrite(checkpoint, change)
    check(checkpoint, case, message)


def test_every_golden_weights_case_is_tried() -> None:
    assert {name for name in LOADS if name.startswith("w-")} == set(WEIGHTS)


@pytest.mark.parametrize("case", CONFIGS)
def test_settings_load_or_fail_as_in_the_golden_cases(checkpoint: Path, case: str) -> None:
    changes, message = CONFIGS[case]
    configure(checkpoint, **changes)
    check(checkpoint, case, message)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_model_is_float32_and_in_eval_mode_whatever_is_stored(
    checkpoint: Path, dtype: torch.dtype
) -> None:
    rewrite(checkpoint, cast(dtype))
    model = load(checkpoint)
    assert not model.training
    assert {tensor.dtype for tensor in model.state_dict().values()} == {torch.float32}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_one_number_that_is_none_is_named(checkpoint: Path, value: float) -> None:
    def spoil(state: State) -> None:
        state["encoder.layers.2.mlp.Wi.weight"][17, 5] = value

    rewrite(checkpoint, spoil)
    with pytest.raises(CheckpointFormatError, match=r"infinity in encoder\.layers\.2\.mlp\.Wi"):
        load(checkpoint)


def test_every_kind_of_problem_is_told_at_once(checkpoint: Path) -> None:
    def spoil(state: State) -> None:
        del state["scorer.3.bias"]
        state["scorer.9.bias"] = torch.zeros(1)
        state["type_emb.weight"] = torch.zeros(2, 64)

    rewrite(checkpoint, spoil)
    with pytest.raises(
        CheckpointFormatError,
        match=r"lacks scorer\.3\.bias; .* unknown scorer\.9\.bias; .*type_emb",
    ):
        load(checkpoint)


@pytest.mark.parametrize("name", ["model.safetensors", "encoder/config.json"])
def test_a_missing_file_is_named(checkpoint: Path, name: str) -> None:
    (checkpoint / name).unlink()
    with pytest.raises(CheckpointNotFoundError, match=name):
        load(checkpoint)


@pytest.mark.parametrize(
    "content", [b"", b"version https://git-lfs.github.com/spec/v1\n", b"\0" * 99]
)
def test_a_file_that_is_no_safetensors_file_is_an_error(checkpoint: Path, content: bytes) -> None:
    path = checkpoint / "model.safetensors"
    path.unlink()
    path.write_bytes(content)
    with pytest.raises(CheckpointFormatError, match="not a readable safetensors file"):
        load(checkpoint)


def test_half_a_file_is_an_error(checkpoint: Path) -> None:
    path = checkpoint / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointFormatError, match="not a readable safetensors file"):
        load(checkpoint)


@pytest.mark.parametrize("source", [TINY, TINY_PARALLEL])
def test_a_saved_checkpoint_loads_as_the_same_model(source: Path, tmp_path: Path) -> None:
    model, config = load(source), read_config(source)
    tokenizer = sorted((source / "tokenizer").iterdir())
    save_checkpoint(tmp_path / "copy", model, config.raw, tokenizer)
    again = load(tmp_path / "copy")
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])
    if not model.parallel:
        assert run(again, BATCH)[0].tobytes() == run(model, BATCH)[0].tobytes()
    assert [path.name for path in sorted((tmp_path / "copy" / "tokenizer").iterdir())] == [
        path.name for path in tokenizer
    ]


def test_saving_as_float32_keeps_every_bit(tmp_path: Path) -> None:
    model = load(TINY)
    with torch.no_grad():
        model.type_emb.weight.add_(1e-5)
    save_checkpoint(tmp_path, model, read_config(TINY).raw, [], torch.float32)
    shutil.copytree(TINY / "tokenizer", tmp_path / "tokenizer", dirs_exist_ok=True)
    assert torch.equal(load(tmp_path).type_emb.weight, model.type_emb.weight)


def test_weights_too_large_for_the_stored_type_are_not_saved(tmp_path: Path) -> None:
    model = load(TINY)
    with torch.no_grad():
        model.scorer[3].bias.fill_(1e6)
    with pytest.raises(CheckpointFormatError, match=r"infinity in scorer\.3\.bias"):
        save_checkpoint(tmp_path / "copy", model, read_config(TINY).raw, [])
    assert not (tmp_path / "copy").exists()


def test_a_bert_checkpoint_may_carry_the_pooling_layer_that_nobody_reads(tmp_path: Path) -> None:
    model = random_model(BERT, head_layers=1, actions=1)
    settings = {"encoder": "some/bert", "head_layers": 1}
    tokenizer = TINY / "tokenizer"
    files = [tokenizer / "tokenizer.json", tokenizer / "tokenizer_config.json"]
    save_checkpoint(tmp_path, model, settings, files, torch.float32)
    batch = make_batch(TrialShape(2, 20, 3), ModelFacts(vocabulary=50))
    expected = run(load(tmp_path), batch)[0]

    def add(state: State) -> None:
        state["encoder.pooler.dense.weight"] = torch.ones(24, 24)
        state["encoder.pooler.dense.bias"] = torch.ones(24)

    rewrite(tmp_path, add)
    assert (run(load(tmp_path), batch)[0] == expected).all()
    rewrite(tmp_path, lambda state: state.update({"encoder.other": torch.ones(1)}))
    with pytest.raises(CheckpointFormatError, match=r"has unknown encoder\.other"):
        load(tmp_path)


def test_loading_in_several_threads_leaves_start_values_as_they_were() -> None:
    before = torch.nn.init.normal_
    together = threading.Barrier(4, timeout=60)

    def load(_: int) -> None:
        together.wait()
        for _ in range(3):
            with without_initial_weights():
                assert torch.nn.init.normal_ is not before
                time.sleep(0.002)  # the others come meanwhile

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(load, range(4)))
    assert torch.nn.init.normal_ is before
