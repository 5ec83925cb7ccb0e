"""Rows run on the caller's thread, pass by pass; what several of them share is computed once."""

from collections.abc import Sequence
from threading import Lock
from typing import Any

import numpy as np

from drut.execution.base import RowRunner
from drut.execution.passes import PassRunner, in_order, widened
from drut.tensors import EncodedRow, Logits


class DirectRunner:
    """Plans the rows of a call and runs its passes one after the other."""

    def __init__(self, passes: PassRunner) -> None:
        self._passes = passes

    def run(self, rows: Sequence[EncodedRow]) -> Logits:
        width = widest(rows)
        groups = self._passes.plan(rows)
        if len(groups) == 1:  # which keeps the order of the rows
            return widened(self._passes.run(rows), width)
        parts = ((group, self._passes.run([rows[at] for at in group])) for group in groups)
        return in_order(parts, len(rows), width)

    def statistics(self) -> dict[str, Any]:
        return self._passes.statistics()

    def close(self) -> None:
        self._passes.close()


class DistinctRunner:
    """Hands identical rows of a call on once: same tokens, same markers, same answer.

    Exact: a row's logits depend on nothing but the row.
    """

    def __init__(self, inner: RowRunner) -> None:
        self._inner = inner
        self._lock = Lock()  # guards the totals
        self._rows = self._repeated = 0

    def run(self, rows: Sequence[EncodedRow]) -> Logits:
        if len(rows) == 1:
            with self._lock:
                self._rows += 1
            return self._inner.run(rows)
        found: dict[tuple[object, ...], int] = {}
        places = [found.setdefault(row_key(row), len(found)) for row in rows]
        with self._lock:
            self._rows += len(rows)
            self._repeated += len(rows) - len(found)
        if len(found) == len(rows):
            return self._inner.run(rows)
        first = np.unique(places, return_index=True)[1]
        logits = self._inner.run([rows[at] for at in first])
        return Logits(logits.options[places], logits.actions[places])

    def statistics(self) -> dict[str, Any]:
        inner = self._inner.statistics()
        with self._lock:
            repeated = self._repeated + int(inner.get("repeated_rows", 0))
            return {**inner, "rows": self._rows, "repeated_rows": repeated}

    def close(self) -> None:
        self._inner.close()


def row_key(row: EncodedRow) -> tuple[object, ...]:
    """Everything of a row that the graph reads, hashable."""
    layout = (
        None if row.position_ids is None else row.position_ids.tobytes(),
        None if row.option_ids is None else row.option_ids.tobytes(),
    )
    return (row.qtype, row.ids.tobytes(), row.markers.tobytes(), *layout)


def widest(rows: Sequence[EncodedRow]) -> int:
    """Options of the widest row, at least one."""
    return max(1, max(len(row.markers) for row in rows))
