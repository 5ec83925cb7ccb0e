import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from drut.cli.main import COMMANDS, main

GUARD = ("--preset", "guard")


@pytest.fixture(autouse=True)
def opened(home: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRUT_MODEL_REPOSITORY", str(repository))
    monkeypatch.setenv("DRUT_THREADS", "1")


def usage_error(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    return capsys.readouterr().err


class Typed(io.StringIO):
    """Standard input of a terminal, where reading would wait for a person."""

    def isatty(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> str:
        raise AssertionError("it would hang here")


def given(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_without_a_text_on_a_terminal_usage_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", Typed())
    assert "give TEXT, - to read standard input" in usage_error(capsys, "predict")


def test_without_a_text_and_without_input_usage_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given(monkeypatch, b"")
    assert "standard input is empty" in usage_error(capsys, "predict")


@pytest.mark.parametrize(
    "arguments",
    [
        ("text", "--file", "x"),
        ("text", "--preset", "guard", "--questions", "x"),
        ("text", "--preset", "unheard-of"),
        ("text", "--min-confidence", "1.1"),
        ("text", "--min-confidence", "nan"),
        ("text", "--min-confidence", "high"),
        ("text", "--max-len", "0"),
        ("text", "--batch-size", "-1"),
        ("text", "--head-max-len", "1.5"),
        ("text", "--on-truncation", "shout"),
        ("text", "--long", "--max-len", "9"),
        ("text", "--long", "--on-truncation", "warn"),
        ("text", "--quest", "x"),
        ("text", "more"),
    ],
)
def test_wrong_usage_ends_with_two(
    capsys: pytest.CaptureFixture[str], arguments: Sequence[str]
) -> None:
    assert "usage: drut predict" in usage_error(capsys, "predict", *arguments)


def test_no_command_and_an_unknown_one_are_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert "COMMAND" in usage_error(capsys)
    assert "predikt" in usage_error(capsys, "predikt")


def test_the_default_questions_are_triage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "I was charged twice"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result["answers"]) == {"team", "urgency", "churn", "needs_human"}


@pytest.mark.parametrize("arguments", [["-"], []])
def test_standard_input_is_one_state(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    given(monkeypatch, "two\nlines, größer\n".encode())
    assert main(["predict", *arguments, *GUARD]) == 0
    from_input = capsys.readouterr().out
    assert main(["predict", "two\nlines, größer", *GUARD]) == 0
    assert capsys.readouterr().out == from_input


def test_input_that_is_not_utf8_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given(monkeypatch, b"gr\xf6sser")
    assert main(["predict", "-", *GUARD]) == 1
    assert "byte 0xf6 at 2" in capsys.readouterr().err


def test_options_reach_the_agent(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--min-confidence", "1", "--lang", "de", "--device", "cpu", "--max-len", "900")
    assert main(["predict", "x", *GUARD, *options]) == 0
    result = json.loads(capsys.readouterr().out)
    assert all(answer["abstention_threshold"] == 1.0 for answer in result["answers"].values())


def test_a_questions_file_is_asked(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = {"mood": {"type": "choice", "instructions": "Mood?", "criteria": ["gut", "böse"]}}
    (home / "q.json").write_text(json.dumps(asked), encoding="utf-8-sig")
    assert main(["predict", "x", "--questions", "q.json"]) == 0
    written = capsys.readouterr().out
    assert "böse" in written
    assert set(json.loads(written)["answers"]["mood"]["probabilities"]) == {"gut", "böse"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not a JSON file of questions"),
        ("[]", "must hold an object"),
        ("{}", "must hold an object"),
        ('{"a": {"type": "noul"}}', "lacks 'instructions'"),
        ('{"a": 1, "a": 2}', "'a' is there twice"),
    ],
)
def test_a_bad_questions_file_is_one_message(
    home: Path, capsys: pytest.CaptureFixture[str], content: str, message: str
) -> None:
    (home / "q.json").write_text(content)
    assert main(["predict", "x", "--questions", "q.json"]) == 1
    told = capsys.readouterr().err
    assert message in told
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--checkpoint", "no-such"], "drut export SOURCE --name no-such"),
        (["--device", "warp"], "unknown device 'warp'"),
        (["--questions", "gone.json"], "gone.json: No such file or directory"),
    ],
)
def test_an_error_is_one_readable_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["predict", "x", *arguments]) == 1
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1
    assert told.startswith("drut predict: ")


def test_debug_shows_the_traceback() -> None:
    from drut.errors import CheckpointNotFoundError

    with pytest.raises(CheckpointNotFoundError):
        main(["predict", "x", "--checkpoint", "no-such", "--debug"])


def test_a_missing_file_is_told_before_the_checkpoint(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "--file", "gone.txt", "--checkpoint", "no-such"]) == 1
    assert "gone.txt: No such file" in capsys.readouterr().err


def test_a_bad_line_ends_with_one_and_a_count(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "a.jsonl").write_text('"one"\nbad\n"three"\n')
    assert main(["predict", "--file", "a.jsonl", *GUARD]) == 1
    ended = capsys.readouterr()
    assert [("error" in json.loads(line)) for line in ended.out.splitlines()] == [0, 1, 0]
    assert ended.err == "drut predict: 1 of 3 lines could not be answered\n"


@pytest.mark.parametrize(("wanted", "code"), [("ignore", 0), ("warn", 0), ("error", 1)])
def test_what_a_cut_does_is_the_caller_s_choice(
    capsys: pytest.CaptureFixture[str], wanted: str, code: int
) -> None:
    text = "a long story " * 500
    assert main(["predict", text, *GUARD, "--on-truncation", wanted]) == code
    ended = capsys.readouterr()
    assert ("warning: cut to fit" in ended.err) is (wanted == "warn")
    assert bool(ended.out) is (code == 0)


def test_a_warning_of_the_library_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import warnings

    def warn(arguments: Any) -> int:
        warnings.warn("mind the gap", RuntimeWarning, stacklevel=1)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        return 0

    monkeypatch.setattr("drut.cli.bundles.run", warn)
    assert main(["bundles"]) == 0
    assert capsys.readouterr().err == "drut: warning: mind the gap\n"


@pytest.mark.parametrize(
    ("error", "code"), [(KeyboardInterrupt, 130), (BrokenPipeError, 141), (OSError("disk"), 1)]
)
def test_interruptions_have_their_exit_code(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    def fail(arguments: Any) -> int:
        raise error

    monkeypatch.setattr("drut.cli.bundles.run", fail)
    monkeypatch.setattr("drut.cli.main._let_go_of", lambda stream: None)
    assert main(["bundles"]) == code


def test_bundles_are_listed(capsys: pytest.CaptureFixture[str], repository: Path) -> None:
    assert main(["bundles"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[:3] == ["starter", "1", "fp32"]
    assert main(["bundles", "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert listed["directory"] == str(repository / "starter" / "1")


def test_no_bundle_is_no_failure_and_says_how_to_make_one(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DRUT_MODEL_REPOSITORY", str(home))
    assert main(["bundles"]) == 0
    ended = capsys.readouterr()
    assert ended.out == ""
    assert "drut export SOURCE" in ended.err


def test_a_damaged_bundle_is_told_and_ends_with_one(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from bundles import write_bundle

    (write_bundle(home / "b", "broken") / "model.onnx").unlink()
    monkeypatch.setenv("DRUT_MODEL_REPOSITORY", str(home / "b"))
    assert main(["bundles"]) == 1
    ended = capsys.readouterr()
    assert "damaged" in ended.out
    assert "lacks model.onnx" in ended.err


def exporter(monkeypatch: pytest.MonkeyPatch, main_of_it: Any) -> None:
    module = ModuleType("drut_export.cli")
    module.main = main_of_it  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "drut_export.cli", module)


def test_export_hands_on_every_argument_and_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    exporter(monkeypatch, lambda argv: seen.append(argv) or 7)
    arguments = ["--name", "x", "--help", "--", "-y", "--debug"]
    assert main(["export", *arguments]) == 7
    assert seen == [arguments]


def test_export_finds_the_real_exporter(capsys: pytest.CaptureFixture[str]) -> None:
    assert "usage: drut export" in usage_error(capsys, "export", "--name", "x")


def test_export_without_torch_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "drut_export.cli", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in [name for name in sys.modules if name.startswith("drut_export")]:
        monkeypatch.delitem(sys.modules, name)
    assert main(["export", "x", "--name", "y"]) == 1
    told = capsys.readouterr().err
    assert "drut[export]" in told
    assert told.count("\n") == 1


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert ended.value.code == 0
        assert f"usage: drut {command}" in capsys.readouterr().out


def test_the_help_of_file_tells_its_formats(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["predict", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.isascii()
    assert ".jsonl, .json, .ndjson: JSON Lines" in shown
    assert ".txt: plain text, each line one state" in shown


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("drut ")


def test_a_doctor_that_finds_something_ends_with_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from drut.cli.probe import DeviceCheck

    def attempt(directory: Path, device: str) -> tuple[DeviceCheck, list[str]]:
        return DeviceCheck(device, True, "fine"), ["CPUExecutionProvider"]

    monkeypatch.setattr("drut.cli.health.examine.__defaults__", (attempt,))
    healthy = main(["doctor", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert healthy == (0 if report["healthy"] else 1)
    monkeypatch.setenv("DRUT_THREADS", "none")
    assert main(["doctor", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["problems"]
