"""Attention without transposes answers the same, and is left alone where it needs them."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from drut.runtimes.ort import OrtOptions, OrtRuntime
from drut_export.canonical import make_canonical
from drut_export.graph import build_graph, save_graph
from drut_export.heads_in_place import take_heads_in_place
from drut_export.trial_batches import ModelFacts, TrialShape, make_batch
from drut_export.triton_releases import PORTABLE
from small_models import BERT, modernbert_config, random_model

WIDE = {**BERT, "vocab_size": 800, "hidden_size": 48, "num_attention_heads": 4}
LAYERS = WIDE["num_hidden_layers"]
BATCH = make_batch(TrialShape(3, 30, 3, dummy_row=True), ModelFacts(vocabulary=800))


@pytest.fixture(scope="module")
def traced() -> ir.Model:
    return build_graph(random_model(WIDE, head_layers=1))


def answers(model: ir.Model, directory: Path) -> np.ndarray:
    directory.mkdir()
    path = save_graph(model, directory)[0]
    return OrtRuntime(path, OrtOptions(device="cpu", threads=1)).forward(BATCH).options


def transposes(model: ir.Model) -> int:
    return sum(node.op_type == "Transpose" for node in model.graph)


def heads(model: ir.Model) -> list[tuple[int, int]]:
    found = [node.attributes for node in model.graph if node.op_type == "Attention"]
    return [(each.get_int("q_num_heads", 0), each.get_int("kv_num_heads", 0)) for each in found]


def test_a_bert_and_the_head_lose_their_transposes_and_answer_the_same(
    traced: ir.Model, tmp_path: Path
) -> None:
    model = traced.clone()
    before, wanted = transposes(model), answers(model, tmp_path / "before")
    assert set(heads(model)) == {(0, 0)}
    changed = take_heads_in_place(model)
    make_canonical(model)
    assert changed == len(heads(model)) == LAYERS + 1
    assert all(query == key > 0 for query, key in heads(model))
    assert transposes(model) == before - 4 * changed
    np.testing.assert_array_equal(answers(model, tmp_path / "after"), wanted)


def test_attention_behind_rotary_embeddings_keeps_them(tmp_path: Path) -> None:
    model = build_graph(random_model(modernbert_config(), head_layers=1))
    wanted = answers(model, tmp_path / "before")
    assert take_heads_in_place(model) == 1
    make_canonical(model)
    assert sorted(heads(model))[:-1] == [(0, 0)] * (len(heads(model)) - 1)
    np.testing.assert_array_equal(answers(model, tmp_path / "after"), wanted)


def test_inputs_and_outputs_stay_as_they_are(traced: ir.Model) -> None:
    model = traced.clone()
    before = [(v.name, str(v.shape)) for v in (*model.graph.inputs, *model.graph.outputs)]
    assert take_heads_in_place(model)
    make_canonical(model)
    assert before == [(v.name, str(v.shape)) for v in (*model.graph.inputs, *model.graph.outputs)]


def test_an_opset_without_the_operator_has_nothing_to_change() -> None:
    model = build_graph(random_model(WIDE, head_layers=1), PORTABLE)
    assert take_heads_in_place(model) == 0


@pytest.mark.parametrize("extra", ["swapped", "joined"])
def test_a_value_that_something_else_reads_is_not_taken_away(traced: ir.Model, extra: str) -> None:
    model = traced.clone()
    attention = next(node for node in model.graph if node.op_type == "Attention")
    (swap, _), *_ = attention.outputs[0].uses()
    read: Any = attention.outputs[0] if extra == "swapped" else swap.outputs[0]
    model.graph.insert_after(swap, [ir.node("Identity", [read])])
    assert take_heads_in_place(model) == LAYERS
