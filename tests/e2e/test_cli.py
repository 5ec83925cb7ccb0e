"""The command line as a shell user meets it: a process, pipes, a terminal, signals."""

import json
import os
import re
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

import drut
from unit.cli.roomy import write_roomy_bundle

COMMAND = (sys.executable, "-m", "drut.cli.main")
GUARD = ("--preset", "guard")
COLOURS = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
posix = pytest.mark.skipif(os.name != "posix", reason="needs pseudo-terminals and signals")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("bundles")
    write_roomy_bundle(repository)
    return repository


@pytest.fixture
def environment(repository: Path, tmp_path: Path) -> dict[str, str]:
    kept = ("PATH", "SYSTEMROOT", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
    sources = Path(drut.__file__).parents[1]
    return {
        **{name: os.environ[name] for name in kept if name in os.environ},
        "PYTHONPATH": f"{sources}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        "DRUT_MODEL_REPOSITORY": str(repository),
        "DRUT_THREADS": "1",
        "HOME": str(tmp_path),
        "TERM": "xterm",
        "PYTHONUTF8": "1",
    }


def run(
    environment: dict[str, str], *arguments: str, given: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, *arguments], input=given, env=environment, capture_output=True, timeout=120
    )


def on_terminal(
    environment: dict[str, str], *arguments: str, width: int = 80, into: Path | None = None
) -> tuple[int, str]:
    """Run with all streams on a pseudo-terminal; `into` sends standard output to a file."""
    import fcntl
    import pty
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    with open(into or os.devnull, "wb") as file:
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=theirs,
            stdout=theirs if into is None else file,
            stderr=theirs,
            env=environment,
        )
        os.close(theirs)
        content = b"".join(iter(lambda: _read(ours), b""))
        os.close(ours)
    encoding = environment.get("PYTHONIOENCODING", "utf-8")
    return process.wait(timeout=60), content.decode(encoding).replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    if not select.select([terminal], [], [], 60)[0]:
        raise AssertionError("the command waits for something")
    try:
        return os.read(terminal, 65536)
    except OSError:  # closed by the other side
        return b""


def lines_of(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content.decode("utf-8").splitlines()]


def test_a_text_into_a_pipe_is_one_line_of_json(environment: dict[str, str]) -> None:
    done = run(environment, "predict", "Ich wurde doppelt belastet, größer als 日本")
    assert (done.returncode, done.stderr) == (0, b"")
    (result,) = lines_of(done.stdout)
    assert set(result["answers"]) == {"team", "urgency", "churn", "needs_human"}


def test_python_m_drut_is_the_same_command(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "drut", "--version"], env=environment, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"drut ")


def test_standard_input_is_read(environment: dict[str, str]) -> None:
    by_input = run(environment, "predict", "-", *GUARD, given="größer\n".encode())
    by_argument = run(environment, "predict", "größer", *GUARD)
    assert by_input.returncode == 0
    assert by_input.stdout == by_argument.stdout


def test_a_long_file_is_answered_in_order(environment: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "many.jsonl"
    states = [json.dumps({"state": f"message {n} " + "x" * (n % 40), "id": n}) for n in range(700)]
    states[123] = '{"state": null, "id": 123}'
    states[600] = '{"state": "\\ud800", "id": 600}'
    file.write_text("\n".join(states))
    done = run(environment, "predict", "--file", str(file), *GUARD)
    results = lines_of(done.stdout)
    assert done.returncode == 1
    assert [each["id"] for each in results] == list(range(700))
    assert [each["line"] for each in results] == list(range(1, 701))
    assert [each["id"] for each in results if "error" in each] == [123, 600]
    assert results[600]["error"]["type"] == "InvalidTextError"
    assert done.stderr == b"drut predict: 2 of 700 lines could not be answered\n"
    alone = lines_of(run(environment, "predict", "message 5 xxxxx", *GUARD).stdout)[0]
    assert results[5]["answers"] == alone["answers"]


def test_long_reads_all_of_a_state(environment: dict[str, str]) -> None:
    (result,) = lines_of(run(environment, "predict", "word " * 2000, "--long", *GUARD).stdout)
    assert result["usage"]["windows"] > 1


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["predict", "x", "--checkpoint", "no-such"], 1),
        (["predict", "--file", "no-such.txt"], 1),
        (["predict"], 2),
        (["predict", "x", "--no-such-option"], 2),
        ([], 2),
    ],
)
def test_errors_go_to_standard_error_without_traceback(
    environment: dict[str, str], arguments: Sequence[str], code: int
) -> None:
    done = run(environment, *arguments)
    assert done.returncode == code
    assert done.stdout == b""
    assert done.stderr
    assert b"Traceback" not in done.stderr


