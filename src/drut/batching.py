"""Which rows run together, and how they are padded to one rectangle."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from drut.tensors import Batch, Bool, EncodedRow, Int64

DEFAULT_MAX_TOKENS: Final = 8192
"""Padded tokens of one pass, where nothing is known about the device."""

CPU_MAX_TOKENS: Final = 1024
"""Padded tokens of a pass on a CPU: larger ones leave its caches, and are slower for each row."""

CPU_PADDING: Final = 0.1
"""Share of padding in a pass on a CPU, where padding costs what real tokens cost and rows gain
nothing from company. Measured: docs/decisions/0010-planning-passes.md."""

_FINE_BUCKET: Final = 16
_COARSE_BUCKET: Final = 64
_FINE_UP_TO: Final = 256


@dataclass(frozen=True, slots=True)
class PassPolicy:
    """How rows become passes: never by their number alone."""

    max_tokens: int = DEFAULT_MAX_TOKENS  # padded tokens of a pass; one longer row runs alone
    max_rows: int | None = None  # rows of a pass, None: any number
    max_padding: float = 1.0  # share of the longest row that the shortest may lack
    bucket_tokens: bool = False  # round lengths and options up, so that shapes repeat
    bucket_rows: bool = False  # the same for the number of rows
    max_positions: int | None = None  # tokens the encoder has positions for, however rounded
    concurrent_passes: int = 1  # worth having in flight at the same time
    spread: int = 1  # passes that a call with enough rows is divided into at least

    def fits(self, rows: int, shortest: int, longest: int) -> bool:
        """Whether so many rows, of so many tokens at least and at most, belong into one pass."""
        if self.max_rows is not None and rows > self.max_rows:
            return False
        if longest - shortest > self.max_padding * longest:
            return False
        return self.rows_of(rows) * self.tokens_of(longest) <= self.max_tokens

    def tokens_of(self, longest: int) -> int:
        """Width of the rectangle for rows of at most so many tokens."""
        if not self.bucket_tokens:
            return longest
        step = _FINE_BUCKET if longest <= _FINE_UP_TO else _COARSE_BUCKET
        rounded = -(-longest // step) * step
        if self.max_positions is None:
            return rounded
        return max(longest, min(rounded, self.max_positions))

    def options_of(self, widest: int) -> int:
        """Width of the markers for rows of at most so many options."""
        return _power_of_two(max(2, widest)) if self.bucket_tokens else max(1, widest)

    def rows_of(self, rows: int) -> int:
        """Height of the rectangle for so many rows."""
        if not self.bucket_rows:
            return rows
        height = _power_of_two(rows)
        return rows if self.max_rows is not None and height > self.max_rows else height

    def within(self, max_tokens: int) -> "PassPolicy":
        """The same with another budget."""
        return replace(self, max_tokens=max_tokens)


def plan_batches(lengths: Sequence[int], policy: PassPolicy) -> Iterator[list[int]]:
    """Group row indices into passes, shortest rows first.

    A row that fits no pass runs alone. Inside a group rows keep their order.
    """
    if policy.spread > 1 and lengths:
        # Rounded up to a whole row, so that equal rows make no pass more than asked for.
        share = -(-sum(lengths) // policy.spread) + max(lengths) - 1
        policy = policy.within(min(policy.max_tokens, share))
    group: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        # Ascending, so the newcomer is the longest of the group.
        if group and not policy.fits(len(group) + 1, lengths[group[0]], lengths[index]):
            yield sorted(group)
            group = []
        group.append(index)
    if group:
        yield sorted(group)


def collate(rows: Sequence[EncodedRow], *, pad_id: int, policy: PassPolicy | None = None) -> Batch:
    """Pad rows on the right to one rectangle.

    Args:
        rows: at least one; all of them with the parallel layout, or none.
        pad_id: token id of the padding.
        policy: rounds the rectangle up; the last row is repeated where rows are added.
    """
    if policy is not None:
        rows = [*rows, *[rows[-1]] * (policy.rows_of(len(rows)) - len(rows))]
    real = _places([len(row.ids) for row in rows])
    used = _places([len(row.markers) for row in rows])
    if policy is not None:
        real = real.widened(policy.tokens_of(real.width))
        used = used.widened(policy.options_of(used.width))
    parallel = any(row.position_ids is not None for row in rows)
    return Batch(
        input_ids=real.filled([row.ids for row in rows], pad_id),
        attention_mask=real.mask().astype(np.int64),
        marker_pos=used.filled([row.markers for row in rows], 0),
        marker_mask=used.mask(),
        qtype=np.fromiter((row.qtype for row in rows), np.int64, len(rows)),
        position_ids=real.filled([_given(row.position_ids) for row in rows], 0)
        if parallel
        else None,
        option_ids=real.filled([_given(row.option_ids) for row in rows], 0) if parallel else None,
    )


def made_up(shape: tuple[int, int, int], *, pad_id: int, parallel: bool) -> Batch:
    """A batch that says nothing, for warming a runtime up.

    Args:
        shape: rows, tokens, options.
        pad_id: token id that fills it.
        parallel: whether the graph takes the parallel layout.
    """
    rows, tokens, options = shape
    layout = np.zeros((rows, tokens), np.int64) if parallel else None
    return Batch(
        input_ids=np.full((rows, tokens), pad_id, np.int64),
        attention_mask=np.ones((rows, tokens), np.int64),
        marker_pos=np.zeros((rows, options), np.int64),
        marker_mask=np.ones((rows, options), np.bool_),
        qtype=np.zeros(rows, np.int64),
        position_ids=layout,
        option_ids=layout,
    )


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the values of rows are in a rectangle that is padded on the right."""

    lengths: Sequence[int]
    width: int

    @property
    def full(self) -> bool:
        """Whether there is no padding, as for one row, and for rows of one length on a CPU."""
        return min(self.lengths) == self.width

    def widened(self, width: int) -> "_Places":
        return _Places(self.lengths, width)

    def mask(self) -> Bool:
        """[rows, width], true where a row has a value."""
        if self.full:
            return np.ones((len(self.lengths), self.width), np.bool_)
        lengths = np.asarray(self.lengths, np.int64)
        mask: Bool = np.arange(self.width) < lengths[:, None]
        return mask

    def filled(self, pieces: Sequence[Int64], fill: int) -> Int64:
        """Put the pieces, row by row, where the mask is true."""
        together = np.concatenate(pieces)
        if self.full:
            return together.reshape(len(self.lengths), self.width)
        rectangle = np.full((len(self.lengths), self.width), fill, np.int64)
        rectangle[self.mask()] = together
        return rectangle


def _places(lengths: Sequence[int]) -> _Places:
    return _Places(lengths, max(1, max(lengths)))


def _given(ids: Int64 | None) -> Int64:
    if ids is None:
        raise ValueError("rows with and without the parallel layout cannot share a batch")
    return ids


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()
