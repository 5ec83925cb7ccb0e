"""A runtime that remembers what went through another one."""

from drut.runtimes.base import Runtime, RuntimeInfo
from drut.tensors import Batch, Logits


class RecordingRuntime:
    """Passes every batch on and keeps batches and logits."""

    def __init__(self, inner: Runtime) -> None:
        self._inner = inner
        self.batches: list[Batch] = []
        self.logits: list[Logits] = []

    @property
    def info(self) -> RuntimeInfo:
        return self._inner.info

    def forward(self, batch: Batch) -> Logits:
        logits = self._inner.forward(batch)
        self.batches.append(batch)
        self.logits.append(logits)
        return logits

    def close(self) -> None:
        self._inner.close()

    def clear(self) -> None:
        self.batches.clear()
        self.logits.clear()

    def shapes(self) -> list[list[int]]:
        """[rows, tokens, options] of every batch."""
        return [[*batch.input_ids.shape, batch.marker_pos.shape[1]] for batch in self.batches]
