"""The command `drut`: finds the sub-command, and turns what goes wrong into an exit code.

0: done. 1: failed, with one message on standard error. 2: wrong usage. 130: interrupted.
141: nobody reads the output any more.
"""

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module, metadata
from typing import Final, TextIO

from drut.cli.console import BROKEN_PIPE, FAILED, INTERRUPTED, tell
from drut.errors import CalibrationIdentityWarning, DrutError

COMMANDS: Final = {
    "predict": "answer questions about a text or a file",
    "route": "say which checkpoint would answer a text, and why",
    "calibrate": "fit temperatures to labelled answers",
    "doctor": "show what is installed and usable, and what is wrong",
    "export": "export a checkpoint to ONNX (needs drut[export])",
    "verify": "check a bundle's files, and its answers against the checkpoint",
    "repository": "write or check what Triton reads of exported bundles",
    "bundle": "list, show or remove exported bundles, or clean up after them",
    "bundles": "the same as: bundle list",
}
"""Sub-command, which is a module beside this one, to its summary."""

HANDED_ON: Final = ("export", "repository", "verify")
"""Sub-commands of the exporter, which looks at their arguments itself."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: arguments without the program's name, by default those of the process.

    Returns:
        The exit code. Wrong usage, `--help` and `--version` end in `SystemExit`.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # other libraries' remarks are not for this user
            for told in (RuntimeWarning, CalibrationIdentityWarning):
                warnings.simplefilter("default", told)
            warnings.showwarning = _show_warning
            code = _run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _let_go_of(sys.stdout)
        return BROKEN_PIPE
    return code


def make_parser(command: str | None) -> argparse.ArgumentParser:
    """The parser of the command line; only the named sub-command is imported and complete."""
    parser = argparse.ArgumentParser(
        prog="drut", description="Typed decisions from exported checkpoints."
    )
    parser.add_argument("--version", action="version", version=f"drut {own_version()}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        added = commands.add_parser(name, help=summary, allow_abbrev=False)
        if name == command and name not in HANDED_ON:
            module = import_module(f"drut.cli.{name}")
            module.configure(added)
            added.add_argument("--debug", action="store_true", help="show tracebacks of errors")
            added.set_defaults(run=module.run, parser=added)
    return parser


def own_version() -> str:
    """Version of the installed drut, `unknown` where it runs from a source tree."""
    try:
        return metadata.version("drut")
    except metadata.PackageNotFoundError:
        return "unknown"


def _run(arguments: list[str]) -> int:
    command = arguments[0] if arguments else None
    if command in HANDED_ON:
        return int(import_module(f"drut.cli.{command}").run(arguments[1:]))
    parsed, surplus = make_parser(command).parse_known_args(arguments)
    if surplus:
        words = "" if surplus[0].startswith("-") else "; put a text of several words into quotes"
        parsed.parser.error(f"unrecognized arguments: {' '.join(surplus)}{words}")
    try:
        return int(parsed.run(parsed))
    except BrokenPipeError:
        raise
    except (DrutError, OSError) as exc:
        if parsed.debug:
            raise
        tell(f"drut {parsed.command}: {_message(exc)}")
        return FAILED


def _message(exc: DrutError | OSError) -> str:
    if isinstance(exc, DrutError) or exc.strerror is None:
        return str(exc)
    return exc.strerror if exc.filename is None else f"{exc.filename}: {exc.strerror}"


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    tell(f"drut: warning: {message}")


def _let_go_of(stream: TextIO) -> None:
    """Point a stream whose pipe is closed at nothing, or flushing it at exit complains."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    except (OSError, ValueError):
        return


if __name__ == "__main__":
    sys.exit(main())
