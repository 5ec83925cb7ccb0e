"""Finds bank texts that are too close to a held-out one, by their words alone."""

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from starter.bank import Schema
from starter.grammar import expand

RUN: Final = 4  # words in a row that make two texts worth comparing
MOST_SHARED: Final = 0.6  # share of common words from which two texts count as the same
READINGS: Final = 4  # readings of a grammar text that are looked at


def words(text: str) -> tuple[str, ...]:
    """The text's words in lower case, without punctuation."""
    return tuple(re.findall(r"[a-z0-9]+", text.lower()))


def shared(one: Sequence[str], other: Sequence[str]) -> float:
    """Share of distinct words that two texts have in common."""
    left, right = set(one), set(other)
    return len(left & right) / max(1, len(left | right))


class HeldOut:
    """Held-out texts, indexed by their runs of words."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._exact: set[tuple[str, ...]] = set()
        self._by_run: dict[tuple[str, ...], list[tuple[str, ...]]] = defaultdict(list)
        for text in texts:
            known = words(text)
            self._exact.add(known)
            for run in _runs(known):
                self._by_run[run].append(known)

    def has(self, text: str) -> bool:
        """Whether the text is one of them, or nearly so."""
        asked = words(text)
        if asked in self._exact:
            return True
        near = {known for run in _runs(asked) for known in self._by_run.get(run, ())}
        return any(shared(asked, known) >= MOST_SHARED for known in near)


def leaked(schemas: Sequence[Schema], held_out: HeldOut, seed: int = 0) -> list[str]:
    """Bank texts of which a reading is, or nearly is, a held-out text."""
    rng = random.Random(seed)
    return [
        text
        for schema in schemas
        for text in schema.texts()
        if any(held_out.has(expand(text, rng)) for _ in range(READINGS))
    ]


def _runs(known: Sequence[str]) -> set[tuple[str, ...]]:
    return {tuple(known[i : i + RUN]) for i in range(len(known) - RUN + 1)}
