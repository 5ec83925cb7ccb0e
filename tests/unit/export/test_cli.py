import contextlib
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import onnx_ir as ir
import pytest
import torch
from safetensors.torch import load_file, save_file

from drut.checkpoint.bundle import Bundle
from drut_export.cli import main
from graphs import write_graph
from tiny_checkpoint import TINY, copy_of_tiny

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-m", "drut_export", str(TINY), "--name", "tiny", "--repository"]
ENVIRONMENT = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'export'}", "PYTHONHASHSEED": "5"}


def arguments(repository: Path, *more: str) -> list[str]:
    return [str(TINY), "--name", "tiny", "--repository", str(repository), *more]


def test_the_path_goes_to_stdout_and_progress_to_stderr(
    traced: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(tmp_path)) == 0
    told = capsys.readouterr()
    assert told.out == f"{tmp_path / 'tiny' / '1'}\n"
    assert "tracing the model\n" in told.err
    assert "verifying 1 rows x 5 tokens x 1 options\n" in told.err


def test_json_is_the_manifest_with_the_path(
    traced: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(tmp_path, "--json", "--version", "4")) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["path"] == str(tmp_path / "tiny" / "4")
    assert (printed["version"], printed["precision"]) == (4, "fp32")


def test_a_local_path_is_not_told_to_the_world(traced: Path, tmp_path: Path) -> None:
    main(arguments(tmp_path))
    manifest = (tmp_path / "tiny" / "1" / "manifest.json").read_text(encoding="utf-8")
    assert json.loads(manifest)["source"] == TINY.name
    assert str(TINY.parent) not in manifest


def test_a_subfolder_is_entered_and_its_top_gives_the_licence(traced: Path, tmp_path: Path) -> None:
    copy_of_tiny(tmp_path / "source" / "deep" / "en")
    (tmp_path / "source" / "LICENSE").write_text("free", encoding="utf-8")
    source = [str(tmp_path / "source"), "--subfolder", "deep/en"]
    assert main([*source, "--name", "en", "--repository", str(tmp_path / "repository")]) == 0
    assert (tmp_path / "repository" / "en" / "1" / "LICENSE").read_text() == "free"


def test_the_repository_has_a_default(
    traced: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRUT_MODEL_REPOSITORY", str(tmp_path / "mine"))
    assert main([str(TINY), "--name", "tiny"]) == 0
    assert (tmp_path / "mine" / "tiny" / "1" / "manifest.json").is_file()


@pytest.mark.parametrize(
    "more",
    [["--precision", "int8-weights"], ["--subfolder", "nowhere"], ["--version", "0"]],
)
def test_a_failure_is_one_line_and_exit_code_1(
    more: list[str], traced: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments(tmp_path / "repository", *more)) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines()[-1].startswith("drut export: ")
    assert "Traceback" not in told.err
    assert not (tmp_path / "repository").exists()


@pytest.mark.parametrize(
    "wrong", [[], ["--name", "x"], [str(TINY), "--name", "x", "--precision", "fp8"]]
)
def test_wrong_usage_is_exit_code_2(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(wrong)
    assert caught.value.code == 2


def test_another_process_writes_the_same_bytes(
    tmp_path: Path, exported: Callable[[str], Bundle]
) -> None:
    done = subprocess.run(
        [*COMMAND, str(tmp_path)], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    written = Path(done.stdout.strip()) / "model.onnx"
    assert written.read_bytes() == exported("tiny-checkpoint").graph.read_bytes()


def test_a_killed_export_leaves_nothing(tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    process = subprocess.Popen(
        [*COMMAND, str(repository)], env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("tracing"):
                break
        assert list(repository.iterdir())
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
    assert process.returncode == 130
    assert rest.endswith("interrupted, nothing was left behind\n")
    assert not repository.exists()


def change_weights(checkpoint: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    weights = load_file(checkpoint / "model.safetensors")
    change(weights)
    save_file(weights, checkpoint / "model.safetensors", metadata={"format": "pt"})


def without_head(checkpoint: Path) -> None:
    def change(weights: dict[str, torch.Tensor]) -> None:
        for name in [name for name in weights if name.startswith(("head.", "scorer."))]:
            del weights[name]

    change_weights(checkpoint, change)


def with_surplus(checkpoint: Path) -> None:
    change_weights(checkpoint, lambda weights: weights.update({"decoder.weight": torch.ones(2)}))


def with_nan(checkpoint: Path) -> None:
    change_weights(
        checkpoint, lambda weights: weights.update({"scorer.1.bias": torch.full((64,), torch.nan)})
    )


def of_type(kind: str) -> Callable[[Path], None]:
    def change(checkpoint: Path) -> None:
        path = checkpoint / "encoder" / "config.json"
        config = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps({**config, "model_type": kind}), encoding="utf-8")

    return change


def empty(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint)
    checkpoint.mkdir()
    (checkpoint / "notes.txt").write_text("no checkpoint")


def a_classifier(checkpoint: Path) -> None:
    (checkpoint / "rl_agent_config.json").rename(checkpoint / "config.json")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (empty, "rl_agent_config.json"),
        (a_classifier, "rl_agent_config.json"),
        (of_type("no-such-model"), "cannot build the encoder of model type 'no-such-model'"),
        (of_type("bert"), "does not fit rl_agent_config.json and encoder/config.json"),
        (without_head, "lacks head.layers.0.self_attn.in_proj_weight"),
        (with_surplus, "has unknown decoder.weight"),
        (with_nan, "holds NaN or infinity in scorer.1.bias"),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_what_is_no_sound_checkpoint_is_one_line_and_makes_nothing(
    spoil: Callable[[Path], None],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    checkpoint = copy_of_tiny(tmp_path / "checkpoint")
    spoil(checkpoint)
    repository = tmp_path / "repository"
    assert main([str(checkpoint), "--name", "tiny", "--repository", str(repository)]) == 1
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("drut export: ")
    assert message in told
    assert not repository.exists()


def test_a_version_that_is_there_stays_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "tiny" / "3"
    place.mkdir(parents=True)
    (place / "mine").write_text("mine")
    assert main(arguments(tmp_path, "--version", "3")) == 1
    assert f"{place} exists already" in capsys.readouterr().err
    assert [path.name for path in place.iterdir()] == ["mine"]


@pytest.mark.parametrize("command", ["drut.cli.main", "drut_export"])
def test_without_torch_the_extra_is_named(command: str, tmp_path: Path) -> None:
    program = (
        "import runpy, sys\n"
        "sys.modules['torch'] = None\n"
        f"runpy.run_module({command!r}, run_name='__main__')\n"
    )
    start = ["export"] if command == "drut.cli.main" else []
    done = subprocess.run(
        [sys.executable, "-c", program, *start, *arguments(tmp_path / "repository")],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "drut[export]" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "repository").exists()


def test_an_interrupt_that_a_library_swallows_ends_the_export_at_its_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def swallowing(*_: object) -> object:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        return ir.load(traced_graph)

    traced_graph = write_graph(tmp_path / "any.onnx")
    monkeypatch.setattr("drut_export.repository.build_graph", swallowing)
    before = signal.getsignal(signal.SIGTERM)
    assert main(arguments(tmp_path / "repository")) == 130
    assert "interrupted, nothing was left behind" in capsys.readouterr().err
    assert not (tmp_path / "repository").exists()
    assert signal.getsignal(signal.SIGTERM) is before
