"""What keeps float16 from overflowing: the range of weights and of what they compute."""

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch

from drut.errors import ExportError
from drut.runtimes.ort import OrtOptions, OrtRuntime
from drut_export.canonical import make_canonical
from drut_export.compute_fp16 import compute_in_fp16
from drut_export.graph import build_graph, save_graph
from drut_export.modeling import DecisionModel
from drut_export.torch_reference import TorchRuntime
from drut_export.trial_batches import ModelFacts, TrialCase, TrialShape, make_batch
from drut_export.trial_probe import Probe
from small_models import modernbert_config, random_model

SHAPE = TrialShape(3, 30, 3, dummy_row=True)
CASE = TrialCase("rows", make_batch(SHAPE, ModelFacts(vocabulary=800)))


def in_fp16(model: DecisionModel, directory: Path) -> ir.Model:
    graph = build_graph(model)
    probe = Probe(TorchRuntime(model), [CASE], graph, directory)
    compute_in_fp16(graph, probe)
    make_canonical(graph)
    return graph


def small_model() -> DecisionModel:
    config = modernbert_config(num_hidden_layers=1, layer_types=["full_attention"])
    return random_model(config, head_layers=1)


def test_values_beyond_float16_are_computed_in_float32(tmp_path: Path) -> None:
    model = small_model()
    with torch.no_grad():
        # The feed-forward part reaches 1e5 and is brought down again: infinite in float16.
        model.head.layers[0].linear1.weight.mul_(1e5)
        model.head.layers[0].linear2.weight.mul_(1e-5)
    graph = in_fp16(model, tmp_path)
    assert any(name.startswith("head.layers.0.linear1") for name in graph.graph.initializers)
    path = save_graph(graph, tmp_path)[0]
    found = OrtRuntime(path, OrtOptions(device="cpu", threads=1)).forward(CASE.batch)
    wanted = TorchRuntime(model).forward(CASE.batch)
    assert np.isfinite(found.options).all()
    assert np.isfinite(found.actions).all()
    np.testing.assert_allclose(found.options, wanted.options, rtol=0, atol=0.3)


def test_a_weight_beyond_float16_is_an_error_that_names_it(tmp_path: Path) -> None:
    model = small_model()
    with torch.no_grad():
        model.scorer[1].weight.mul_(1e-3)
        model.scorer[1].weight[0, 0] = 1e5
        model.scorer[0].weight.mul_(1e-6)
    with pytest.raises(ExportError, match=r"scorer\.1\.weight.* beyond float16"):
        in_fp16(model, tmp_path)


def test_angles_masks_and_the_end_of_the_answer_stay_float32(tmp_path: Path) -> None:
    graph = in_fp16(small_model(), tmp_path)
    narrow = {
        node.outputs[0]
        for node in graph.graph
        if node.op_type == "Cast" and node.attributes.get_int("to") == ir.DataType.FLOAT16
    }
    for node in graph.graph:
        if node.op_type in {"Cos", "Sin", "Softmax", "TopK", "Log", "Where", "Gemm"}:
            assert not narrow & set(node.inputs), node.name
    assert {str(value.dtype) for value in graph.graph.outputs} == {"FLOAT"}
