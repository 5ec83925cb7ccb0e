"""`drut predict`: answer typed questions about a text, standard input or a file."""

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final, get_args

from drut.cli.answering import AskOptions, Printer, answer_file
from drut.cli.askers import ROUTED, open_asker
from drut.cli.console import FAILED, OK, is_terminal, tell
from drut.cli.lines import BATCH_LINES, JSON_SUFFIXES
from drut.decoding.calibration_file import read_language_temperatures
from drut.errors import InvalidRequestError, InvalidTextError
from drut.loading import DEFAULT_CHECKPOINT
from drut.presets import PRESETS, preset
from drut.questions import without_repeats
from drut.runtimes.opening import RuntimeName

DEFAULT_PRESET: Final = "triage"
_DESCRIPTION: Final = """\
Answer typed questions about a state: TEXT, standard input, or every line of a file. On a terminal
the answers are tables with the probability of every option; with --json, or into a pipe, they are
JSON Lines, one object per state."""
_CHECKPOINT_HELP: Final = f"""\
name or directory of an exported bundle (default: routed by language and questions once one of
{", ".join(ROUTED)} is exported, until then {DEFAULT_CHECKPOINT})"""
_FILE_HELP: Final = f"""\
file with one state a line, of any length. {", ".join(JSON_SUFFIXES)}: JSON Lines, each line one
JSON value (text, object or list) that is the state, or an object with just "state" and "id". Any
other suffix, such as .txt: plain text, each line one state. UTF-8; blank lines are skipped. A line
that cannot be answered becomes an error record, and the exit code is 1."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.description = _DESCRIPTION
    add = parser.add_argument
    add("text", metavar="TEXT", nargs="?", help="the state; - reads one state from standard input")
    add("--file", type=Path, metavar="PATH", help=_FILE_HELP)
    asked = parser.add_mutually_exclusive_group()
    asked.add_argument(
        "--preset", choices=list(PRESETS), help=f"ready questions (default: {DEFAULT_PRESET})"
    )
    asked.add_argument(
        "--questions", type=Path, metavar="FILE", help="JSON file: question id to definition"
    )
    add("--checkpoint", metavar="NAME", help=_CHECKPOINT_HELP)
    add("--device", help="auto, cpu, cuda, cuda:N or tensorrt (default: DRUT_DEVICE, or auto)")
    add(
        "--runtime",
        choices=[name for name in get_args(RuntimeName) if name != "ort"],
        help="what runs the graph (default: triton with --url, else onnxruntime)",
    )
    add(
        "--url",
        help="Triton server: grpc://HOST:8001 or http://HOST:8000 (default: DRUT_TRITON_URL)",
    )
    add("--long", action="store_true", help="read a state of any length, window by window")
    add("--lang", help="language code that picks temperatures")
    add("--lang-temperatures", type=Path, metavar="FILE", help="temperatures per language code")
    add("--calibration", type=Path, metavar="FILE", help="calibration file of the checkpoint")
    add(
        "--calibration-any-graph",
        action="store_true",
        help="accept a calibration file that is bound to another graph",
    )
    add("--min-confidence", type=_share, metavar="X", help="mark less certain answers as abstained")
    add("--max-len", type=_count, metavar="N", help="tokens of a sequence")
    add("--head-max-len", type=_count, metavar="N", help="tokens of instructions and options in it")
    add("--batch-size", type=_count, metavar="N", help=f"states at a time (files: {BATCH_LINES})")
    add(
        "--on-truncation",
        choices=("ignore", "warn", "error"),
        help="what to do where the token budget cuts something (default: ignore)",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON Lines on a terminal, too")
    form.add_argument("--table", action="store_true", help="print tables into a pipe, too")
    add("--no-progress", action="store_true", help="no progress bar for --file")


def run(arguments: argparse.Namespace) -> int:
    """Answer and print. Returns the exit code; wrong usage ends in `SystemExit(2)`."""
    _check_usage(arguments)
    state = None if arguments.file is not None else _state(arguments)
    if arguments.file is not None:
        arguments.file.stat()  # a missing file is told before a checkpoint is loaded
    questions = _questions(arguments)
    as_json = arguments.json or not (arguments.table or is_terminal(sys.stdout))
    options = _options(arguments)
    opened = open_asker(
        arguments.checkpoint,
        arguments.device,
        questions,
        options,
        _calibrated(arguments),
        _engine(arguments),
    )
    with closing(opened) as asker:
        asker.check()
        printer = Printer(asker, as_json=as_json)
        if arguments.file is None:
            printer.one(asker.answer([state])[0])
            return OK
        lines, failed = answer_file(
            asker, arguments.file, printer, progress=not arguments.no_progress
        )
    if failed:
        tell(f"drut predict: {failed} of {lines} lines could not be answered")
    return FAILED if failed else OK


def _calibrated(arguments: argparse.Namespace) -> dict[str, Any]:
    """Arguments of the agent about calibration, as far as they are given."""
    given: dict[str, Any] = {}
    if arguments.lang_temperatures is not None:
        given["lang_temperatures"] = read_language_temperatures(arguments.lang_temperatures)
    if arguments.calibration is not None:
        given["calibration"] = arguments.calibration
        given["calibration_any_graph"] = arguments.calibration_any_graph
    return given


def _engine(arguments: argparse.Namespace) -> dict[str, Any]:
    """Arguments of the agent or the Router about the runtime, as far as they are given."""
    runtime = arguments.runtime or ("triton" if arguments.url else None)
    given = {"runtime": runtime, "url": arguments.url}
    return {name: value for name, value in given.items() if value is not None}


def _check_usage(arguments: argparse.Namespace) -> None:
    fail: Callable[[str], Any] = arguments.parser.error
    if arguments.text is not None and arguments.file is not None:
        fail("give TEXT or --file, not both")
    if arguments.text is None and arguments.file is None and is_terminal(sys.stdin):
        fail("give TEXT, - to read standard input, or --file PATH")
    if arguments.url is not None and arguments.runtime not in (None, "triton"):
        fail(f"--url has no meaning with --runtime {arguments.runtime}")
    if arguments.calibration_any_graph and arguments.calibration is None:
        fail("--calibration-any-graph has no meaning without --calibration")
    if arguments.long:
        for name in ("max_len", "head_max_len", "on_truncation"):
            if getattr(arguments, name) is not None:
                fail(f"--{name.replace('_', '-')} has no meaning with --long, which cuts no state")


def _state(arguments: argparse.Namespace) -> str:
    """The text of the command line, or all of standard input without its last line break."""
    if arguments.text not in (None, "-"):
        return str(arguments.text)
    content = sys.stdin.buffer.read()
    if not content and arguments.text is None:
        arguments.parser.error("standard input is empty; give TEXT, or --file PATH")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise InvalidTextError(
            f"standard input is not UTF-8 (byte 0x{content[exc.start]:02x} at {exc.start}); "
            "convert it first, for instance with iconv -t utf-8"
        ) from exc
    return text.removesuffix("\n").removesuffix("\r")


def _questions(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.questions is None:
        return preset(arguments.preset or DEFAULT_PRESET)
    return read_questions(arguments.questions)


def read_questions(path: Path) -> dict[str, Any]:
    """Read a JSON file of question id to definition. What the questions say is not checked.

    Raises:
        InvalidRequestError: not a JSON object, an empty one, or a name twice in an object.
        OSError: the file cannot be read.
    """
    try:
        questions = json.loads(
            path.read_text(encoding="utf-8-sig"), object_pairs_hook=without_repeats
        )
    except (ValueError, RecursionError) as exc:
        raise InvalidRequestError(f"{path} is not a JSON file of questions ({exc})") from exc
    if not isinstance(questions, dict) or not questions:
        raise InvalidRequestError(
            f"{path} must hold an object of question id to definition, such as "
            '{"urgent": {"type": "noul", "instructions": "Is it urgent?"}}'
        )
    return questions


def _options(arguments: argparse.Namespace) -> AskOptions:
    return AskOptions(
        long=arguments.long,
        lang=arguments.lang,
        min_confidence=arguments.min_confidence,
        max_len=arguments.max_len,
        head_max_len=arguments.head_max_len,
        batch_size=arguments.batch_size,
        on_truncation=arguments.on_truncation or "ignore",
    )


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 1")
    return value
