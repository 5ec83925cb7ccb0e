"""States from a file of any length: read line by line, handed on in batches of bounded size."""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn

from drut.schema import State

JSON_SUFFIXES: Final = (".jsonl", ".json", ".ndjson")
BATCH_LINES: Final = 256
"""States answered together where no batch size is asked for."""

BATCH_BYTES: Final = 8 << 20
"""Bytes of lines held at a time, so that long lines do not add up."""

MAX_LINE_BYTES: Final = 16 << 20
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Line:
    """One line that is not blank: a state, or why it is none."""

    number: int  # counts from 1, blank lines included
    end: int  # bytes of the file up to its end
    size: int  # bytes
    state: State = None
    id: Any = None  # the caller's own, from a JSON object with `state` and `id`
    fault: str | None = None


def is_json(path: Path) -> bool:
    """Whether the lines of a file are JSON values rather than plain text, by its suffix."""
    return path.suffix.lower() in JSON_SUFFIXES


def read_lines(path: Path, *, limit: int = MAX_LINE_BYTES) -> Iterator[Line]:
    """Yield the lines of a UTF-8 file, one at a time; faulty ones too, blank ones not.

    Args:
        path: JSON Lines by suffix (see `is_json`), else one text a line.
        limit: bytes of a line at most; the rest of a longer one is skipped.

    Raises:
        OSError: the file cannot be read.
    """
    as_json = is_json(path)
    end = 0
    with path.open("rb") as file:
        for number, (content, size) in enumerate(_raw_lines(file, limit), start=1):
            end += size
            if number == 1:
                content = content.removeprefix(_BYTE_ORDER_MARK)
            if content.strip():
                yield _line(content.rstrip(b"\r\n"), (number, end, size), limit, as_json=as_json)


def batches(lines: Iterable[Line], count: int, size: int = BATCH_BYTES) -> Iterator[list[Line]]:
    """Group lines, in order: at most `count` together, and no more after `size` bytes."""
    batch: list[Line] = []
    held = 0
    for line in lines:
        batch.append(line)
        held += line.size
        if len(batch) >= count or held >= size:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def _raw_lines(file: BinaryIO, limit: int) -> Iterator[tuple[bytes, int]]:
    """Yield the start of every line, at most `limit` + 1 bytes of it, with its whole size."""
    while content := file.readline(limit + 1):
        size = len(content)
        rest = content
        while not rest.endswith(b"\n") and (rest := file.readline(limit)):
            size += len(rest)
        yield content, size


def _line(content: bytes, place: tuple[int, int, int], limit: int, *, as_json: bool) -> Line:
    number, end, size = place
    if len(content) > limit:
        return Line(number, end, size, fault=f"the line has {size} bytes, at most {limit} are read")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as exc:
        fault = f"the line is not UTF-8 (byte 0x{content[exc.start]:02x} at {exc.start})"
        return Line(number, end, size, fault=fault)
    if not as_json:
        return Line(number, end, size, state=text)
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as exc:
        return Line(number, end, size, fault=_json_fault(text, exc))
    state, own_id = _unwrapped(value)
    if state is None:
        return Line(number, end, size, id=own_id, fault="the state is null")
    return Line(number, end, size, state=state, id=own_id)


def _unwrapped(value: Any) -> tuple[State, Any]:
    """State and id of a JSON value; only an object of just these two keys is a wrapper."""
    if isinstance(value, dict) and "state" in value and value.keys() <= {"state", "id"}:
        return value["state"], value.get("id")
    return value, None


def _json_fault(text: str, exc: Exception) -> str:
    hint = ""
    if text.strip() in ("[", "{"):
        hint = "; every line must be one JSON value, turn an array into lines with: jq -c '.[]'"
    return f"the line is not JSON ({exc}){hint}"


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits} is too large a number")
    return value
