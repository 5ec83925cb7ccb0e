"""The lifecycle page, Concurrency: requirements L159 to L165."""

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import drut
from drut.errors import HookTimeoutError, InvalidTypeError
from drut.tensors import Batch
from lifecycle_helpers import (
    NOUL,
    Action,
    Hook,
    Mode,
    cached,
    every_agent,
    every_mode,
    noting,
    raising,
    skipping,
    together,
    wait_until,
)

MakeAgent = Callable[..., drut.Agent]
pytestmark = every_agent


class Crowd:
    """Counts who is inside at the same time."""

    def __init__(self) -> None:
        self.inside = self.most = self.visits = 0
        self._lock = threading.Lock()

    def visit(self, seconds: float) -> None:
        with self._lock:
            self.inside += 1
            self.visits += 1
            self.most = max(self.most, self.inside)
        time.sleep(seconds)
        with self._lock:
            self.inside -= 1


def test_L159_sixteen_threads_get_the_answers_they_would_get_alone(make_agent: MakeAgent) -> None:
    agent = make_agent(hooks=Hook([]))
    states = [f"customer {index} waits" + " and waits" * index for index in range(16)]
    alone = [agent.predict_batch([state, "a"], NOUL) for state in states]
    crowded = together(16, lambda index: agent.predict_batch([states[index], "a"], NOUL))
    assert crowded == alone


@every_mode
def test_L160_every_call_has_its_own_context_and_sees_no_other(
    make_agent: MakeAgent, mode: Mode
) -> None:
    lock = threading.Lock()
    seen: dict[int, list[Any]] = {}

    def note(ctx: drut.PredictContext) -> None:
        with lock:
            seen.setdefault(id(ctx), []).append((ctx, ctx.run_id, list(ctx.states)))

    agent = make_agent(hooks=mode.hook([], start=note, end=note), **mode.options)

    def work(index: int) -> Any:
        own: list[Any] = []
        hook = mode.hook([], start=noting(own, "states"), end=noting(own, "states"))
        states = [f"state {index}"]
        mode.run(lambda: agent.predict_batch(states, NOUL, hooks=hook))
        return own == [(states,), (states,)]

    assert together(8, work) == [True] * 8
    assert sorted(states[0][2][0] for states in seen.values()) == [f"state {i}" for i in range(8)]
    for start, end in seen.values():
        assert start == end
    assert len({start[1] for start, _ in seen.values()}) == 8


def test_L161_a_call_made_by_a_hook_shares_nothing_with_its_caller(make_agent: MakeAgent) -> None:
    log: list[str] = []
    agent = make_agent(hooks=Hook(log, "installed"))
    inner: list[Any] = []

    def call_back(ctx: drut.PredictContext) -> None:
        nested = Hook(log, "inner", start=noting(inner, "states", "max_len", "results", "run_id"))
        agent.predict("inner", NOUL, hooks=nested)
        inner.append(ctx.run_id)

    outer = Hook(log, "outer", end=call_back)
    agent.predict_batch(["outer"], NOUL, hooks=outer, max_len=77)
    assert log == [
        *("installed.start", "outer.start", "installed.end", "outer.end"),
        *("installed.start", "inner.start", "installed.end", "inner.end"),
    ]
    assert inner[0][:3] == (["inner"], None, None)
    assert inner[0][3] != inner[1]


@pytest.mark.parametrize("options", [{}, {"hooks_concurrent": True}], ids=["default", "True"])
@every_mode
def test_L162_by_default_hooks_of_different_threads_overlap(
    make_agent: MakeAgent, mode: Mode, options: dict[str, Any]
) -> None:
    both_inside = threading.Barrier(2)

    def meet(ctx: drut.PredictContext) -> None:
        both_inside.wait(15)

    agent = make_agent(hooks=mode.hook([], start=meet), **mode.options, **options)
    outcomes = together(2, lambda index: mode.run(lambda: agent.predict("a", NOUL)))
    assert outcomes == [make_agent().predict("a", NOUL)] * 2


