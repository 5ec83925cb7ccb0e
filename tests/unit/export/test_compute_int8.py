"""How one product becomes levels, scales and a bias; whole exports are tried elsewhere."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from drut.runtimes.ort import OrtOptions, OrtRuntime
from drut_export import compute_int8
from drut_export.canonical import make_canonical
from drut_export.compute_int8 import Linear, linears, quantise_products
from drut_export.graph import build_graph, save_graph
from drut_export.modeling import DecisionModel
from drut_export.trial_batches import ModelFacts, TrialShape, make_batch
from drut_export.triton_releases import PORTABLE
from small_models import BERT, random_model, run

WIDE = {**BERT, "vocab_size": 800, "hidden_size": 72, "intermediate_size": 80}
BATCH = make_batch(TrialShape(3, 30, 3, dummy_row=True), ModelFacts(vocabulary=800))


@pytest.fixture(scope="module")
def bert() -> DecisionModel:
    return random_model(WIDE, head_layers=1)


@pytest.fixture(scope="module")
def traced(bert: DecisionModel) -> ir.Model:
    return build_graph(bert)


def in_int8(model: ir.Model) -> ir.Model:
    quantise_products(model, {})
    make_canonical(model)
    return model


def answers(model: ir.Model, directory: Path) -> np.ndarray:
    directory.mkdir()
    path = save_graph(model, directory)[0]
    options = OrtOptions(device="cpu", threads=1)
    return OrtRuntime(path, options, precision="int8").forward(BATCH).options


def operators(model: ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in model.graph)


def test_levels_by_blocks_and_by_rows_are_the_same(
    traced: ir.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = in_int8(traced.clone())
    monkeypatch.setattr(compute_int8, "BLOCKS_SINCE", 1000)
    rows = in_int8(traced.clone())
    assert operators(blocks)["QuantizeLinear"] == operators(rows)["QuantizeLinear"]
    assert operators(blocks)["Reshape"] < operators(rows)["Reshape"]
    np.testing.assert_array_equal(
        answers(blocks, tmp_path / "blocks"), answers(rows, tmp_path / "rows")
    )


def test_opsets_without_blocks_get_rows(bert: DecisionModel) -> None:
    levels = [
        n for n in in_int8(build_graph(bert, PORTABLE)).graph if n.op_type == "QuantizeLinear"
    ]
    assert levels
    assert not any("block_size" in node.attributes for node in levels)


def test_what_a_shift_adds_is_taken_from_the_bias(
    bert: DecisionModel, traced: ir.Model, tmp_path: Path
) -> None:
    model = in_int8(traced.clone())
    assert any(node.op_type == "Add" and is_shift(node) for node in model.graph)
    assert operators(model)["Sub"] == operators(traced)["Sub"]
    close(answers(model, tmp_path / "made"), bert)


def test_it_is_subtracted_where_something_else_reads_the_product(
    bert: DecisionModel, traced: ir.Model, tmp_path: Path
) -> None:
    model = traced.clone()
    product = next(each.node for each in linears(model) if behind_gelu(each))
    kept = ir.node("Identity", [product.outputs[0]])
    add, place = product.outputs[0].uses()[0]
    model.graph.insert_after(product, [kept])
    add.replace_input_with(place, kept.outputs[0])
    model = in_int8(model)
    assert operators(model)["Sub"] == operators(traced)["Sub"] + 1
    close(answers(model, tmp_path / "made"), bert)


def behind_gelu(each: Linear) -> bool:
    made = each.source.producer()
    return made is not None and made.op_type == "Gelu"


def is_shift(node: ir.Node) -> bool:
    constant = node.inputs[1]
    assert constant is not None
    found = constant.const_value
    return found is not None and not found.shape and found.numpy() == np.float32(0.17003)


def close(found: np.ndarray, model: DecisionModel) -> None:
    wanted, _ = run(model, BATCH)
    real = BATCH.marker_mask
    np.testing.assert_allclose(found[real], wanted[real], rtol=0, atol=0.15)
