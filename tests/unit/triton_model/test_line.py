"""Passes are shared, answers are not, and nobody waits longer than they said."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from drut.batching import PassPolicy
from drut.checkpoint.opened import Checkpoint
from drut.decoding.calibration import Calibration
from drut.errors import (
    DeadlineExceededError,
    NonFiniteOutputError,
    OverloadedError,
    ServerFaultError,
)
from drut.pipeline import InferenceOptions
from drut.runtimes.fake import FakeRuntime
from drut.tensors import Batch, Logits
from drut.triton_model.answering import Answerer, Call, CallerGoneError
from drut.triton_model.line import Forward, Line
from drut.triton_model.payload import Ask
from tiny_checkpoint import ALL, NOUL, SCORE, checkpoint, pipeline, text_of

POISON = "poison"


class Graph:
    """Answers like the fake runtime, remembers batches, and fails where it is told to."""

    def __init__(self, fails: Callable[[Batch], Exception | None] = lambda _: None) -> None:
        self.batches: list[Batch] = []
        self.seconds: list[float | None] = []
        self.at_once = self.most_at_once = 0
        self.fails = fails
        self.runtime = FakeRuntime()

    async def __call__(self, batch: Batch, seconds: float | None) -> Logits:
        self.batches.append(batch)
        self.seconds.append(seconds)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if (error := self.fails(batch)) is not None:
            raise error
        return self.runtime.forward(batch)


def answerer(opened: Checkpoint | None = None, **options: Any) -> Answerer:
    policy = PassPolicy(**options)
    return Answerer(opened or checkpoint(), FakeRuntime(), Calibration(), policy)


def answers(calls: list[Call], graph: Forward, made: Answerer) -> list[Any]:
    async def run() -> list[Any]:
        return await Line(made, graph).answer(calls)

    return asyncio.run(run())


def prepared(made: Answerer, *asked: tuple[Any, Any], **options: Any) -> list[Call]:
    return [made.prepare(Ask(state, questions, options)) for state, questions in asked]


def test_answers_are_those_of_the_pipeline_for_any_mixture_of_requests() -> None:
    made, graph = answerer(), Graph()
    asked = [("It crashes", ALL), ("", NOUL), (text_of(40), SCORE), (["a", {"b": 1}], ALL)]
    found = answers(prepared(made, *asked), graph, made)
    for result, (state, questions) in zip(found, asked, strict=True):
        assert [result] == pipeline().answer([state], questions, InferenceOptions())


def test_rows_of_all_requests_share_one_pass() -> None:
    made, graph = answerer(), Graph()
    answers(prepared(made, *[(text_of(n), ALL) for n in range(1, 21)]), graph, made)
    assert [len(batch) for batch in graph.batches] == [60]


def test_passes_keep_to_the_token_budget_and_the_rows_of_the_graph() -> None:
    made, graph = answerer(max_tokens=400, max_rows=5), Graph()
    asked = [(text_of(n), NOUL) for n in range(1, 41)]
    found = answers(prepared(made, *asked), graph, made)
    assert sum(len(batch) for batch in graph.batches) == 40
    assert all(len(batch) <= 5 for batch in graph.batches)
    assert all(batch.input_ids.size <= 400 for batch in graph.batches)
    assert graph.most_at_once == 1 < len(graph.batches)
    tokens = [result["usage"]["input_tokens"] for result in found]
    assert tokens == sorted(tokens), "every request has its own usage"


def test_alike_lengths_run_together_so_that_little_is_padding() -> None:
    made, graph = answerer(max_tokens=600), Graph()
    asked = [(text_of(3 if n % 2 else 90), NOUL) for n in range(12)]
    answers(prepared(made, *asked), graph, made)
    for batch in graph.batches:
        lengths = batch.attention_mask.sum(axis=1)
        assert lengths.min() == lengths.max()


def test_no_requests_and_no_questions_cost_nothing() -> None:
    made, graph = answerer(), Graph()
    assert answers([], graph, made) == []
    (empty,) = answers(prepared(made, ("x", {})), graph, made)
    assert empty["answers"] == {}
    assert graph.batches == []


def poisoned(batch: Batch) -> Exception | None:
    bad = batch.attention_mask.sum(axis=1).max() > 100
    return ServerFaultError("the graph failed") if bad else None


def test_a_row_that_breaks_its_pass_fails_alone() -> None:
    made, graph = answerer(), Graph(poisoned)
    asked = [("a", ALL), (text_of(120), NOUL), ("b", ALL)]
    first, bad, last = answers(prepared(made, *asked), graph, made)
    assert isinstance(bad, ServerFaultError)
    assert set(first["answers"]) == set(last["answers"]) == set(ALL)


def test_a_busy_server_is_not_asked_again_row_by_row() -> None:
    made, graph = answerer(), Graph(lambda _: OverloadedError("full"))
    found = answers(prepared(made, ("a", ALL), ("b", ALL)), graph, made)
    assert [type(each) for each in found] == [OverloadedError] * 2
    assert len(graph.batches) == 1


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_number_that_is_none_is_the_fault_of_its_own_request(value: float) -> None:
    made = answerer()

    async def forward(batch: Batch, seconds: float | None) -> Logits:
        logits = FakeRuntime().forward(batch)
        options = logits.options.copy()
        options[batch.attention_mask.sum(axis=1) > 100] = value
        return Logits(options, logits.actions)

    asked = [("a", ALL), (text_of(120), NOUL)]
    good, bad = answers(prepared(made, *asked), forward, made)
    assert isinstance(bad, NonFiniteOutputError)
    assert isinstance(good, dict)


@pytest.mark.parametrize("cut", [lambda a: a[:1], lambda a: a[:, :1]])
def test_logits_of_another_shape_are_refused(cut: Callable[[Any], Any]) -> None:
    made = answerer()

    async def forward(batch: Batch, seconds: float | None) -> Logits:
        logits = FakeRuntime().forward(batch)
        return Logits(cut(logits.options), logits.actions)

    (found,) = answers(prepared(made, ("a", ALL)), forward, made)
    assert isinstance(found, ServerFaultError)


def test_a_request_whose_time_is_over_is_not_run() -> None:
    made, graph = answerer(), Graph()
    late = made.prepare(Ask("a", NOUL, {}), time.monotonic() - 1)
    (found,) = answers([late], graph, made)
    assert isinstance(found, DeadlineExceededError)
    assert graph.batches == []


def test_one_whose_time_is_over_is_no_reason_to_let_others_wait_less() -> None:
    made, graph = answerer(), Graph()
    now = time.monotonic()
    calls = [
        made.prepare(Ask("a", NOUL, {}), now - 1),
        made.prepare(Ask("b", NOUL, {}), now + 60),
    ]
    late, good = answers(calls, graph, made)
    assert isinstance(late, DeadlineExceededError)
    assert isinstance(good, dict)
    (seconds,) = graph.seconds
    assert seconds == pytest.approx(60, abs=5)
    assert [len(batch) for batch in graph.batches] == [1]


def test_a_pass_waits_as_long_as_the_most_patient_of_its_callers() -> None:
    made, graph = answerer(), Graph()
    now = time.monotonic()
    calls = [made.prepare(Ask("a", NOUL, {}), now + seconds) for seconds in (30, 90, 60)]
    answers(calls, graph, made)
    assert graph.seconds == [pytest.approx(90, abs=5)]


def test_shapes_are_rounded_up_where_the_policy_says_so() -> None:
    made, graph = answerer(bucket_tokens=True, bucket_rows=True), Graph()
    asked = [("a", ALL), (text_of(9), NOUL), ("b", NOUL)]
    found = answers(prepared(made, *asked), graph, made)
    (batch,) = graph.batches
    assert batch.input_ids.shape[0] == 8
    assert batch.input_ids.shape[1] % 16 == 0
    assert [list(each["answers"]) for each in found] == [list(ALL), list(NOUL), list(NOUL)]


def test_without_a_timeout_a_pass_may_wait() -> None:
    made, graph = answerer(), Graph()
    calls = [
        made.prepare(Ask("a", NOUL, {}), time.monotonic() + 9),
        made.prepare(Ask("b", NOUL, {})),
    ]
    answers(calls, graph, made)
    assert graph.seconds == [None]


def test_an_answer_that_comes_too_late_is_an_error() -> None:
    made = answerer()

    async def forward(batch: Batch, seconds: float | None) -> Logits:
        await asyncio.sleep(0.1)
        return FakeRuntime().forward(batch)

    call = made.prepare(Ask("a", NOUL, {}), time.monotonic() + 0.05)
    (found,) = answers([call], forward, made)
    assert isinstance(found, DeadlineExceededError)


def test_a_caller_that_is_gone_costs_no_pass_and_gets_no_answer() -> None:
    made, graph = answerer(), Graph()
    calls = [
        made.prepare(Ask("a", NOUL, {}), gone=lambda: True),
        made.prepare(Ask("b", NOUL, {})),
    ]
    gone, here = answers(calls, graph, made)
    assert isinstance(gone, CallerGoneError)
    assert isinstance(here, dict)
    assert [len(batch) for batch in graph.batches] == [1]


def test_a_caller_that_goes_during_the_pass_gets_no_answer() -> None:
    made, graph = answerer(), Graph()
    call = made.prepare(Ask("a", NOUL, {}), gone=lambda: bool(graph.batches))
    (found,) = answers([call], graph, made)
    assert isinstance(found, CallerGoneError)


def test_options_reach_the_encoder_the_decoder_and_the_gate() -> None:
    made, graph = answerer(), Graph()
    asked = prepared(made, (text_of(200), NOUL), max_len=64, min_confidence=0.99, lang="de")
    (found,) = answers(asked, graph, made)
    assert found["usage"]["truncated"]
    assert found["answers"]["urgent"]["abstention_threshold"] == 0.99
    assert graph.batches[0].input_ids.shape == (1, 64)


def test_a_bug_is_told_to_those_whose_rows_met_it() -> None:
    made = answerer()
    graph = Graph(lambda batch: KeyError("a bug") if poisoned(batch) else None)
    asked = [("a", ALL), (text_of(120), NOUL), ("b", ALL)]
    first, bad, last = answers(prepared(made, *asked), graph, made)
    assert isinstance(bad, KeyError)
    assert set(first["answers"]) == set(last["answers"]) == set(ALL)


def test_as_many_passes_run_at_once_as_are_worth_it() -> None:
    made, graph = answerer(max_rows=2, concurrent_passes=3), Graph()
    answers(prepared(made, *[(text_of(n), NOUL) for n in range(20)]), graph, made)
    assert (graph.most_at_once, len(graph.batches)) == (3, 10)


class Gate:
    """A graph whose passes end when they are told to."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.open = asyncio.Semaphore(0)

    async def __call__(self, batch: Batch, seconds: float | None) -> Logits:
        self.batches.append(batch)
        await self.open.acquire()
        return FakeRuntime().forward(batch)

    async def begun(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.batches) < count:
                await asyncio.sleep(0.001)