@every_mode
def test_L163_without_hooks_concurrent_one_hook_runs_at_a_time(
    make_agent: MakeAgent, mode: Mode
) -> None:
    crowd = Crowd()
    hooks = [
        mode.hook([], start=lambda ctx: crowd.visit(0.001), end=lambda ctx: crowd.visit(0.001)),
        Hook([], start=lambda ctx: crowd.visit(0.001)),
    ]
    agent = make_agent(hooks=hooks, hooks_concurrent=False, **mode.options)
    outcomes = together(8, lambda index: mode.run(lambda: agent.predict("a", NOUL)))
    assert outcomes == [outcomes[0]] * 8
    assert (crowd.most, crowd.visits) == (1, 24)


def test_L163_a_hook_that_overruns_its_limit_keeps_its_turn(make_agent: MakeAgent) -> None:
    crowd = Crowd()
    agent = make_agent(
        hooks=Hook([], start=lambda ctx: crowd.visit(0.3)),
        hooks_concurrent=False,
        hooks_timeout=0.1,
    )
    outcomes = together(3, lambda index: agent.predict("a", NOUL))
    assert [type(outcome) for outcome in outcomes] == [HookTimeoutError] * 3
    assert crowd.most == 1
    wait_until(lambda: crowd.inside == 0)


