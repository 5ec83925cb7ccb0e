"""The strings inside a state, read within a fixed budget whatever the size of the state."""

import codecs
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

DEPTH: Final = 6  # containers around a string that is still read
MAX_VALUES: Final = 2048  # values visited from each end
MAX_LEAVES: Final = 512  # strings read from each end
MAX_CHARS: Final = 65536  # of all strings together
MAX_BYTES: Final = 4 * MAX_CHARS  # of one bytes value

Path: TypeAlias = tuple[int, ...]
"""Where a string is: its position in each container on the way, from the outermost."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The read part of one string, or of one end of it."""

    path: Path
    start: int  # of the part, in characters of the string
    text: str


def read_pieces(state: object) -> list[Piece]:
    """The strings of a state in reading order, long ones by their two ends.

    Strings are `str`, and `bytes` or `bytearray` holding UTF-8; values of mappings and items of
    lists and tuples are followed, `DEPTH` levels deep. Keys, numbers and other objects are not
    text. A state with more values than `MAX_VALUES` is read from its start and from its end.
    """
    leaves, complete = _collect(state, backwards=False)
    if not complete:
        tail, _ = _collect(state, backwards=True)
        seen = {path for path, _ in leaves}
        leaves += [leaf for leaf in reversed(tail) if leaf[0] not in seen]
    limit = _fair_limit([len(text) for _, text in leaves])
    return [piece for path, text in leaves for piece in _ends(path, text, limit)]


def _collect(state: object, *, backwards: bool) -> tuple[list[tuple[Path, str]], bool]:
    leaves: list[tuple[Path, str]] = []
    for count, (path, value) in enumerate(_walk(state, backwards=backwards)):
        if count >= MAX_VALUES or len(leaves) >= MAX_LEAVES:
            return leaves, False
        text = _text_of(value)
        if text:
            leaves.append((path, text))
    return leaves, True


def _walk(state: object, *, backwards: bool) -> Iterator[tuple[Path, object]]:
    """Every value, depth first; an explicit stack, since a state may be nested at will."""
    stack: list[tuple[Path, Iterator[tuple[int, object]]]] = [((), iter([(-1, state)]))]
    while stack:
        parent, siblings = stack[-1]
        entry = next(siblings, None)
        if entry is None:
            stack.pop()
            continue
        position, value = entry
        path = (*parent, position) if position >= 0 else ()
        yield path, value
        if len(path) < DEPTH:
            children = _children(value, backwards=backwards)
            if children is not None:
                stack.append((path, children))


def _children(value: object, *, backwards: bool) -> Iterator[tuple[int, object]] | None:
    items: Any
    if isinstance(value, (list, tuple)):
        items = value
    elif isinstance(value, Mapping):
        items = value.values()
    else:
        return None
    if not backwards:
        return iter(enumerate(items))
    try:
        last_first = reversed(items)
    except TypeError:  # a mapping without an order of its own
        return iter(())
    return zip(range(len(items) - 1, -1, -1), last_first, strict=False)


def _text_of(value: object) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, (bytes, bytearray)):
        return ""
    whole = len(value) <= MAX_BYTES
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(value[:MAX_BYTES], final=whole)
    except UnicodeDecodeError:
        return ""


def _fair_limit(lengths: list[int]) -> int:
    """Characters per string so that short ones are whole and all fit into `MAX_CHARS`."""
    left, limit = MAX_CHARS, MAX_CHARS
    for index, length in enumerate(sorted(lengths)):
        limit = left // (len(lengths) - index)
        left -= min(length, limit)
    return limit


def _ends(path: Path, text: str, limit: int) -> Iterator[Piece]:
    if len(text) <= limit:
        yield Piece(path, 0, text)
        return
    head, tail = limit - limit // 2, limit // 2
    yield Piece(path, 0, text[:head])
    if tail:
        yield Piece(path, len(text) - tail, text[-tail:])
