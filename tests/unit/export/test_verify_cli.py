import json
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from bundles import write_bundle
from drut.checkpoint.bundle import Bundle
from drut.checkpoint.opened import Checkpoint
from drut.runtimes.base import RuntimeInfo
from drut.runtimes.opening import RuntimeOptions
from drut.runtimes.ort import OrtOptions, OrtRuntime
from drut.runtimes.triton_options import TritonOptions
from drut.tensors import Batch, Logits
from drut_export import verify_bundle
from drut_export.verify_cli import main
from exports import export_once, shared_directory
from golden_values import GOLDEN
from tiny_checkpoint import TINY, copy_of_tiny
from unit.export.reports import report

ROOT = Path(__file__).parents[3]


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("DRUT_REVISION", raising=False)
    monkeypatch.setenv("DRUT_MODEL_REPOSITORY", str(tmp_path))
    return write_bundle(tmp_path, verification={"equal_choices": 1.0, "worst_row": "row 7"})


def test_sound_files_pass(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tiny"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("tiny version 1 (fp32) in ")
    assert "4 of 4 files are as the manifest lists them\n" in told
    assert "worst row: row 7\n" in told
    assert told.endswith("\npassed\n")


@pytest.mark.parametrize("name", ["tiny@1", "{directory}", "{directory}/.."])
def test_a_bundle_is_named_in_every_usual_way(name: str, bundle: Path) -> None:
    assert main([name.format(directory=bundle)]) == 0


def test_a_changed_file_fails_and_is_named(
    bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = bundle / "rl_agent_config.json"
    config.write_text(config.read_text() + " ")
    assert main(["tiny"]) == 1
    told = capsys.readouterr().out
    assert "3 of 4 files" in told
    assert "- rl_agent_config.json has SHA-256 " in told
    assert told.endswith("\nFAILED\n")


def without(packages: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process where importing these packages fails."""
    program = (
        "import sys\n"
        f"sys.modules |= dict.fromkeys({packages.split()!r})\n"
        "from drut.cli.main import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'export'}"},
        capture_output=True,
        text=True,
    )


def test_files_alone_need_neither_torch_nor_the_engine(bundle: Path) -> None:
    packages = "torch transformers onnx onnx_ir onnxruntime safetensors"
    done = without(packages, "verify", str(bundle))
    assert (done.returncode, done.stderr) == (0, "")


def test_without_torch_a_comparison_names_the_extra(bundle: Path) -> None:
    done = without("torch", "verify", str(bundle), "--source", str(TINY))
    assert done.returncode == 1
    assert "drut[export]" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["tinny"], "no exported bundle 'tinny'"), (["tiny@9"], "no bundle of version 9")],
)
def test_what_is_not_there_is_one_line(
    bundle: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(arguments) == 1
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1


def test_with_a_source_the_answers_are_compared_again(
    exported: Callable[[str], Bundle], capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = exported("tiny-checkpoint")
    assert main([str(bundle.directory), "--source", str(TINY), "--json"]) == 0
    told = capsys.readouterr()
    printed = json.loads(told.out)
    compared, at_export = printed["comparison"], bundle.manifest["verification"]
    assert printed["passed"] is compared["passed"] is compared["batch_invariant"] is True
    assert printed["files"] == {"checked": 6, "faults": [], "unlisted": []}
    assert (compared["rows"], compared["batches"]) == (at_export["rows"], at_export["batches"])
    assert compared["max_probability_difference"] < 1e-4
    assert "verifying everyday text\n" in told.err


def test_other_weights_fail_with_the_worst_row(
    exported: Callable[[str], Bundle], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = copy_of_tiny(tmp_path / "other")
    weights = load_file(copy / "model.safetensors")
    changed = next(name for name, value in weights.items() if name.endswith("Wqkv.weight"))
    weights[changed] = weights[changed] * 1.5
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    bundle = exported("tiny-checkpoint")
    assert main([str(bundle.directory), "--source", str(copy)]) == 1
    told = capsys.readouterr().out
    assert "- probabilities differ by " in told
    assert "(worst row: " in told
    assert told.endswith("\nFAILED\n")


def test_a_checkpoint_of_another_kind_is_told_before_anything_runs(
    exported: Callable[[str], Bundle], capsys: pytest.CaptureFixture[str]
) -> None:
    source = str(GOLDEN / "tiny-checkpoint-parallel")
    assert main([str(exported("tiny-checkpoint").directory), "--source", source]) == 1
    told = capsys.readouterr().err
    assert "was not made from" in told
    assert "option_layout sequential in the bundle, parallel in the checkpoint" in told


def test_a_graph_of_other_bytes_is_not_compared(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verify_bundle, "verify_bundle", None)
    (bundle / "model.onnx").write_bytes(b"other")
    assert main(["tiny", "--source", str(TINY)]) == 1
    assert "not compared" in capsys.readouterr().out
    assert main(["tiny", "--source", str(TINY), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["comparison"] is None


def test_the_revision_is_that_of_the_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def fetch(source: str, **options: object) -> object:
        asked.append((source, options["subfolder"], options["revision"]))
        return type("Found", (), {"path": TINY})

    monkeypatch.delenv("DRUT_REVISION", raising=False)
    monkeypatch.setattr("drut_export.verify_cli.fetch_checkpoint", fetch)
    monkeypatch.setattr(verify_bundle, "verify_bundle", lambda *_, **__: report())
    bundle = str(write_bundle(tmp_path, revision="abc"))
    assert main([bundle, "--source", "org/x", "--subfolder", "en"]) == 0
    assert main([bundle, "--source", "org/x", "--revision", "v2"]) == 0
    assert asked == [("org/x", "en", "abc"), ("org/x", None, "v2")]


def test_wrong_usage_is_exit_code_2() -> None:
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == 2


class Server:
    """Stands for a Triton server: what was asked of `open_runtime`, answered by the real graph."""

    def __init__(self, *, shift: float = 0.0, max_rows: int | None = None) -> None:
        self.asked: list[tuple[object, ...]] = []
        self.rows: list[int] = []
        self.closed = 0
        self._shift = shift
        self._max_rows = max_rows

    def __call__(self, runtime: str, checkpoint: Checkpoint, options: RuntimeOptions) -> "Server":
        assert checkpoint.bundle is not None
        assert options.server is not None
        self.asked.append((runtime, checkpoint.bundle.name, options.server))
        self._graph = OrtRuntime(checkpoint.bundle.graph, OrtOptions(device="cpu", threads=1))
        return self

    @property
    def info(self) -> RuntimeInfo:
        return RuntimeInfo("triton", "cpu", max_rows=self._max_rows)

    def forward(self, batch: Batch) -> Logits:
        self.rows.append(len(batch))
        options, actions = self._graph.forward(batch)
        moved = options + np.float32(self._shift) * np.arange(options.shape[1], dtype=np.float32)
        return Logits(np.where(batch.marker_mask, moved, options), actions)

    def close(self) -> None:
        self.closed += 1


def test_a_server_is_compared_with_the_bundles_own_graph(
    exported: Callable[[str], Bundle], capsys: pytest.CaptureFixture[str]
) -> None:
    server, bundle = Server(), exported("tiny-checkpoint")
    arguments = [str(bundle.directory), "--url", "http://127.0.0.1:1", "--model", "other"]
    assert main(arguments, open_server=server) == 0
    told = capsys.readouterr().out
    assert "The model on http://127.0.0.1:1 compared with its own graph on this machine" in told
    assert told.endswith("\npassed\n")
    expected = TritonOptions("http://127.0.0.1:1", model="other")
    assert server.asked == [("triton", "tiny-checkpoint", expected)]
    assert server.closed == 1
    assert max(server.rows) > 1


def test_a_server_is_compared_with_the_checkpoint_where_one_is_given(
    exported: Callable[[str], Bundle], capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = str(exported("tiny-checkpoint").directory)
    arguments = [bundle, "--url", "grpc://127.0.0.1:1", "--source", str(TINY), "--json"]
    assert main(arguments, open_server=Server()) == 0
    found = json.loads(capsys.readouterr().out)["comparison"]
    assert 0 < found["max_logit_difference"] < 1e-4  # torch and ONNX Runtime round differently


def test_a_server_that_answers_otherwise_fails_and_is_let_go_of(
    exported: Callable[[str], Bundle], capsys: pytest.CaptureFixture[str]
) -> None:
    server, bundle = Server(shift=0.1), str(exported("tiny-checkpoint").directory)
    assert main([bundle, "--url", "http://127.0.0.1:1"], open_server=server) == 1
    assert "- logits differ by " in capsys.readouterr().out
    assert server.closed == 1


def test_a_server_gets_no_more_rows_at_once_than_it_takes(
    exported: Callable[[str], Bundle],
) -> None:
    server, bundle = Server(max_rows=2), str(exported("tiny-checkpoint").directory)
    assert main([bundle, "--url", "http://127.0.0.1:1"], open_server=server) == 0
    assert max(server.rows) == 2


def test_a_server_that_is_not_there_is_one_line(
    exported: Callable[[str], Bundle], capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = [str(exported("tiny-checkpoint").directory), "--url", f"http://127.0.0.1:{port}"]
    assert main(arguments) == 1
    told = capsys.readouterr().err
    assert told.startswith("drut verify: ")
    assert str(port) in told


def test_the_calibration_is_compared_on_labelled_data(
    exported: Callable[[str], Bundle], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "mine.jsonl"
    question = {"type": "noul", "instructions": "Is it?"}
    lines = [
        {"state": f"case {i}", "questions": {"q": question}, "answers": {"q": i % 2 == 0}}
        for i in range(6)
    ]
    data.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    bundle = str(exported("tiny-checkpoint").directory)
    arguments = [bundle, "--url", "http://127.0.0.1:1", "--labelled", str(data)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # golden temperatures are clamped
        assert main([*arguments, "--json"], open_server=Server()) == 0
    figures = json.loads(capsys.readouterr().out)["comparison"]["calibration"]
    assert figures["answers"] == 6
    assert figures["checkpoint"] == figures["graph"]  # the same graph twice


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "x"], "give its --url as well"),
        (["--labelled", "x.jsonl"], "needs --source or --url"),
        (["--url", "http://127.0.0.1:1", "--labelled", "/nowhere.jsonl"], "cannot be read"),
        (["--url", "ftp://127.0.0.1"], "is not the address of a Triton server"),
    ],
)
def test_what_does_not_fit_together_is_one_line(
    arguments: list[str],
    message: str,
    exported: Callable[[str], Bundle],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([str(exported("tiny-checkpoint").directory), *arguments]) == 1
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1


def test_the_engine_of_the_export_verifies_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    checkpoint = GOLDEN / "tiny-checkpoint"
    made = export_once(checkpoint, shared_directory(tmp_path_factory), "bf16")
    assert main([str(made.directory), "--source", str(checkpoint)]) == 0
    if made.manifest["verified_with"]["name"] == "onnxruntime":
        return  # this processor has no bfloat16, so nothing else was asked for
    done = without("openvino", "verify", str(made.directory), "--source", str(checkpoint))
    assert done.returncode == 1
    assert "verified with openvino, computing in bf16; that does not run here" in done.stderr
