import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from drut.checkpoint.bundle import Bundle
from drut_export.cli import main
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
