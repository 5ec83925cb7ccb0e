"""The labelled sentences of `tests/data/languages`, and the variants made of them."""

import json
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SENTENCES = Path(__file__).parent / "data" / "languages" / "sentences.tsv"

ENGLISH_CLASSES = ("english", "english-name", "short-english")
CODE_CLASS = "code"
VARIED_CLASSES = ("english", "latin", "homograph", "romanised")
JSON_CLASS = "foreign-field"
_MARKS_OFF = str.maketrans("łŁđĐøØıİßæÆ", "lLdDoOiIsaA")


@dataclass(frozen=True)
class Line:
    """One labelled text: its class, its language, and the state to judge."""

    kind: str
    language: str
    state: Any
    variant: str = "plain"

    @property
    def group(self) -> str:
        return self.kind if self.variant == "plain" else f"{self.kind}, {self.variant}"

    @property
    def expected(self) -> str:
        """`english`, `other`, or `none` where no language is right."""
        if self.kind == CODE_CLASS:
            return "none"
        return "english" if self.kind in ENGLISH_CLASSES else "other"


def labelled_lines(path: Path = SENTENCES) -> list[Line]:
    """Every line as written, followed by its variants without accents and in capitals."""
    with path.open(encoding="utf-8") as file:
        next(file)
        rows = [row.rstrip("\n").split("\t") for row in file]
    return [line for kind, language, text in rows for line in _variants(kind, language, text)]


def without_accents(text: str) -> str:
    decomposed = unicodedata.normalize("NFD", text.translate(_MARKS_OFF))
    return "".join(mark for mark in decomposed if not unicodedata.combining(mark))


def _variants(kind: str, language: str, text: str) -> Iterator[Line]:
    yield Line(kind, language, json.loads(text) if kind == JSON_CLASS else text)
    if kind in VARIED_CLASSES:
        yield Line(kind, language, without_accents(text), "no accents")
        yield Line(kind, language, text.upper(), "capitals")