def test_calls_that_come_during_a_pass_share_the_next_one() -> None:
    made = answerer()

    async def run() -> list[int]:
        gate = Gate()
        line = Line(made, gate)
        tasks = []
        for n, (first, last) in enumerate(((0, 1), (1, 8), (8, 24))):
            tasks += [
                asyncio.create_task(line.answer(prepared(made, (text_of(k), NOUL))))
                for k in range(first, last)
            ]
            if n < 2:
                await gate.begun(1)  # the first pass alone
                await asyncio.sleep(0.01)
        for _ in range(2):
            gate.open.release()
        async with asyncio.timeout(10):
            found = await asyncio.gather(*tasks)
        assert all(each["answers"] for (each,) in found)
        return [len(batch) for batch in gate.batches]

    assert asyncio.run(run()) == [1, 23]


def test_the_oldest_row_is_in_the_next_pass_whatever_its_length() -> None:
    made = answerer(max_padding=0.1)

    async def run() -> list[int]:
        gate = Gate()
        line = Line(made, gate)
        first = asyncio.create_task(line.answer(prepared(made, ("a", NOUL))))
        await gate.begun(1)
        long = asyncio.create_task(line.answer(prepared(made, (text_of(150), NOUL))))
        await asyncio.sleep(0)
        short = asyncio.create_task(line.answer(prepared(made, *[("b", NOUL)] * 9)))
        await asyncio.sleep(0.01)
        for _ in range(3):
            gate.open.release()
        async with asyncio.timeout(10):
            await asyncio.gather(first, long, short)
        return [batch.input_ids.shape[1] for batch in gate.batches]

    widths = asyncio.run(run())
    assert widths[1] > 100 > widths[2]


