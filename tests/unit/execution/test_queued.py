"""An agent's queue: concurrent calls share passes as the runtime's policy has it."""

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import drut
from drut.batching import PassPolicy
from drut.errors import InvalidRequestError, InvalidTypeError, OverloadedError, RuntimeClosedError
from drut.execution.passes import PassRunner
from drut.execution.queue import queued
from drut.runtimes.base import RuntimeInfo
from drut.settings import shipped_repository
from drut.tensors import Batch, Logits
from lifecycle_helpers import NOUL, by_content, make_fake_agent, wait_until
from queue_helpers import Caller, row, waiting


class Held(drut.FakeRuntime):
    """A runtime whose passes wait until the test lets them go on."""

    def __init__(self, **facts: Any) -> None:
        super().__init__(by_content)
        self.go_on = threading.Event()
        self._facts = facts

    @property
    def info(self) -> RuntimeInfo:
        return replace(super().info, **self._facts)

    def forward(self, batch: Batch) -> Logits:
        logits = super().forward(batch)
        assert self.go_on.wait(20)
        return logits


def shapes(runtime: Held) -> list[tuple[int, ...]]:
    return [batch.input_ids.shape for batch in runtime.batches]


def run_behind_a_pass(runtime: Held, policy: PassPolicy, *calls: list[Any]) -> list[Any]:
    """Answers of calls that gather behind a pass of one row with 50 tokens."""
    runner = queued(PassRunner(runtime, policy, pad_id=0))
    first = Caller(lambda: runner.run([row(1, 50)]))
    first.start()
    wait_until(lambda: len(runtime.batches) == 1)
    callers = []
    for count, rows in enumerate(calls, 1):
        callers.append(Caller(lambda rows=rows: runner.run(rows)))
        callers[-1].start()
        wait_until(lambda count=count: runner.stats().waiting_calls == count)
    runtime.go_on.set()
    first.end()
    return [caller.end() for caller in callers]


def alone(rows: list[Any]) -> Logits:
    runtime = Held()
    runtime.go_on.set()
    return PassRunner(runtime, PassPolicy(), pad_id=0).run(rows)


def test_rows_of_several_calls_fill_the_token_budget() -> None:
    runtime = Held()
    calls = [[row(value, 10, options=2 + value)] for value in range(1, 6)]
    found = run_behind_a_pass(runtime, PassPolicy(max_tokens=40), *calls)
    assert shapes(runtime) == [(1, 50), (4, 10), (1, 10)]
    for logits, rows in zip(found, calls, strict=True):
        np.testing.assert_array_equal(logits.options, alone(rows).options)
        np.testing.assert_array_equal(logits.actions, alone(rows).actions)


def test_little_padding_means_company_of_the_same_length() -> None:
    runtime = Held()
    calls = [[row(1, 10)], [row(2, 20)], [row(3, 10)], [row(4, 19)]]
    run_behind_a_pass(runtime, PassPolicy(max_padding=0.1), *calls)
    assert shapes(runtime) == [(1, 50), (2, 10), (2, 20)]


def test_a_row_whose_answer_depends_on_its_neighbours_has_none() -> None:
    runtime = Held()
    run_behind_a_pass(runtime, PassPolicy(max_rows=1), [row(1, 10)], [row(2, 10)])
    assert shapes(runtime) == [(1, 50), (1, 10), (1, 10)]


def test_rows_that_two_calls_share_are_computed_once() -> None:
    runtime = Held()
    first, second = [row(1, 10), row(2, 10)], [row(2, 10), row(3, 10)]
    found = run_behind_a_pass(runtime, PassPolicy(), first, second)
    assert shapes(runtime) == [(1, 50), (3, 10)]
    for logits, rows in zip(found, (first, second), strict=True):
        np.testing.assert_array_equal(logits.options, alone(rows).options)


def agents_behind_a_pass(count: int, **options: Any) -> tuple[drut.Agent, Held, list[Caller]]:
    runtime = Held()
    agent = drut.Agent(make_fake_agent().checkpoint, runtime=runtime, **options)
    callers = [Caller(lambda name=name: agent.predict(name, NOUL)) for name in "abcdef"[:count]]
    callers[0].start()
    wait_until(lambda: len(runtime.batches) == 1)
    return agent, runtime, callers


def test_an_agent_has_a_queue_unless_it_is_told_not_to() -> None:
    agent, runtime, callers = agents_behind_a_pass(4)
    assert agent.queue is not None
    for count, caller in enumerate(callers[1:], 1):
        caller.start()
        waiting(agent.queue, count)
    runtime.go_on.set()
    expected = [make_fake_agent().predict(name, NOUL) for name in "abcd"]
    assert [caller.end() for caller in callers] == expected
    assert [shape[0] for shape in shapes(runtime)] == [1, 3]

    agent, runtime, callers = agents_behind_a_pass(3, queue=False)
    assert agent.queue is None
    for caller in callers[1:]:
        caller.start()
    wait_until(lambda: len(runtime.batches) == 3)
    runtime.go_on.set()
    assert [caller.end() for caller in callers] == expected[:3]


def test_the_bound_of_an_agents_queue_is_an_option() -> None:
    agent, runtime, callers = agents_behind_a_pass(2, max_queue_rows=1)
    callers[1].start()
    waiting(agent.queue, 1)
    log: list[Any] = []
    with pytest.raises(OverloadedError):
        agent.predict("c", NOUL, on_predict_end=lambda ctx: log.append(type(ctx.error)))
    assert log == [OverloadedError]
    runtime.go_on.set()
    for caller in callers:
        caller.end()


def test_closing_an_agent_fails_what_waits_and_then_closes_the_runtime() -> None:
    agent, runtime, callers = agents_behind_a_pass(2)
    callers[1].start()
    waiting(agent.queue, 1)
    agent.close()
    assert isinstance(callers[1].end(), RuntimeClosedError)
    runtime.go_on.set()
    assert callers[0].end() == make_fake_agent().predict("a", NOUL)
    wait_until(lambda: runtime._closed)


@pytest.mark.parametrize(
    ("options", "error"),
    [({"max_queue_rows": 0}, InvalidRequestError), ({"max_queue_rows": None}, InvalidTypeError)],
    ids=str,
)
@pytest.mark.parametrize("queue", [True, False])
def test_a_wrong_bound_is_found_when_the_agent_is_made(
    options: Any, error: type[Exception], queue: bool
) -> None:
    with pytest.raises(error, match="max_queue_rows"):
        make_fake_agent(queue=queue, **options)


def test_a_router_passes_the_options_on() -> None:
    shipped = {"mine": str(shipped_repository() / "starter")}
    with drut.Router(shipped, device="cpu", agent_kwargs={"queue": False}) as router:
        assert router.load("mine").queue is None
    with drut.Router(shipped, device="cpu", agent_kwargs={"max_queue_rows": 5}) as router:
        assert router.load("mine").queue is not None
