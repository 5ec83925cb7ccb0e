"""Which labels and texts of the bank are too alike to serve as wrong answers for each other."""

import random
from collections.abc import Sequence
from typing import Final, Protocol

import torch
from torch import Tensor

from starter.bank import Label, Schema
from starter.grammar import expand
from starter.noise import is_about_wording

FAR_FIRST_NAMES: Final = 0.40  # cosine below which two labels mean different things
FAR_LAST_NAMES: Final = 0.45
FAR_FROM_QUESTION: Final = 0.12
FAR_FROM_YES: Final = 0.22
MOST_UNRELATED: Final = 150


class Relations(Protocol):
    """What the generator asks about its bank."""

    def far(self, one: Label, other: Label) -> bool:
        """Whether the labels can be offered side by side as different answers."""

    def unrelated(self, schema: Schema) -> Sequence[str]:
        """Texts of other schemas that surely are answered "no" by a yes/no schema."""


class WordRelations:
    """Relations by shared words, for tests and for machines without the encoder."""

    def far(self, one: Label, other: Label) -> bool:
        return not set(" ".join(one.names).split()) & set(" ".join(other.names).split())

    def unrelated(self, schema: Schema) -> Sequence[str]:
        return ()


class Embeds(Protocol):
    """Gives sentence embeddings of length 1."""

    def matrix(self, texts: list[str]) -> Tensor:
        """float32 [texts, width]."""


class EmbeddedRelations:
    """Relations by sentence embeddings."""

    def __init__(self, schemas: Sequence[Schema], embedder: Embeds, seed: int = 0) -> None:
        rng = random.Random(seed)
        labels = [label for schema in schemas for label in schema.labels]
        self._row = {id(label): row for row, label in enumerate(labels)}
        first = embedder.matrix([label.names[0] for label in labels])
        last = embedder.matrix([label.names[-1] for label in labels])
        self._far = (first @ first.T < FAR_FIRST_NAMES) & (last @ last.T < FAR_LAST_NAMES)
        self._unrelated: dict[int, list[str]] = {}
        choices = [schema for schema in schemas if schema.kind == "choice"]
        texts = [text for schema in choices for text in schema.texts()]
        vectors = embedder.matrix([expand(text, rng) for text in texts])
        for schema in schemas:
            if schema.kind == "noul" and not is_about_wording(" ".join(schema.questions)):
                self._unrelated[id(schema)] = _unrelated(schema, texts, vectors, embedder, rng)

    def far(self, one: Label, other: Label) -> bool:
        return bool(self._far[self._row[id(one)], self._row[id(other)]])

    def unrelated(self, schema: Schema) -> Sequence[str]:
        return self._unrelated.get(id(schema), ())


def _unrelated(
    schema: Schema, texts: list[str], vectors: Tensor, embedder: Embeds, rng: random.Random
) -> list[str]:
    questions = embedder.matrix(schema.questions)
    yes = embedder.matrix([expand(text, rng) for text in schema.yes])
    near_question = (vectors @ questions.T).max(dim=1).values
    near_yes = (vectors @ yes.T).max(dim=1).values
    rows = torch.nonzero((near_question < FAR_FROM_QUESTION) & (near_yes < FAR_FROM_YES))
    found = [texts[row] for row in rows.flatten().tolist()]
    return rng.sample(found, min(MOST_UNRELATED, len(found)))