def test_output_is_valid_json_in_a_windows_1252_pipe(environment: dict[str, str]) -> None:
    windows = {**environment, "PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}
    file = Path(environment["HOME"]) / "q.json"
    asked = {"größe": {"type": "choice", "instructions": "?", "criteria": ["日本", "groß"]}}
    file.write_text(json.dumps(asked))
    done = run(windows, "predict", "日本", "--questions", str(file))
    assert (done.returncode, done.stderr) == (0, b"")
    assert set(lines_of(done.stdout)[0]["answers"]["größe"]["probabilities"]) == {"日本", "groß"}


@posix
@pytest.mark.parametrize("width", [30, 60, 120])
def test_a_terminal_gets_a_table_that_fits(environment: dict[str, str], width: int) -> None:
    code, shown = on_terminal(environment, "predict", "I was charged twice", width=width)
    assert code == 0
    plain = COLOURS.sub("", shown)
    assert all(cell_len(line) <= width for line in plain.splitlines())
    assert "█" in plain
    assert "needs_human" in plain
    assert ("question" in plain.splitlines()[0]) is (width >= 60)


@posix
def test_colours_are_left_out_on_request(environment: dict[str, str]) -> None:
    coloured = re.compile(r"\x1b\[(?:[0-9]+;)*3[0-9]m")
    assert coloured.search(on_terminal(environment, "predict", "x", *GUARD)[1])
    plain = on_terminal({**environment, "NO_COLOR": "1"}, "predict", "x", *GUARD)[1]
    assert not coloured.search(plain)


@posix
def test_json_on_a_terminal_is_json(environment: dict[str, str]) -> None:
    code, shown = on_terminal(environment, "predict", "x", *GUARD, "--json", width=40)
    assert code == 0
    assert set(json.loads(shown)["answers"]) == {"prompt_injection", "asks_for_secrets", "risk"}


@posix
def test_a_windows_1252_console_shows_what_it_can(
    environment: dict[str, str], tmp_path: Path
) -> None:
    windows = {**environment, "PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps("ü 日本 \U0001f600"), encoding="utf-8")
    code, shown = on_terminal(windows, "predict", "--file", str(file), *GUARD, width=200)
    assert code == 0
    assert "ü ?? ?" in shown
    assert "##" in shown


@posix
def test_nothing_is_waited_for_on_a_terminal(environment: dict[str, str]) -> None:
    code, shown = on_terminal(environment, "predict")
    assert code == 2
    assert "give TEXT" in shown


@posix
@pytest.mark.parametrize("hidden", [False, True])
def test_progress_is_on_the_terminal_and_results_are_in_the_file(
    environment: dict[str, str], tmp_path: Path, hidden: bool
) -> None:
    file, into = tmp_path / "many.txt", tmp_path / "out.jsonl"
    file.write_text("hello\n" * 300)
    options = ["--no-progress"] if hidden else []
    code, shown = on_terminal(
        environment, "predict", "--file", str(file), *GUARD, *options, into=into
    )
    assert code == 0
    assert len(lines_of(into.read_bytes())) == 300
    assert ("300 lines" in COLOURS.sub("", shown)) is not hidden
    assert (shown == "") is hidden


def started(environment: dict[str, str], file: Path) -> subprocess.Popen[bytes]:
    """A command with more work than the test waits for."""
    file.write_text("hello there\n" * 200_000)
    process = subprocess.Popen(
        [*COMMAND, "predict", "--file", str(file), *GUARD, "--batch-size", "8"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,  # or what comes after the first line is lost between readline and communicate
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith(b'{"line": 1')
    return process


@posix
def test_a_reader_that_leaves_ends_the_command_quietly(
    environment: dict[str, str], tmp_path: Path
) -> None:
    process = started(environment, tmp_path / "many.txt")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(timeout=60) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


@posix
def test_an_interrupt_ends_with_130_and_whole_lines(
    environment: dict[str, str], tmp_path: Path
) -> None:
    process = started(environment, tmp_path / "many.txt")
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors == b""
    assert rest.endswith(b"\n")
    assert [line["line"] for line in lines_of(rest)] == list(range(2, 2 + rest.count(b"\n")))


def test_the_doctor_tries_the_bundle_on_the_cpu(environment: dict[str, str]) -> None:
    done = run(environment, "doctor", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == (0 if report["healthy"] else 1)
    devices = {each["device"]: each for each in report["devices"]}
    assert devices["cpu"]["usable"] is True
    assert report["threads"]["forward"] == 1
    assert report["bundles"][0]["verification"]["equal_choices"] == 1.0


def test_the_doctor_reports_a_damaged_bundle(environment: dict[str, str], tmp_path: Path) -> None:
    directory = write_roomy_bundle(tmp_path / "bundles", "broken")
    (directory / "model.onnx").write_bytes(b"cut")
    done = run({**environment, "DRUT_MODEL_REPOSITORY": str(tmp_path / "bundles")}, "doctor")
    assert done.returncode == 1
    assert b"bundle broken is damaged: model.onnx has 3 bytes" in done.stdout


def test_bundles_are_listed(environment: dict[str, str], repository: Path) -> None:
    done = run(environment, "bundles")
    assert done.returncode == 0
    assert str(repository / "starter" / "1") in done.stdout.decode()
