"""Every precision through a whole export, and what is refused before one begins."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.checkpoint.bundle import Bundle
from drut.errors import ExportError, VerificationError
from drut.runtimes.ort import OrtOptions, OrtRuntime
from drut_export import cli, repository
from drut_export.pbtxt import Target
from drut_export.precision import PRECISIONS, check_combination
from drut_export.repository import ExportRequest, export_checkpoint
from drut_export.trial_batches import ModelFacts, TrialShape, make_batch, single_rows
from exports import export_once, shared_directory
from golden_values import GOLDEN
from property_settings import examples

FACTS = ModelFacts(vocabulary=800)
SEQUENTIAL, PARALLEL = "tiny-checkpoint", "tiny-checkpoint-parallel"
TARGETS: dict[str, Target] = {"fp16": "cuda"}
EXACT = tuple(name for name in PRECISIONS if name != "int8-weights")
"""What the golden weights, which are random, stand; int8-weights moves their answers too far."""

REFUSED = [
    ("int8", "cuda", "fp16"),
    ("int8", "tensorrt", "fp16"),
    ("fp16", "cpu", "int8 or bf16"),
    ("bf16", "cuda", "fp16"),
]


@pytest.fixture(scope="session")
def bundle_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Bundle]:
    """Golden checkpoint and precision to a bundle made once for all workers."""
    cache = shared_directory(tmp_path_factory)
    return lambda name, precision: export_once(
        GOLDEN / name, cache, precision, TARGETS.get(precision, "cpu")
    )


def open_ort(bundle: Bundle) -> OrtRuntime:
    return OrtRuntime(bundle.graph, OrtOptions(device="cpu", threads=1), precision=bundle.precision)


@pytest.mark.parametrize("name", [SEQUENTIAL, PARALLEL])
@pytest.mark.parametrize("precision", EXACT)
def test_every_precision_is_exported_and_tells_what_it_is(
    bundle_of: Callable[[str, str], Bundle], precision: str, name: str
) -> None:
    bundle = bundle_of(name, precision)
    manifest = bundle.manifest
    assert (bundle.precision, manifest["target"]) == (precision, TARGETS.get(precision, "cpu"))
    assert manifest["verification"]["batch_difference"] <= PRECISIONS[precision].tolerance.batch
    assert manifest["verified_with"]["name"] in ("onnxruntime", "openvino")
    batch = make_batch(TrialShape(3, 40, 4), replace(FACTS, parallel=name == PARALLEL))
    answer = open_ort(bundle).forward(batch)
    assert answer.options.dtype == np.float32
    report = (bundle.directory / "VERIFICATION.md").read_text(encoding="utf-8")
    assert f"computing in {manifest['verified_with']['computing']}." in report


@pytest.mark.parametrize(("precision", "kind"), [("int8", 3), ("fp16", 10), ("bf16", 16)])
def test_most_weights_are_stored_in_the_precisions_own_type(
    bundle_of: Callable[[str, str], Bundle], precision: str, kind: int
) -> None:
    bundle = bundle_of(SEQUENTIAL, precision)
    stored = onnx.load(bundle.graph).graph.initializer
    found = {each.name.removesuffix(f".{precision}") for each in stored if each.data_type == kind}
    assert found
    assert not found & set(bundle.manifest["left_out"])


def test_layers_left_out_compute_in_float32_and_are_told(
    bundle_of: Callable[[str, str], Bundle],
) -> None:
    bundle = bundle_of(SEQUENTIAL, "int8")
    left_out = bundle.manifest["left_out"]
    graph = ir.load(bundle.graph)
    assert left_out
    assert {str(graph.graph.initializers[name].dtype) for name in left_out} == {"FLOAT"}
    report = (bundle.directory / "VERIFICATION.md").read_text(encoding="utf-8")
    assert all(name in report for name in left_out)
    assert "MatMulIntegerToFloat" in {node.op_type for node in graph.graph}


@pytest.mark.parametrize("precision", ["int8", "fp16"])
@given(rows=st.integers(2, 5), tokens=st.integers(6, 60), options=st.integers(1, 4))
@examples(6)
def test_a_row_does_not_see_its_neighbours_or_its_padding(
    bundle_of: Callable[[str, str], Bundle], precision: str, rows: int, tokens: int, options: int
) -> None:
    runtime = open_ort(bundle_of(SEQUENTIAL, precision))
    batch = make_batch(TrialShape(rows, tokens, options), FACTS)
    together = runtime.forward(batch)
    for index, alone in single_rows(batch):
        answer = runtime.forward(alone)
        width = answer.options.shape[1]
        np.testing.assert_allclose(
            answer.options[0], together.options[index, :width], rtol=0, atol=5e-4
        )


@pytest.mark.parametrize("precision", EXACT)
def test_a_row_of_nothing_but_padding_stays_finite(
    bundle_of: Callable[[str, str], Bundle], precision: str
) -> None:
    batch = make_batch(TrialShape(3, 30, 3, dummy_row=True), FACTS)
    assert not batch.attention_mask[-1].any()
    answer = open_ort(bundle_of(SEQUENTIAL, precision)).forward(batch)
    assert np.isfinite(answer.options).all()
    assert np.isfinite(answer.actions).all()
    assert (answer.options[-1] == np.float32(-1e4)).all()


@pytest.mark.parametrize("precision", ["int8", "fp16", "bf16"])
def test_graphs_for_older_servers_come_in_every_precision(tmp_path: Path, precision: str) -> None:
    request = ExportRequest(
        GOLDEN / SEQUENTIAL,
        "old",
        tmp_path,
        precision,
        made_for="triton:24.10",
        target=TARGETS.get(precision, "cpu"),
    )
    bundle = export_checkpoint(request)
    assert (bundle.manifest["opset"], bundle.precision) == (18, precision)
    assert bundle.batch_invariant or precision != "int8"


@pytest.mark.parametrize(("precision", "target", "instead"), REFUSED)
def test_a_precision_that_the_target_cannot_use_is_refused_with_a_better_one(
    precision: str, target: str, instead: str
) -> None:
    with pytest.raises(ExportError, match=f"{precision} is not for target {target}.*{instead}"):
        check_combination(precision, target)


def test_it_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    request = ExportRequest(tmp_path / "absent", "x", tmp_path / "made", "int8", target="cuda")
    with pytest.raises(ExportError, match="not for target"):
        export_checkpoint(request)
    assert not (tmp_path / "made").exists()


def test_the_command_refuses_before_it_downloads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "fetch_checkpoint", lambda *_, **__: pytest.fail("fetched"))
    arguments = ["some/where", "--precision", "fp16", "--repository", str(tmp_path)]
    assert cli.main(arguments) == 1
    assert "use int8 or bf16 there" in capsys.readouterr().err


def test_the_command_takes_a_target(traced: Path, tmp_path: Path) -> None:
    checkpoint = str(GOLDEN / SEQUENTIAL)
    options = ["--name", "t", "--precision", "fp16", "--target", "cuda", "--repository"]
    assert cli.main([checkpoint, *options, str(tmp_path)]) == 0
    assert repository.read_bundle(tmp_path / "t").manifest["target"] == "cuda"
    assert "KIND_GPU" in (tmp_path / "t" / "config.pbtxt").read_text(encoding="utf-8")


def test_a_precision_that_moves_answers_too_far_leaves_nothing(
    traced: Path, tmp_path: Path
) -> None:
    request = ExportRequest(GOLDEN / SEQUENTIAL, "x", tmp_path / "made", "int8-weights")
    with pytest.raises(VerificationError, match="probabilities differ"):
        export_checkpoint(request)
    assert not list(tmp_path.rglob("model.onnx"))


def test_nothing_of_the_trials_is_left_in_the_repository(
    bundle_of: Callable[[str, str], Bundle],
) -> None:
    bundle = bundle_of(SEQUENTIAL, "int8")
    names = {path.name for path in bundle.directory.parent.rglob("*") if path.is_file()}
    assert not names & {"trial.onnx", "float32.onnx", "float32.data"}
