"""Running text: what is left for a language identifier once code and identifiers are dropped."""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from drut.language.scripts import LATIN, script_of

Span: TypeAlias = tuple[int, int]
"""Start and end, in characters."""

SEGMENT_CHARS: Final = 300  # a longer sentence is judged in parts
TOKEN_CHARS: Final = 48  # nothing longer is a word
# Of the visible characters of a line; prose has less punctuation of this kind.
CODE_SYMBOLS_SHARE: Final = 0.12

_LINE: Final = re.compile(r"[^\r\n\x0b\x0c\x85\u2028\u2029]+")
_SENTENCE_END: Final = re.compile(r"[.!?\u2026]['\")\]\u201d\u2019]?\s+")
_TAG: Final = re.compile(r"<[^<>\n]{1,200}>|&[a-zA-Z]{2,8};")
_CODE: Final = re.compile(
    r"[;{}]\s*$|\)\s*[:{]|\s[-+*/!=<>:]?=>?\s|->|=>|==|&&|::|\(\)|\w\[\w*\]|\w\(['\"\w]+[.,_][^)]{0,80}\)"
)
_CODE_SYMBOL: Final = re.compile(r"[{}=<>;|$\\+^~`]")
_QUOTED: Final = re.compile(r"\"([^\"\n]{8,2000})\"|'([^'\n]{8,2000})'")
_IDENTIFIER: Final = re.compile(r"[@_/\\\d]|\w\.\w|[a-z][A-Z]|::")
_WORD: Final = re.compile(r"[^\W\d_]+(?:['\u2019\u02bc\u00b7][^\W\d_]+)*")


@dataclass(frozen=True, slots=True)
class Segment:
    """A sentence, or a part of one, and what of it is prose."""

    start: int  # in the text it is from, in characters
    length: int  # in characters
    text: str  # prose, with its punctuation
    words: tuple[str, ...]  # lower case, straight apostrophes


def lines_of(text: str) -> Iterator[Span]:
    """Start and end of each line that is not empty."""
    return (line.span() for line in _LINE.finditer(text))


def sentences(text: str, start: int, end: int) -> Iterator[Span]:
    """Start and end of each sentence of a line; of code, only what is quoted in it."""
    line = text[start:end]
    if not _looks_like_code(line):
        yield from _sentences(text, start, end)
        return
    for quoted in _QUOTED.finditer(line):
        group = 1 if quoted.group(1) is not None else 2
        if " " in quoted.group(group):
            yield from _sentences(text, start + quoted.start(group), start + quoted.end(group))


def _sentences(text: str, start: int, end: int) -> Iterator[Span]:
    for mark in _SENTENCE_END.finditer(text, start, end):
        yield from _parts(text, start, mark.end())
        start = mark.end()
    yield from _parts(text, start, end)


def _parts(text: str, start: int, end: int) -> Iterator[Span]:
    while end - start > SEGMENT_CHARS:
        space = text.rfind(" ", start + 1, start + SEGMENT_CHARS)
        cut = space if space > 0 else start + SEGMENT_CHARS
        yield start, cut
        start = cut
    if start < end:
        yield start, end


def _looks_like_code(line: str) -> bool:
    line = _TAG.sub(" ", line)
    if _CODE.search(line):
        return True
    visible = len(line) - line.count(" ")
    symbols = len(_CODE_SYMBOL.findall(line))
    return symbols > 1 and symbols > CODE_SYMBOLS_SHARE * visible


def read_segment(text: str, start: int, end: int) -> Segment:
    """Read one sentence: drop tags, identifiers and words in other scripts."""
    prose = unicodedata.normalize("NFKC", _TAG.sub(" ", text[start:end]))
    tokens = [token for token in prose.split() if _is_prose(token)]
    prose = " ".join(tokens)
    if _is_shouted(prose):
        prose = prose.lower()
    words = tuple(
        word.lower().replace("\u2019", "'").replace("\u02bc", "'") for word in _WORD.findall(prose)
    )
    return Segment(start, end - start, prose, words)


def _is_prose(token: str) -> bool:
    if len(token) > TOKEN_CHARS or _IDENTIFIER.search(token):
        return False
    return token.isascii() or all(script_of(letter) in (LATIN, None) for letter in token)


def _is_shouted(text: str) -> bool:
    capitals = sum(map(str.isupper, text))
    return 2 * capitals > sum(map(str.isalpha, text))
