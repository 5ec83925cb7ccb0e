from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch

from drut.checkpoint.bundle import Bundle
from drut.checkpoint.config import read_config
from drut.errors import ExportError, GraphContractError
from drut.runtimes.ort import OrtOptions, OrtRuntime
from drut.tensors import OUTPUTS, graph_inputs
from drut_export import graph
from drut_export.canonical import make_canonical
from drut_export.checkpoint_loading import load_model
from drut_export.graph import build_graph, check_contract, save_graph
from drut_export.torch_reference import TorchRuntime
from drut_export.trial_batches import ModelFacts, TrialShape, make_batch
from drut_export.triton_releases import PRESENT
from exports import CHECKPOINTS
from golden_values import GOLDEN
from small_models import BERT, random_model

TYPES = {"int64": onnx.TensorProto.INT64, "bool": onnx.TensorProto.BOOL, "float32": 1}


def load(bundle: Bundle) -> onnx.ModelProto:
    return onnx.load(bundle.graph)


def declared(values: object) -> list[tuple[str, int, tuple[object, ...]]]:
    return [
        (
            value.name,
            value.type.tensor_type.elem_type,
            tuple(axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim),
        )
        for value in values
    ]


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_inputs_and_outputs_are_those_of_the_contract(
    name: str, exported: Callable[[str], Bundle]
) -> None:
    model = load(exported(name))
    inputs = graph_inputs(parallel="parallel" in name)
    assert declared(model.graph.input) == [(s.name, TYPES[s.dtype], s.axes) for s in inputs]
    assert declared(model.graph.output) == [
        (s.name, TYPES[s.dtype], tuple(2 if axis == "actions" else axis for axis in s.axes))
        for s in OUTPUTS
    ]


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_the_graph_is_valid_and_of_the_chosen_opset(
    name: str, exported: Callable[[str], Bundle]
) -> None:
    model = load(exported(name))
    onnx.checker.check_model(model, full_check=True)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", PRESENT.opset)]


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_every_weight_is_found_under_its_name(name: str, exported: Callable[[str], Bundle]) -> None:
    directory = GOLDEN / name
    state = load_model(directory, read_config(directory)).state_dict()
    del state["temperature"]  # never read
    held = {
        each.name: onnx.numpy_helper.to_array(each)
        for each in load(exported(name)).graph.initializer
    }
    last = "head.layers.1.self_attn.in_proj_"
    ask, told = (held.pop(f"{last}weight.part{number}.T").T for number in (0, 1))
    assert 2 * len(ask) == len(told)
    held[f"{last}weight"] = np.concatenate((ask, told))
    held[f"{last}bias"] = np.concatenate([held.pop(f"{last}bias.part{i}") for i in (0, 1)])
    for key, tensor in state.items():
        array = held.pop(key, None)
        if array is None:
            array = held.pop(f"{key}.T").T
        assert np.array_equal(array, tensor.numpy()), key
    assert sum(array.size for array in held.values()) < 100


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_nothing_of_the_exporting_machine_is_in_the_file(
    name: str, exported: Callable[[str], Bundle]
) -> None:
    content = exported(name).graph.read_bytes()
    for trace in (b".py", b"site-packages", str(Path.cwd()).encode(), str(Path.home()).encode()):
        assert trace not in content


@pytest.mark.parametrize(("rows", "tokens", "options"), [(1, 5, 1), (1, 90, 2), (7, 11, 6)])
def test_every_axis_is_dynamic(
    rows: int, tokens: int, options: int, exported: Callable[[str], Bundle]
) -> None:
    batch = make_batch(TrialShape(rows, tokens, options), ModelFacts(vocabulary=800))
    runtime = OrtRuntime(exported("tiny-checkpoint").graph, OrtOptions(device="cpu", threads=1))
    answer = runtime.forward(batch)
    directory = GOLDEN / "tiny-checkpoint"
    expected = TorchRuntime(load_model(directory, read_config(directory))).forward(batch)
    np.testing.assert_allclose(answer.options, expected.options, rtol=0, atol=1e-4)
    np.testing.assert_allclose(answer.actions, expected.actions, rtol=0, atol=1e-4)


