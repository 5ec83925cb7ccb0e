"""One training or evaluation item, with its options as the model reads them."""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from starter import phrases
from starter.bank import Kind


@dataclass(frozen=True, slots=True)
class Example:
    """A question about a state with the right option.

    Options stand in their natural order (score: lowest level first; noul: false, true); `order`
    says which option each slot of the token sequence shows.
    """

    kind: Kind
    instructions: str
    options: tuple[str, ...]  # texts as tokenised, without the leading space
    answer: int  # index into options; meaningless when `soft`
    state: str
    anchors: tuple[str, ...]  # what each option means, for similarity targets
    core: str  # the state without small talk and wrapping
    order: tuple[int, ...] = ()  # empty = natural order
    soft: bool = False  # no right answer known: learn the similarities only
    source: str = ""

    @property
    def slots(self) -> tuple[int, ...]:
        """Option index of each slot."""
        return self.order or tuple(range(len(self.options)))


def choice_option(label: str, description: str = "") -> str:
    """Text of a choice option."""
    return f"{label}: {description}" if description else label


def score_options(levels: Sequence[str]) -> tuple[str, ...]:
    """Texts of the options of a score question."""
    return tuple(f"level {index}: {text}" for index, text in enumerate(levels))


def noul_options(
    texts: tuple[str, str] = phrases.NOUL_TEXTS, labels: tuple[str, str] = ("false", "true")
) -> tuple[str, str]:
    """Texts of the two options of a yes/no question, false first."""
    return f"{labels[0]}: {texts[0]}", f"{labels[1]}: {texts[1]}"


def prompt(example: Example) -> str:
    """Text before the options."""
    return f"{example.kind} question: {example.instructions}"


def meaning(text: str) -> str:
    """An option in plain words: separators of identifiers become spaces."""
    return re.sub(r"[_\-]+", " ", text).strip().lower()


def shuffled(count: int, rng: random.Random) -> tuple[int, ...]:
    """A random order of `count` slots."""
    return tuple(rng.sample(range(count), count))
