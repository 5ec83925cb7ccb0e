"""The row beside every figure: plain cosine similarity with the same, untrained encoder."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from starter.bank import Kind
from starter.examples import Example
from starter.metrics import of_kind
from starter.minilm import Embedder

PHRASINGS: Final[tuple[Callable[[str, str], str], ...]] = (
    lambda question, option: option,
    lambda question, option: f"{question} {option}",
    lambda question, option: f"This text is about {option}.",
)


def cosine_accuracy(items: Sequence[Example], kind: Kind, embedder: Embedder) -> float:
    """Accuracy of the best phrasing for this set, which favours the baseline.

    A yes/no question is answered "yes" above the set's own median similarity.
    """
    asked = [items[place] for place in of_kind(items, kind)]
    if kind == "noul":
        return _noul(asked, embedder)
    return max(_choice(asked, phrase, embedder) for phrase in PHRASINGS)


def _choice(
    items: Sequence[Example], phrase: Callable[[str, str], str], embedder: Embedder
) -> float:
    hits = []
    for item in items:
        options = embedder.matrix([phrase(item.instructions, text) for text in item.anchors])
        hits.append(int((options @ embedder[item.state]).argmax()) == item.answer)
    return float(np.mean(hits))


def _noul(items: Sequence[Example], embedder: Embedder) -> float:
    alike = np.array([float(embedder[item.instructions] @ embedder[item.state]) for item in items])
    right = np.array([bool(item.answer) for item in items])
    return float(((alike > np.median(alike)) == right).mean())
