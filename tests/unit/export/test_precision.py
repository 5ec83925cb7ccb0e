import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from drut.checkpoint.bundle import Bundle
from drut.errors import ExportError
from drut.runtimes.ort import OrtOptions, OrtRuntime
from drut_export.canonical import make_canonical
from drut_export.graph import save_graph
from drut_export.precision import PRECISIONS, get_precision
from drut_export.quantise_weights import (
    COLUMNS,
    LEAST_ELEMENTS,
    ROWS,
    quantise,
    store_weights_as_int8,
)
from drut_export.trial_batches import ModelFacts, TrialShape, make_batch

BATCH = make_batch(TrialShape(4, 50, 5), ModelFacts(vocabulary=800))


def on_grid(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Rows of whole multiples of a scale of their own, the largest one 127."""
    values = rng.integers(-127, 128, shape)
    values[:, 0] = 127
    return (values * rng.uniform(1e-3, 1e-2, (shape[0], 1)).astype(np.float32)).astype(np.float32)


def write(model: ir.Model, directory: Path) -> Path:
    directory.mkdir()
    make_canonical(model)
    return save_graph(model, directory)[0]


def run(path: Path) -> np.ndarray:
    return OrtRuntime(path, OrtOptions(device="cpu", threads=1)).forward(BATCH).options


@pytest.fixture(scope="module")
def graphs(
    exported: Callable[[str], Bundle], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """The tiny graph with its large weights moved onto a grid: as float32 and as int8."""
    directory = tmp_path_factory.mktemp("precision")
    model = ir.load(exported("tiny-checkpoint").graph)
    for name, value in model.graph.initializers.items():
        tensor = value.const_value
        if tensor is not None and len(tensor.shape) == 2 and tensor.size >= LEAST_ELEMENTS:
            axis = COLUMNS if name.endswith(".T") else ROWS
            values, scales = quantise(tensor.numpy(), axis)
            value.const_value = ir.Tensor(values.astype(np.float32) * scales, name=name)
    plain = write(model, directory / "plain")
    model = ir.load(plain)
    store_weights_as_int8(model)
    return plain, write(model, directory / "int8")


def test_values_on_the_grid_come_back_exactly() -> None:
    array = on_grid(np.random.default_rng(3), 50, 70)
    for axis, given in ((ROWS, array), (COLUMNS, array.T)):
        values, scales = quantise(given, axis)
        assert (values.dtype, scales.dtype) == (np.int8, np.float32)
        np.testing.assert_allclose(values * scales, given, rtol=2e-7, atol=0)


def test_other_values_are_off_by_half_a_step_at_most() -> None:
    array = np.random.default_rng(4).normal(size=(20, 300)).astype(np.float32)
    values, scales = quantise(array, ROWS)
    assert scales.shape == (20, 1)
    assert np.abs(values).max() == 127
    assert (np.abs(values * scales - array) <= scales * 0.5001).all()


def test_each_channel_has_its_own_scale() -> None:
    array = np.float32([[1e-6, 2e-6], [1e3, -2e3], [0, 0]])
    values, scales = quantise(array, ROWS)
    np.testing.assert_allclose(values * scales, array, rtol=1e-2, atol=0)


def test_weights_on_the_grid_give_the_same_answers(graphs: tuple[Path, Path]) -> None:
    plain, stored = graphs
    np.testing.assert_allclose(run(stored), run(plain), rtol=0, atol=1e-5)


def test_every_large_matrix_is_stored_as_int8_with_one_scale_per_channel(
    graphs: tuple[Path, Path],
) -> None:
    plain, stored = (onnx.load(path).graph.initializer for path in graphs)
    shapes = {each.name: (tuple(each.dims), each.data_type) for each in stored}
    large = [e for e in plain if len(e.dims) == 2 and np.prod(e.dims) >= LEAST_ELEMENTS]
    assert len(large) > 20
    for each in large:
        rows, columns = each.dims
        scales = (1, columns) if each.name.endswith(".T") else (rows, 1)
        assert each.name not in shapes
        assert shapes[f"{each.name}.int8"] == ((rows, columns), onnx.TensorProto.INT8)
        assert shapes[f"{each.name}.scales"] == (scales, onnx.TensorProto.FLOAT)
    assert graphs[1].stat().st_size < graphs[0].stat().st_size / 3


def test_loading_folds_the_weights_and_keeps_the_table_small(
    graphs: tuple[Path, Path], tmp_path: Path
) -> None:
    optimised = []
    for number, path in enumerate(graphs):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.optimized_model_filepath = str(tmp_path / f"{number}.onnx")
        onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        optimised.append(onnx.load(tmp_path / f"{number}.onnx").graph)
    plain, stored = optimised
    int8 = [each.name for each in stored.initializer if each.data_type == onnx.TensorProto.INT8]
    assert int8 == ["encoder.embeddings.tok_embeddings.weight.int8"]
    # Looking rows up costs three small nodes; nothing else is left to do per call.
    extra = {"Cast": 1, "Mul": 1, "Gather": 1}
    kinds = {node.op_type for node in (*plain.node, *stored.node)}
    for kind in kinds:
        before = sum(node.op_type == kind for node in plain.node)
        assert sum(node.op_type == kind for node in stored.node) == before + extra.get(kind, 0), (
            kind
        )


@pytest.mark.parametrize("name", PRECISIONS)
def test_precisions_are_found_by_name(name: str) -> None:
    precision = get_precision(name)
    assert precision.name == name
    assert precision.tolerance.probabilities <= 0.15
    json.dumps(precision.summary)


def test_an_unknown_precision_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(ExportError, match="no precision 'fp8'; known are fp32, int8-weights"):
        get_precision("fp8")