def test_L164_only_hooks_are_serialised_so_calls_interleave(make_agent: MakeAgent) -> None:
    log: list[str] = []
    first_in_forward, second_started = threading.Event(), threading.Event()

    def before(batch: Batch) -> None:
        if not first_in_forward.is_set():
            first_in_forward.set()
            assert second_started.wait(15)

    def start(ctx: drut.PredictContext) -> None:
        if ctx.states == ["second"]:
            second_started.set()

    agent = make_agent(before=before, hooks_concurrent=False)

    def work(index: int) -> Any:
        if index == 1:
            assert first_in_forward.wait(15)
        name = ("first", "second")[index]
        return agent.predict(name, NOUL, hooks=Hook(log, name, start=start))

    outcomes = together(2, work)
    assert not [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert log[:2] == ["first.start", "second.start"]
    assert sorted(log[2:]) == ["first.end", "second.end"]


@pytest.mark.parametrize("event", ["start", "end"])
@pytest.mark.parametrize("concurrent", [True, False], ids=["concurrent", "serial"])
@every_mode
def test_L165_a_hook_may_call_back_into_its_agent(
    make_agent: MakeAgent, mode: Mode, concurrent: bool, event: str
) -> None:
    log: list[str] = []

    def call_back(ctx: drut.PredictContext) -> None:
        depth = len(ctx.states)
        if depth < 3:
            agent.predict_batch(["a"] * (depth + 1), NOUL)
        log.append(f"back in depth {depth}")

    hook = mode.hook(log, **{event: call_back})
    agent = make_agent(hooks=hook, hooks_concurrent=concurrent, **mode.options)
    begin = time.monotonic()
    [outcome] = together(1, lambda index: mode.run(lambda: agent.predict("a", NOUL)))
    assert outcome == agent.predict_batch(["a"], NOUL)[0]
    assert time.monotonic() - begin < 10
    back = ["back in depth 3", "back in depth 2", "back in depth 1"]
    assert [entry for entry in log if entry.startswith("back")][:3] == back
    nested = {
        "start": ["A.start"] * 3 + [back[0], "A.end", back[1], "A.end", back[2], "A.end"],
        "end": ["A.start", "A.end"] * 3 + back,
    }
    assert log[:9] == nested[event]


@pytest.mark.parametrize("limit", [None, 20.0], ids=["no limit", "timed"])
def test_L165_a_hook_may_call_back_from_a_thread_it_awaits(
    make_agent: MakeAgent, limit: float | None
) -> None:
    log: list[str] = []

    class Awaiting:
        async def on_predict_start(self, ctx: drut.PredictContext) -> None:
            log.append(f"start {len(ctx.states)}")
            if len(ctx.states) == 1:
                await asyncio.to_thread(ctx.agent.predict_batch, ["a", "b"], NOUL)
            log.append(f"started {len(ctx.states)}")

    agent = make_agent(hooks=Awaiting(), hooks_concurrent=False, hooks_timeout=limit)
    [outcome] = together(1, lambda index: agent.predict("a", NOUL))
    assert not isinstance(outcome, BaseException)
    assert log == ["start 1", "start 2", "started 2", "started 1"]


def test_L165_a_serial_hook_of_another_thread_waits_until_the_nested_call_is_over(
    make_agent: MakeAgent,
) -> None:
    log: list[str] = []
    nested_runs, other_waits = threading.Event(), threading.Event()

    def start(ctx: drut.PredictContext) -> None:
        log.append(f"{ctx.states[0]} in")
        if ctx.states == ["outer"]:
            nested_runs.set()
            other_waits.wait(15)
            time.sleep(0.02)
            agent.predict("nested", NOUL)
        log.append(f"{ctx.states[0]} out")

    agent = make_agent(hooks=Hook([], start=start), hooks_concurrent=False)

    def work(index: int) -> Any:
        if index == 1:
            nested_runs.wait(15)
            other_waits.set()
        return agent.predict(("outer", "other")[index], NOUL)

    together(2, work)
    assert log == ["outer in", "nested in", "nested out", "outer out", "other in", "other out"]


@pytest.mark.parametrize("concurrent", [True, False], ids=["concurrent", "serial"])
@pytest.mark.parametrize("limit", [None, 20.0], ids=["no limit", "timed"])
def test_L160_sixteen_threads_with_raising_and_skipping_hooks_get_one_end_per_start(
    make_agent: MakeAgent, concurrent: bool, limit: float | None
) -> None:
    lock = threading.Lock()
    events: dict[str, list[tuple[str, str]]] = {}

    def note(event: str) -> Action:
        def action(ctx: drut.PredictContext) -> None:
            with lock:
                events.setdefault(ctx.run_id, []).append((event, ctx.states[0]))

        return action

    def failing(batch: Batch) -> None:
        if dice.random() < 0.2:
            raise MemoryError("forward")

    dice = random.Random(7)
    agent = make_agent(
        before=failing,
        hooks=Hook([], start=note("start"), error=note("error"), end=note("end")),
        hooks_concurrent=concurrent,
        hooks_timeout=limit,
    )

    def work(index: int) -> Counter[str]:
        own = random.Random(index)
        outcomes: Counter[str] = Counter()
        for turn in range(6):
            state, answer, mistake = f"thread {index} turn {turn}", [cached()], ValueError(index)
            hook = own.choice(
                [
                    Hook([]),
                    Hook([], start=raising(mistake)),
                    Hook([], error=raising(mistake)),
                    Hook([], end=raising(mistake)),
                    Hook([], start=skipping(answer)),
                    Hook([], start=skipping(["malformed"])),
                ]
            )
            try:
                result = agent.predict(state, NOUL, hooks=hook)
                assert result is answer[0] or result["answers"]["n"]["noul"] >= 0
                outcomes["answered"] += 1
            except (ValueError, MemoryError) as exc:
                expected = exc is mistake or isinstance(exc, MemoryError | InvalidTypeError)
                outcomes["failed" if expected else "somebody else's mistake"] += 1
            assert [ctx.states for ctx in hook.contexts] == [[state]] * len(hook.contexts)
            assert len(set(hook.contexts)) == 1
        return outcomes

    outcomes = together(16, work)
    assert not [each for each in outcomes if isinstance(each, BaseException)]
    total = sum(outcomes, Counter())
    assert total["answered"] > 20
    assert total["failed"] > 20
    assert total["answered"] + total["failed"] == len(events) == 96
    for run in events.values():
        assert [event for event, _ in run] in (["start", "end"], ["start", "error", "end"])
        assert len({state for _, state in run}) == 1
    assert len({run[0][1] for run in events.values()}) == 96
