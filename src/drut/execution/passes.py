"""One pass: rows are padded, run and cut apart again, in halves where memory does not suffice."""

import logging
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Any, Final

import numpy as np

from drut.batching import PassPolicy, collate, plan_batches
from drut.errors import ForwardError, OutOfMemoryError
from drut.runtimes.base import Runtime
from drut.tensors import MASKED_LOGIT, Batch, EncodedRow, Logits

_log: Final = logging.getLogger(__name__)


class PassRunner:
    """Runs all the rows it is given in one forward pass. Safe to call from many threads.

    If memory does not suffice it runs them in halves, and plans within half the budget from then
    on.
    """

    def __init__(self, runtime: Runtime, policy: PassPolicy, *, pad_id: int) -> None:
        self.runtime = runtime
        self._policy = policy
        self._pad_id = pad_id
        self._lock = Lock()  # guards the policy and the totals
        self._passes = self._rows = self._real = self._padded = 0

    @property
    def policy(self) -> PassPolicy:
        """The policy in force."""
        return self._policy

    def plan(self, rows: Sequence[EncodedRow]) -> list[list[int]]:
        """Indices of the rows of each pass."""
        return list(plan_batches([len(row.ids) for row in rows], self._policy))

    def fits(self, rows: int, shortest: int, longest: int) -> bool:
        """Whether so many rows, of so many tokens at least and at most, belong into one pass."""
        return self._policy.fits(rows, shortest, longest)

    def run(self, rows: Sequence[EncodedRow]) -> Logits:
        """Logits of every row, in the rows' order.

        Raises:
            OutOfMemoryError: not even one row fits into memory.
            ForwardError: the pass failed.
        """
        batch = collate(rows, pad_id=self._pad_id, policy=self._policy)
        try:
            logits = self._forward(batch)
        except MemoryError as exc:
            return self._in_halves(rows, batch, exc)
        self._count(rows, batch)
        return Logits(logits.options[: len(rows)], logits.actions[: len(rows)])

    def statistics(self) -> dict[str, Any]:
        """Totals so far, and the budget in force: smaller than asked for if memory ran out."""
        with self._lock:
            return {
                "passes": self._passes,
                "computed_rows": self._rows,
                "real_tokens": self._real,
                "computed_tokens": self._padded,
                "padding": 1.0 - self._real / self._padded if self._padded else 0.0,
                "max_batch_tokens": self._policy.max_tokens,
            }

    def close(self) -> None:
        """Close the runtime."""
        self.runtime.close()

    def _forward(self, batch: Batch) -> Logits:
        logits = self.runtime.forward(batch)
        rows, options = batch.marker_mask.shape
        if logits.options.shape != (rows, options) or len(logits.actions) != rows:
            raise ForwardError(
                f"the runtime answered {logits.options.shape} logits and {len(logits.actions)} act "
                f"rows to a batch of {rows} rows with {options} options"
            )
        return logits

    def _in_halves(self, rows: Sequence[EncodedRow], batch: Batch, exc: MemoryError) -> Logits:
        size = batch.input_ids.size
        if len(rows) == 1:
            raise OutOfMemoryError(
                f"a forward pass of one row of {size} tokens does not fit into memory ({exc}); "
                "lower max_len, free memory, or use another device"
            ) from exc
        with self._lock:
            smaller = max(1, size // 2)
            shrunk = smaller < self._policy.max_tokens
            if shrunk:
                self._policy = self._policy.within(smaller)
        if shrunk:
            _log.warning(
                "a pass of %d tokens did not fit into memory; max_batch_tokens is %d from here on",
                size,
                smaller,
            )
        middle = (len(rows) + 1) // 2
        return joined([self.run(rows[:middle]), self.run(rows[middle:])])

    def _count(self, rows: Sequence[EncodedRow], batch: Batch) -> None:
        real = sum(len(row.ids) for row in rows)
        with self._lock:
            self._passes += 1
            self._rows += len(rows)
            self._real += real
            self._padded += batch.input_ids.size


def joined(parts: Sequence[Logits]) -> Logits:
    """Logits of passes one below the other."""
    if len(parts) == 1:
        return parts[0]
    width = max(part.options.shape[1] for part in parts)
    return Logits(
        np.concatenate([widened(part, width).options for part in parts]),
        np.concatenate([part.actions for part in parts]),
    )


def widened(logits: Logits, width: int) -> Logits:
    """The same logits with so many options, masked where there were none."""
    spare = width - logits.options.shape[1]
    if spare <= 0:
        return Logits(logits.options[:, :width], logits.actions)
    options = np.pad(logits.options, ((0, 0), (0, spare)), constant_values=MASKED_LOGIT)
    return Logits(options, logits.actions)


def in_order(parts: Iterator[tuple[Sequence[int], Logits]], rows: int, width: int) -> Logits:
    """Put the logits of passes where their rows are.

    Args:
        parts: indices of the rows of a pass, and its logits.
        rows: number of all rows.
        width: options of the widest row.
    """
    options = np.full((rows, width), MASKED_LOGIT, np.float32)
    actions = None
    for places, logits in parts:
        if actions is None:
            actions = np.empty((rows, *logits.actions.shape[1:]), logits.actions.dtype)
        options[places] = widened(logits, width).options
        actions[places] = logits.actions
    assert actions is not None
    return Logits(options, actions)
