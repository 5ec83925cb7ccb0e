"""However rows are divided into passes, a real graph answers them the same."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import drut
from drut.batching import PassPolicy
from drut.errors import ForwardError, RuntimeClosedError
from drut.execution.base import RowRunner
from drut.execution.direct import DirectRunner, DistinctRunner, widest
from drut.execution.passes import PassRunner
from drut.execution.queue import queued
from drut.pipeline import InferenceOptions, Pipeline
from drut.schema import Prediction
from drut.settings import shipped_repository
from drut.tensors import EncodedRow, Logits
from tiny_checkpoint import CHOICE, NOUL

ASKED = {**NOUL, **CHOICE}

POLICIES = {
    "all in one pass": PassPolicy(),
    "row by row": PassPolicy(max_rows=1),
    "rows of one length": PassPolicy(max_padding=0.0),
    "a small budget": PassPolicy(max_tokens=150),
    "rounded shapes": PassPolicy(bucket_tokens=True, bucket_rows=True),
    "spread": PassPolicy(spread=3),
}


def row(value: int, tokens: int = 4) -> EncodedRow:
    return EncodedRow(np.full(tokens, value), np.arange(2), 0, {})  # type: ignore[typeddict-item]


def states() -> list[str]:
    """States of many lengths, some of them twice."""
    texts = [f"state {index} " + "and so on " * (index % 5) for index in range(9)]
    return [*texts, *texts[::4]]


@pytest.fixture(scope="module")
def starter() -> Iterator[drut.Agent]:
    with drut.load(shipped_repository() / "starter", device="cpu", threads=1) as agent:
        yield agent


@pytest.fixture(scope="module")
def alone(starter: drut.Agent) -> list[Prediction]:
    return [starter.predict(state, ASKED) for state in states()]


@pytest.mark.parametrize("queue", [False, True], ids=["direct", "queue"])
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_answers_of_a_real_graph_are_those_of_the_states_alone(
    starter: drut.Agent, alone: list[Prediction], policy: PassPolicy, queue: bool
) -> None:
    passes = PassRunner(starter.runtime, policy, pad_id=starter.checkpoint.tokenizer.pad_id)
    runner = DistinctRunner(queued(passes) if queue else DirectRunner(passes))
    pipeline = Pipeline(starter.checkpoint, starter.runtime, starter.calibration, runner=runner)
    assert pipeline.answer(states(), ASKED, InferenceOptions()) == alone


def test_batches_of_a_call_change_no_answer(starter: drut.Agent, alone: list[Prediction]) -> None:
    for options in (
        {"batch_size": 1},
        {"batch_size": 5},
        {"batch_size": 3, "sort_by_length": True},
    ):
        assert starter.predict_batch(states(), ASKED, **options) == alone  # type: ignore[arg-type]


class Counting:
    """A runner that notes what it is given and answers with a row's first token."""

    def __init__(self) -> None:
        self.given: list[list[int]] = []
        self.closed = 0
        self._lock = threading.Lock()

    def run(self, rows: Sequence[EncodedRow]) -> Logits:
        first = [int(each.ids[0]) for each in rows]
        with self._lock:
            self.given.append(first)
        options = np.asarray(first, np.float32)[:, None].repeat(widest(rows), axis=1)
        return Logits(options, np.zeros((len(rows), 1), np.float32))

    def statistics(self) -> dict[str, Any]:
        return {"passes": len(self.given)}

    def close(self) -> None:
        self.closed += 1


def test_repeated_rows_are_handed_on_once_in_the_order_they_came() -> None:
    inner = Counting()
    runner: RowRunner = DistinctRunner(inner)
    logits = runner.run([row(3), row(1), row(3), row(2), row(1)])
    assert inner.given == [[3, 1, 2]]
    assert logits.options[:, 0].tolist() == [3, 1, 3, 2, 1]


def test_what_repeats_between_runners_is_counted_by_both() -> None:
    inner = DistinctRunner(Counting())
    outer = DistinctRunner(inner)
    outer.run([row(1), row(1), row(2)])
    outer.run([row(1)])
    assert outer.statistics() == {"passes": 2, "rows": 4, "repeated_rows": 1}


def test_counting_loses_nothing_under_threads() -> None:
    runner = DistinctRunner(Counting())
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: runner.run([row(1), row(1), row(2)]), range(200)))
        list(pool.map(lambda _: runner.run([row(1)]), range(200)))
    assert runner.statistics() == {"passes": 400, "rows": 800, "repeated_rows": 200}


def test_closing_reaches_the_runtime() -> None:
    inner = Counting()
    DistinctRunner(inner).close()
    assert inner.closed == 1
    runtime = drut.FakeRuntime()
    DirectRunner(PassRunner(runtime, PassPolicy(), pad_id=0)).close()
    with pytest.raises(RuntimeClosedError):
        runtime.forward(None)  # type: ignore[arg-type]


def test_a_pass_that_fails_ends_the_call_and_not_the_runner() -> None:
    def failing(batch: Any) -> Logits:
        if (batch.input_ids == 13).any():
            raise ForwardError("unlucky")
        return Logits(np.zeros((len(batch), 2), np.float32), np.zeros((len(batch), 1), np.float32))

    runner = DirectRunner(PassRunner(drut.FakeRuntime(failing), PassPolicy(max_rows=1), pad_id=0))
    with pytest.raises(ForwardError, match="unlucky"):
        runner.run([row(1), row(13), row(2)])
    assert runner.run([row(1), row(2)]).options.shape == (2, 2)
