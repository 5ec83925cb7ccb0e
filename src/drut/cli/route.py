"""`drut route`: which checkpoint would answer a text, and why. Loads nothing."""

import argparse
import json
import sys
from typing import Any

from rich.table import Table
from rich.text import Text

from drut.cli.console import OK, console_on, is_terminal, printable, write_json
from drut.errors import InvalidRequestError, InvalidTextError
from drut.router import Router
from drut.routing.decision import RouteDecision

_DESCRIPTION = """\
Say which checkpoint would answer a state, and why. No checkpoint is loaded, and none needs to be
exported. On a terminal the decision is a table; with --json, or into a pipe, one JSON object."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.description = _DESCRIPTION
    add = parser.add_argument
    add("text", metavar="TEXT", nargs="?", help="the state; - reads it from standard input")
    add("--model", help="name or alias of a checkpoint, as in Router.route")
    add("--task", help="typed_decisions, or the name of a checkpoint")
    add("--lang", help="language code of the state, such as en or de-AT")
    add(
        "--default",
        metavar="NAME",
        help="checkpoint where the language stays undecided (default: multilingual)",
    )
    add("--state-json", action="store_true", help="TEXT is JSON: an object or list of fields")
    add("--json", action="store_true", help="print JSON on a terminal, too")


def run(arguments: argparse.Namespace) -> int:
    """Print the decision. Returns the exit code; wrong usage ends in `SystemExit(2)`."""
    text = _text(arguments)
    state = _parsed(text) if arguments.state_json else text
    router = Router() if arguments.default is None else Router(default=arguments.default)
    decision = router.route(state, model=arguments.model, task=arguments.task, lang=arguments.lang)
    if arguments.json or not is_terminal(sys.stdout):
        write_json(decision, sys.stdout)
    else:
        console_on(sys.stdout).print(_table(decision))
    return OK


def _text(arguments: argparse.Namespace) -> str:
    if arguments.text not in (None, "-"):
        return str(arguments.text)
    if arguments.text is None and is_terminal(sys.stdin):
        arguments.parser.error("give TEXT, or - to read standard input")
    content = sys.stdin.buffer.read()
    try:
        return content.decode("utf-8-sig").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as exc:
        raise InvalidTextError(
            f"standard input is not UTF-8 (byte 0x{content[exc.start]:02x} at {exc.start}); "
            "convert it first, for instance with iconv -t utf-8"
        ) from exc


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise InvalidRequestError(f"the state is not JSON ({exc}); leave out --state-json") from exc


def _table(decision: RouteDecision) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    rows: dict[str, object] = {
        "checkpoint": decision.model,
        "from": decision.get("repo"),
        "why": decision.reason,
        "code": decision.reason_code,
        "workflow": decision.get("workflow"),
        **_detected(decision.get("detection")),
    }
    for name, value in rows.items():
        if value is not None:
            table.add_row(name, Text(printable(str(value), sys.stdout)))
    return table


def _detected(detection: Any) -> dict[str, object]:
    if not isinstance(detection, dict):
        return {}
    shares = detection["script_profile"].items()
    segment = detection["mixed_segment"]
    return {
        "language": detection["language"],
        "scripts": ", ".join(f"{script} {share:.0%}" for script, share in shares) or None,
        "foreign part": segment and f"{segment['length']} characters from {segment['start']}",
    }
