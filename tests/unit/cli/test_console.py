import io
import json
from typing import IO

import pytest
from rich.cells import cell_len

from drut.cli.console import clip, console_on, page_on, printable, write_json


def stream(encoding: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="")


def written(to: io.TextIOWrapper) -> bytes:
    to.flush()
    assert isinstance(to.buffer, io.BytesIO)
    return to.buffer.getvalue()


def test_json_is_readable_text_on_a_unicode_stream() -> None:
    to = stream("utf-8")
    write_json({"antwort": "größer 日本"}, to)
    assert written(to).decode() == '{"antwort": "größer 日本"}\n'


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "shift_jis"])
def test_json_is_escaped_where_the_stream_is_not_unicode(encoding: str) -> None:
    to = stream(encoding)
    write_json({"antwort": "größer 日本"}, to)
    assert written(to).isascii()
    assert json.loads(written(to)) == {"antwort": "größer 日本"}


def test_json_with_a_lone_surrogate_is_escaped_rather_than_failing() -> None:
    to = stream("utf-8")
    write_json("a\ud800", to)
    assert json.loads(written(to)) == "a\ud800"


def test_json_refuses_what_json_has_no_number_for() -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(float("nan"), io.StringIO())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mb", "a [31mb"),  # a state must not drive the terminal
        ("two\nlines\tand  blanks", "two lines and blanks"),
        ("right\u202eleft", "rightleft"),
        ("a\u2028b", "a b"),
        ("a\ud800b", "a?b"),
        ("\u0928\u200d", "\u0928\u200d"),
    ],
)
def test_printable_text_is_one_harmless_line(text: str, shown: str) -> None:
    assert printable(text, stream("utf-8")) == shown


def test_printable_text_fits_the_encoding_of_the_console() -> None:
    assert printable("ü 日本", stream("cp1252")) == "ü ??"


@pytest.mark.parametrize("width", range(1, 12))
@pytest.mark.parametrize("encoding", ["utf-8", "cp1252"])
def test_a_clipped_text_is_never_wider_than_asked(width: int, encoding: str) -> None:
    to = stream(encoding)
    assert cell_len(clip(printable("日本語 and a long label", to), width, to)) <= width


def test_a_text_that_fits_is_not_clipped() -> None:
    assert clip("日本", 4, stream("utf-8")) == "日本"


def test_a_console_shows_what_its_encoding_lacks_as_a_question_mark() -> None:
    to = stream("cp1252")
    console_on(to).print("日")
    assert written(to).strip() == b"?"


def test_a_console_shows_brackets_and_colons_as_they_are() -> None:
    to = io.StringIO()
    console_on(to).print("[red]x[/red] :smile:")
    assert to.getvalue() == "[red]x[/red] :smile:\n"


def test_a_report_into_a_pipe_is_not_wrapped() -> None:
    to = io.StringIO()
    page_on(to).print("word " * 100)
    assert to.getvalue().count("\n") == 1


class ClosedPipe(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


@pytest.mark.parametrize("to", [ClosedPipe()])
def test_a_closed_pipe_is_left_to_the_caller(to: IO[str]) -> None:
    with pytest.raises(BrokenPipeError):
        console_on(to).print("x")
