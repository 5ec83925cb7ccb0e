"""A runtime that remembers what went through another one, and an agent on it."""

import warnings

import drut
from drut.batching import PassPolicy
from drut.checkpoint.opened import Checkpoint
from drut.execution.direct import DirectRunner
from drut.execution.passes import PassRunner
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


def recorded_agent(checkpoint: Checkpoint, runtime: Runtime) -> tuple[drut.Agent, RecordingRuntime]:
    """An agent that computes equal rows as often as they come, one pass per chunk, as upstream."""
    recording = RecordingRuntime(runtime)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # golden temperatures are clamped
        agent = drut.Agent(checkpoint, runtime=recording)
    whole = PassRunner(
        recording, PassPolicy(max_tokens=1 << 40), pad_id=checkpoint.tokenizer.pad_id
    )
    agent._pipeline.runner = DirectRunner(whole)
    return agent, recording