def test_writing_a_graph_again_changes_no_byte(
    exported: Callable[[str], Bundle], tmp_path: Path
) -> None:
    path = exported("tiny-checkpoint").graph
    model = ir.load(path)
    make_canonical(model)
    save_graph(model, tmp_path)
    assert (tmp_path / "model.onnx").read_bytes() == path.read_bytes()


def test_names_and_order_do_not_depend_on_the_order_of_tracing(
    exported: Callable[[str], Bundle], tmp_path: Path
) -> None:
    path = exported("tiny-checkpoint").graph
    model = ir.load(path)
    nodes = list(model.graph)
    model.graph.remove(nodes)
    for number, node in enumerate(reversed(nodes)):
        node.name = f"other_{number}"
        node.metadata_props["stack_trace"] = "somewhere/private.py"
        for output in node.outputs:
            if not output.is_graph_output():
                output.name = f"other_value_{number}_{output.index()}"
    model.graph.extend(reversed(nodes))
    make_canonical(model)
    save_graph(model, tmp_path)
    assert (tmp_path / "model.onnx").read_bytes() == path.read_bytes()


def test_nodes_nobody_needs_are_dropped(exported: Callable[[str], Bundle]) -> None:
    model = ir.load(exported("tiny-checkpoint").graph)
    count = len(model.graph)
    model.graph.append(ir.node("Neg", [model.graph.inputs[0]]))
    make_canonical(model)
    assert len(model.graph) == count


def test_large_weights_go_into_a_second_file(
    exported: Callable[[str], Bundle], tmp_path: Path
) -> None:
    path = exported("tiny-checkpoint").graph
    files = save_graph(ir.load(path), tmp_path, inline_bytes=1000)
    assert [file.name for file in files] == ["model.onnx", "model.onnx.data"]
    assert sorted(tmp_path.iterdir()) == sorted(files)
    batch = make_batch(TrialShape(2, 9, 3), ModelFacts(vocabulary=800))
    options = OrtOptions(device="cpu", threads=1)
    whole, split = (OrtRuntime(each, options).forward(batch) for each in (path, files[0]))
    assert np.array_equal(whole.options, split.options)


def test_a_bert_encoder_exports_too(tmp_path: Path) -> None:
    model = random_model(BERT, head_layers=1, actions=3)
    save_graph(build_graph(model), tmp_path)
    runtime = OrtRuntime(tmp_path / "model.onnx", OrtOptions(device="cpu", threads=1))
    for shape in (TrialShape(1, 6, 1), TrialShape(4, 33, 5)):
        batch = make_batch(shape, ModelFacts(vocabulary=50))
        answer, expected = runtime.forward(batch), TorchRuntime(model).forward(batch)
        np.testing.assert_allclose(answer.options, expected.options, rtol=0, atol=1e-4)
        np.testing.assert_allclose(answer.actions, expected.actions, rtol=0, atol=1e-4)


def test_a_graph_of_another_shape_is_refused(exported: Callable[[str], Bundle]) -> None:
    model = random_model(actions=5)
    with pytest.raises(GraphContractError, match="act_logits"):
        check_contract(ir.load(exported("tiny-checkpoint").graph), model)
    with pytest.raises(GraphContractError, match="position_ids"):
        check_contract(ir.load(exported("tiny-checkpoint").graph), random_model(parallel=True))


def test_a_model_torch_cannot_export_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise torch.onnx.errors.OnnxExporterError("no such operator")

    monkeypatch.setattr(graph.torch.onnx, "export", fail)
    with pytest.raises(ExportError, match="no such operator"):
        build_graph(random_model())
