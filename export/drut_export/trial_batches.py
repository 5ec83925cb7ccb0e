"""Made-up batches that reach every corner of a graph's shape and of its masks."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from drut.encoding.layout import parallel_layout
from drut.tensors import QTYPES, Batch, Int64

SEED: Final = 20260101
LEAST_TOKENS: Final = 5
DEFAULT_REACH: Final = 16

ROWS: Final = (1, 2, 3, 5)
OPTIONS: Final = (1, 2, 3, 7)


@dataclass(frozen=True, slots=True)
class TrialShape:
    """Size of one batch, and whether it ends with a row of nothing but padding."""

    rows: int
    tokens: int
    options: int
    dummy_row: bool = False

    def __str__(self) -> str:
        dummy = ", last row empty" if self.dummy_row else ""
        return f"{self.rows} rows x {self.tokens} tokens x {self.options} options{dummy}"


@dataclass(frozen=True, slots=True)
class TrialCase:
    """A batch worth running, and what its rows are called in a report."""

    title: str
    batch: Batch
    names: tuple[str, ...] = ()  # of the rows; by default they are numbered

    def row(self, index: int) -> str:
        """Name of a row."""
        return self.names[index] if self.names else f"row {index + 1} of {self.title}"


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What made-up rows depend on."""

    vocabulary: int  # token ids are below it
    parallel: bool = False
    window: int | None = None  # tokens of the sliding window, None where there is none
    positions: int | None = None  # longest sequence the encoder has positions for


def trial_shapes(facts: ModelFacts) -> list[TrialShape]:
    """Shapes worth running: every row and option count, lengths around the sliding window."""
    window = facts.window or 2 * DEFAULT_REACH
    lengths = (LEAST_TOKENS, 23, window + 1, 2 * window + 19)
    longest = facts.positions or max(lengths)
    short, medium, wide, beyond = (min(length, longest) for length in lengths)
    return [
        TrialShape(1, short, 1),
        TrialShape(1, medium, 7),
        TrialShape(1, beyond, 3),
        TrialShape(2, short, 2),
        TrialShape(2, beyond, 1),
        TrialShape(3, medium, 2),
        TrialShape(3, beyond, 7),
        TrialShape(5, wide, 3),
        TrialShape(5, medium, 1),
        TrialShape(3, medium, 3, dummy_row=True),
    ]


def made_up_cases(facts: ModelFacts) -> Iterator[TrialCase]:
    """One batch of each of the `trial_shapes`."""
    for shape in trial_shapes(facts):
        yield TrialCase(str(shape), make_batch(shape, facts))


def make_batch(shape: TrialShape, facts: ModelFacts) -> Batch:
    """Make rows of mixed lengths, types and option counts; the first one fills the rectangle."""
    rng = np.random.default_rng([SEED, shape.rows, shape.tokens, shape.options])
    qtype = (np.arange(shape.rows) + rng.integers(len(QTYPES))) % len(QTYPES)
    rows = [_row(rng, shape, facts, index) for index in range(shape.rows)]
    stacked = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    return Batch(
        input_ids=stacked["input_ids"],
        attention_mask=stacked["attention_mask"],
        marker_pos=stacked["marker_pos"],
        marker_mask=stacked["marker_mask"].astype(np.bool_),
        qtype=qtype.astype(np.int64),
        position_ids=stacked.get("position_ids"),
        option_ids=stacked.get("option_ids"),
    )


def single_rows(batch: Batch) -> Iterator[tuple[int, Batch]]:
    """Each row of a batch alone, without its padding; rows of nothing but padding are left out."""
    for index in range(len(batch)):
        tokens = int(batch.attention_mask[index].sum())
        options = int(batch.marker_mask[index].sum())
        if not tokens:
            continue
        one = slice(index, index + 1)
        alone = replace(
            batch,
            input_ids=batch.input_ids[one, :tokens],
            attention_mask=batch.attention_mask[one, :tokens],
            marker_pos=batch.marker_pos[one, :options],
            marker_mask=batch.marker_mask[one, :options],
            qtype=batch.qtype[one],
        )
        if batch.position_ids is not None and batch.option_ids is not None:
            alone = replace(
                alone,
                position_ids=batch.position_ids[one, :tokens],
                option_ids=batch.option_ids[one, :tokens],
            )
        yield index, alone


def _row(
    rng: np.random.Generator, shape: TrialShape, facts: ModelFacts, index: int
) -> dict[str, Int64]:
    if shape.dummy_row and index == shape.rows - 1:
        return _padded(shape, facts, np.zeros(0, np.int64), np.zeros(0, np.int64))
    tokens, options = shape.tokens, min(shape.options, shape.tokens - 3)
    if index:
        options = int(rng.integers(1, options + 1))
        tokens = int(rng.integers(min(tokens, options + 3), tokens + 1))
    ids = rng.integers(0, facts.vocabulary, tokens)
    markers = 1 + np.sort(rng.permutation(tokens - 2)[:options])
    return _padded(shape, facts, ids, markers)


def _padded(shape: TrialShape, facts: ModelFacts, ids: Int64, markers: Int64) -> dict[str, Int64]:
    spare, empty = shape.tokens - len(ids), shape.options - len(markers)
    row = {
        "input_ids": np.pad(ids, (0, spare)),
        "attention_mask": np.pad(np.ones_like(ids), (0, spare)),
        "marker_pos": np.pad(markers, (0, empty)),
        "marker_mask": np.pad(np.ones_like(markers), (0, empty)),
    }
    if facts.parallel:
        # The head ends somewhere behind the last marker, as it does in front of a state.
        head = int((markers.max(initial=0) + len(ids)) // 2) + 1
        layout = parallel_layout([int(marker) for marker in markers], head, len(ids))
        row["position_ids"] = np.pad(layout.position_ids, (0, spare))
        row["option_ids"] = np.pad(layout.option_ids, (0, spare))
    return row
