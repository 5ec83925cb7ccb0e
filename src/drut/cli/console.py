"""Where the commands write to: terminals, pipes, and consoles that cannot show every character."""

import json
import sys
import unicodedata
from typing import IO, Any, Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

OK: Final = 0
FAILED: Final = 1
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141
"""What shells report for a command that a closed pipe ended."""

UNBROKEN: Final = 10_000
"""Columns where there is no terminal."""

_JOINERS: Final = "\u200c\u200d"
_BLANKED: Final = ("Cc", "Zl", "Zp", "Zs")


class PipeConsole(Console):
    """A console that leaves a closed pipe to the caller."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console_on(stream: IO[str], *, width: int | None = None) -> PipeConsole:
    """Return a console that shows text as it is: no markup, no highlighting, no emoji codes.

    Args:
        stream: where it writes; colours and width follow it.
        width: columns; None: those of the terminal.
    """
    # What the encoding lacks is shown as a question mark rather than ending the command.
    if not speaks_unicode(stream) and hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")
    return PipeConsole(
        file=stream, markup=False, emoji=False, highlight=False, width=width, soft_wrap=False
    )


def page_on(stream: IO[str]) -> PipeConsole:
    """Return a console for reports: what goes into a pipe is not wrapped, so it can be searched."""
    return console_on(stream, width=None if is_terminal(stream) else UNBROKEN)


def is_terminal(stream: IO[str] | None) -> bool:
    """Whether a person is at the other end of a standard stream."""
    return stream is not None and stream.isatty()


def speaks_unicode(stream: IO[str]) -> bool:
    """Whether the stream can carry every character."""
    encoding: str | None = getattr(stream, "encoding", None)
    return encoding is None or encoding.lower().startswith("utf")


def write_json(value: Any, stream: IO[str]) -> None:
    """Write one JSON value as one line.

    Text is written as it is where the stream is Unicode and escaped elsewhere, so that the line
    is valid JSON for every reader.
    """
    if speaks_unicode(stream):
        line = json.dumps(value, ensure_ascii=False, allow_nan=False)
        if not any("\ud800" <= character <= "\udfff" for character in line):
            stream.write(f"{line}\n")
            return
    stream.write(f"{json.dumps(value, allow_nan=False)}\n")


def tell(message: str) -> None:
    """Write one message of the program to standard error."""
    if sys.stderr is not None:
        sys.stderr.write(f"{message}\n")
        sys.stderr.flush()


def printable(text: str, stream: IO[str]) -> str:
    """One line of `text` that is safe to show: no control characters, nothing unencodable."""
    shown = "".join(_shown(character) for character in text)
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return " ".join(shown.encode(encoding, "replace").decode(encoding).split())


def clip(text: str, width: int, stream: IO[str]) -> str:
    """Cut a printable text to `width` terminal cells."""
    if cell_len(text) <= width:
        return text
    mark = "\u2026" if speaks_unicode(stream) else "~"
    cut = Text(text)
    cut.truncate(max(0, width - 1), overflow="crop")
    return f"{cut.plain.rstrip()}{mark}"


def _shown(character: str) -> str:
    category = unicodedata.category(character)
    if category in _BLANKED:
        return " "
    # Invisible formatting may reorder a line; joiners only shape letters and emoji.
    return "" if category == "Cf" and character not in _JOINERS else character
