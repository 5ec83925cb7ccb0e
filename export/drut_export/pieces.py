"""A runtime that takes few rows at a time answers batches of any size, piece by piece."""

from dataclasses import replace
from typing import Any

import numpy as np

from drut.runtimes.base import Runtime, RuntimeInfo
from drut.tensors import Batch, Logits


class InPieces:
    """Hands a batch to a runtime in pieces of at most as many rows as its `max_rows`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @property
    def info(self) -> RuntimeInfo:
        """Facts about what runs."""
        return self._runtime.info

    def forward(self, batch: Batch) -> Logits:
        """Run one batch; row i of the result answers row i."""
        most = self.info.max_rows or len(batch)
        answers = [
            self._runtime.forward(_rows(batch, slice(start, start + most)))
            for start in range(0, len(batch), most)
        ]
        return Logits(
            np.concatenate([each.options for each in answers]),
            np.concatenate([each.actions for each in answers]),
        )

    def close(self) -> None:
        """Close the runtime behind."""
        self._runtime.close()


def _rows(batch: Batch, rows: slice) -> Batch:
    feed: dict[str, Any] = {name: array[rows] for name, array in batch.feed().items()}
    return replace(batch, **feed)