def test_a_deadline_is_kept_to_the_moment_also_while_a_pass_runs() -> None:
    made = answerer()

    async def run() -> None:
        gate = Gate()
        line = Line(made, gate)
        start = time.monotonic()
        calls = [made.prepare(Ask(text, NOUL, {}), start + 0.05) for text in ("runs", "waits")]
        running = asyncio.create_task(line.answer(calls[:1]))
        await gate.begun(1)
        waiting = asyncio.create_task(line.answer(calls[1:]))
        for (found,) in await asyncio.gather(running, waiting):
            assert isinstance(found, DeadlineExceededError)
        assert time.monotonic() - start < 5
        patient = asyncio.create_task(line.answer(prepared(made, ("c", NOUL))))
        gate.open.release()
        gate.open.release()
        async with asyncio.timeout(10):
            assert (await patient)[0]["answers"]
        assert [len(batch) for batch in gate.batches] == [1, 1], "nobody waited for the second"

    asyncio.run(run())


def test_a_call_is_not_asked_after_it_has_been_answered() -> None:
    """The server has let go of its request then."""
    made = answerer()
    asked_late = []

    async def run() -> None:
        gate = Gate()
        over = False

        def gone() -> bool:
            asked_late.append(over)
            return False

        late = made.prepare(Ask("a", NOUL, {}), time.monotonic() + 0.02, gone)
        found = await Line(made, gate).answer([late])
        over = True
        assert isinstance(found[0], DeadlineExceededError)
        gate.open.release()
        await asyncio.sleep(0.05)

    asyncio.run(run())
    assert asked_late
    assert not any(asked_late)
