"""A runtime for tests: a function answers, and every batch is remembered."""

from collections.abc import Callable

import numpy as np

from drut.errors import RuntimeClosedError
from drut.runtimes.base import RuntimeInfo
from drut.tensors import MASKED_LOGIT, Batch, Logits


def rising_logits(batch: Batch) -> Logits:
    """Deterministic logits: slot i of every row gets i, and the act head gets zeros."""
    slots = np.arange(batch.marker_mask.shape[1], dtype=np.float32)
    options = np.where(batch.marker_mask, slots, np.float32(MASKED_LOGIT))
    return Logits(options, np.zeros((len(batch), 2), np.float32))


class FakeRuntime:
    """Answers with a plain function instead of a graph."""

    def __init__(
        self, answer: Callable[[Batch], Logits] = rising_logits, *, parallel: bool = False
    ) -> None:
        self.batches: list[Batch] = []  # every batch of `forward`, in order
        self._answer = answer
        self._parallel = parallel
        self._closed = False

    @property
    def info(self) -> RuntimeInfo:
        return RuntimeInfo("fake", "cpu", parallel=self._parallel)

    def forward(self, batch: Batch) -> Logits:
        if self._closed:
            raise RuntimeClosedError("the runtime is closed")
        self.batches.append(batch)
        return self._answer(batch)

    def close(self) -> None:
        self._closed = True
