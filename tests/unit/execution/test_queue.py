"""The queue: what starts when, who shares a pass, whose turn it is, and every way to fail."""

import gc
import os
import random
import signal
import threading
import time
import weakref
from asyncio import CancelledError
from collections import Counter
from typing import Any

import numpy as np
import pytest

import drut
from drut.cancelling import Cancellation, cancellable
from drut.deadlines import current_deadline
from drut.errors import (
    DeadlineExceededError,
    ForwardError,
    OutOfMemoryError,
    OverloadedError,
    RuntimeClosedError,
)
from drut.execution.base import RowRunner
from drut.execution.queue import QueueRunner
from drut.tensors import MASKED_LOGIT
from lifecycle_helpers import together, wait_until
from queue_helpers import (
    Caller,
    Passes,
    busy,
    call,
    chunks_of,
    logits_of,
    one_each,
    queue,
    queue_threads,
    row,
    values,
    waiting,
)


def test_a_queue_is_a_row_runner() -> None:
    assert isinstance(queue(Passes()), RowRunner)


def test_a_lone_call_runs_on_its_own_thread_and_starts_no_other() -> None:
    passes = Passes()
    runner = queue(passes)
    before = threading.active_count()
    assert values(runner.run([row(5)])) == [5]
    assert passes.threads == [threading.current_thread().name]
    assert threading.active_count() == before


def test_all_passes_of_a_lone_call_run_on_its_own_thread() -> None:
    passes = Passes()
    runner = queue(passes, plan=one_each)
    assert values(runner.run([row(value) for value in range(5)])) == [0, 1, 2, 3, 4]
    assert passes.log == [[0], [1], [2], [3], [4]]
    assert set(passes.threads) == {threading.current_thread().name}


def test_rows_of_several_passes_come_back_in_order_and_as_wide_as_the_widest() -> None:
    rows = [row(1, options=2), row(2, options=4), row(3, options=3), row(4, options=2)]
    split = queue(Passes(), plan=lambda given: [[3, 0], [2], [1]]).run(rows)
    whole = logits_of(rows)
    np.testing.assert_array_equal(split.options, whole.options)
    np.testing.assert_array_equal(split.actions, whole.actions)
    assert split.options[0, 2] == MASKED_LOGIT


def test_what_gathers_behind_a_pass_shares_the_next_one() -> None:
    passes = Passes()
    runner = queue(passes)
    first = busy(runner, passes)
    others = []
    for value in (1, 2, 3):
        others.append(call(runner, row(value, options=value)))
        waiting(runner, value)
    passes.gate.set()
    assert first.end() == [0]
    assert [other.end() for other in others] == [[1], [2], [3]]
    assert passes.log == [[0], [1, 2, 3]]


def test_an_answer_is_as_wide_as_the_calls_own_widest_row() -> None:
    passes = Passes()
    runner = queue(passes)
    first = busy(runner, passes)
    shapes: list[Any] = []
    narrow = Caller(lambda: shapes.append(runner.run([row(1, options=2)]).options.shape))
    narrow.start()
    waiting(runner, 1)
    wide = call(runner, row(2, options=5))
    waiting(runner, 2)
    passes.gate.set()
    assert (first.end(), narrow.end(), wide.end()) == ([0], None, [2])
    assert (passes.log[1], shapes) == ([1, 2], [(1, 2)])


def test_rows_that_do_not_fit_run_apart() -> None:
    passes = Passes()

    def same_length(rows: int, shortest: int, longest: int) -> bool:
        return shortest == longest

    runner = queue(passes, same_length)
    callers = [busy(runner, passes)]
    for count, (value, tokens) in enumerate([(1, 4), (2, 7), (3, 4), (4, 7)], 1):
        callers.append(call(runner, row(value, tokens)))
        waiting(runner, count)
    passes.gate.set()
    assert [each.end() for each in callers] == [[0], [1], [2], [3], [4]]
    assert passes.log == [[0], [1, 3], [2, 4]]


def test_no_more_passes_are_in_flight_than_are_worth_it() -> None:
    passes = Passes()
    runner = queue(passes, fits=1, passes=2)
    passes.gate.clear()
    callers = [call(runner, row(value)) for value in range(6)]
    waiting(runner, 4)
    passes.gate.set()
    assert sorted(each.end()[0] for each in callers) == list(range(6))
    assert passes.most == 2


def test_the_passes_of_a_single_call_run_beside_each_other_where_that_pays() -> None:
    meeting = threading.Barrier(3)
    passes = Passes(lambda given: meeting.wait(20))
    runner = queue(passes, plan=one_each, passes=3)
    assert values(runner.run([row(value) for value in range(6)])) == list(range(6))
    assert passes.most == 3
    runner.close()


def test_a_small_call_does_not_wait_for_a_large_one() -> None:
    passes = Passes()
    runner = queue(passes, plan=chunks_of(4), fits=4)
    passes.gate.clear()
    large = call(runner, *(row(value) for value in range(10_000)))
    wait_until(lambda: len(passes.log) == 1)
    small = call(runner, row(-1))
    wait_until(lambda: runner.stats().waiting_calls == 2)
    passes.gate.set()
    assert small.end() == [-1]
    place = passes.log.index([-1])
    assert place <= 2
    assert large.end() == list(range(10_000))
    assert len(passes.log) == 2501


def test_calls_take_turns_pass_by_pass() -> None:
    passes = Passes()
    runner = queue(passes, fits=1, plan=one_each)
    first = busy(runner, passes)
    callers = []
    for number in (1, 2, 3):
        callers.append(call(runner, *(row(10 * number + turn) for turn in range(3))))
        waiting(runner, 3 * number)
    passes.gate.set()
    assert [each.end() for each in callers] == [[10, 11, 12], [20, 21, 22], [30, 31, 32]]
    assert first.end() == [0]
    assert passes.log[1:] == [[10], [20], [30], [11], [21], [31], [12], [22], [32]]


def test_a_failed_pass_fails_its_call_and_no_other() -> None:
    def poisoned(given: list[int]) -> None:
        if 2 in given:
            raise OutOfMemoryError("too much")

    passes = Passes(poisoned)
    runner = queue(passes)
    callers = [busy(runner, passes)]
    for value in (1, 2, 3):
        callers.append(call(runner, row(value)))
        waiting(runner, value)
    passes.gate.set()
    outcomes = [each.end() for each in callers]
    assert outcomes[0:2] + outcomes[3:] == [[0], [1], [3]]
    assert isinstance(outcomes[2], OutOfMemoryError)
    assert passes.log == [[0], [1, 2, 3], [1], [2], [3]]
    stats = runner.stats()
    assert (stats.failed_passes, stats.retried_calls) == (2, 3)


def test_a_call_that_fails_alone_is_not_tried_again() -> None:
    def failing(given: list[int]) -> None:
        raise ForwardError("broken")

    passes = Passes(failing)
    runner = queue(passes)
    with pytest.raises(ForwardError, match="broken"):
        runner.run([row(1)])
    assert passes.log == [[1]]
    assert runner.stats().running_passes == 0


def test_a_failed_pass_withdraws_what_still_waits_of_its_call() -> None:
    def failing(given: list[int]) -> None:
        if given == [1]:
            raise ForwardError("broken")

    passes = Passes(failing)
    runner = queue(passes, plan=one_each)
    with pytest.raises(ForwardError):
        runner.run([row(0), row(1), row(2)])
    assert passes.log == [[0], [1]]
    assert runner.stats().waiting_rows == 0
    assert values(runner.run([row(9)])) == [9]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_an_interrupt_inside_a_pass_stops_no_worker(error: BaseException) -> None:
    passes = Passes(lambda given: Passes.run if given != [1] else throw(error))
    runner = queue(passes, fits=1)
    first = busy(runner, passes)
    poisoned = call(runner, row(1))
    waiting(runner, 1)
    healthy = call(runner, row(2))
    waiting(runner, 2)
    passes.gate.set()
    assert (first.end(), healthy.end()) == ([0], [2])
    assert type(poisoned.end()) is type(error)
    assert runner.stats().running_passes == 0


def throw(error: BaseException) -> None:
    raise error


def test_a_worker_that_dies_is_replaced_and_its_call_gets_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passes = Passes()
    runner = queue(passes, fits=1)
    first = busy(runner, passes)
    doomed = call(runner, row(1))
    waiting(runner, 1)
    core: Any = runner._core
    outcome = core._outcome

    def dying(taken: Any) -> Any:
        if taken.rows[0].ids[0] == 1:
            raise MemoryError("outside the pass")
        return outcome(taken)

    monkeypatch.setattr(core, "_outcome", dying)
    passes.gate.set()
    assert first.end() == [0]
    assert isinstance(doomed.end(), MemoryError)
    wait_until(lambda: runner.stats().workers == 0)
    second = busy(runner, passes)
    queued = call(runner, row(3))
    waiting(runner, 1)
    passes.gate.set()
    assert (second.end(), queued.end()) == ([0], [3])
    assert runner.stats().running_passes == 0


def test_a_policy_that_fails_reaches_the_calls_and_leaves_the_worker_alive() -> None:
    passes = Passes()

    def broken(rows: int, shortest: int, longest: int) -> bool:
        raise ZeroDivisionError("policy")

    runner = queue(passes, broken)
    first = busy(runner, passes)
    one, two = call(runner, row(1)), None
    waiting(runner, 1)
    two = call(runner, row(2))
    waiting(runner, 2)
    passes.gate.set()
    outcomes = [one.end(), two.end()]
    assert first.end() == [0]
    assert isinstance(outcomes[0], ZeroDivisionError)
    assert outcomes[1] == [2]


def test_no_thread_for_a_worker_is_an_error_and_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    passes = Passes()
    runner = queue(passes)
    first = busy(runner, passes)
    monkeypatch.setattr("drut.execution.queue._Worker.start", refuse)
    second = call(runner, row(1))
    waiting(runner, 1)
    passes.gate.set()
    assert first.end() == [0]
    outcome = second.end()
    assert isinstance(outcome, OverloadedError)
    assert "can't start new thread" in str(outcome)


def test_a_full_queue_refuses_at_once() -> None:
    passes = Passes()
    runner = queue(passes, max_rows=2)
    callers = [busy(runner, passes)]
    for value in (1, 2):
        callers.append(call(runner, row(value)))
        waiting(runner, value)
    with pytest.raises(OverloadedError, match=r"2 rows wait already.*max_queue_rows"):
        runner.run([row(3)])
    assert runner.stats().rejected_calls == 1
    passes.gate.set()
    assert [each.end() for each in callers] == [[0], [1], [2]]
    assert values(runner.run([row(3)])) == [3]


def test_a_call_larger_than_the_queue_is_served_and_shuts_nobody_out() -> None:
    passes = Passes()
    runner = queue(passes, max_rows=4, plan=one_each, fits=1)
    first = busy(runner, passes)
    large = call(runner, *(row(value) for value in range(100, 120)))
    waiting(runner, 20)
    small = call(runner, row(1), row(2))
    waiting(runner, 22)
    with pytest.raises(OverloadedError):
        runner.run([row(3)])
    passes.gate.set()
    assert (first.end(), small.end(), large.end()) == ([0], [1, 2], list(range(100, 120)))
    assert passes.log[1:5] == [[100], [1], [101], [2]]


def test_a_deadline_that_passed_runs_nothing() -> None:
    passes = Passes()
    runner = queue(passes)
    with drut.deadline(1e-9):
        time.sleep(0.001)
        with pytest.raises(DeadlineExceededError, match="before the rows were queued"):
            runner.run([row(1)])
    assert passes.log == []


def test_rows_are_dropped_when_their_deadline_passes_while_they_wait() -> None:
    passes = Passes()
    runner = queue(passes)
    first = busy(runner, passes)
    with drut.deadline(0.3), pytest.raises(DeadlineExceededError):
        runner.run([row(1), row(2)])
    assert runner.stats().waiting_rows == 0
    assert runner.stats().withdrawn_rows == 2
    passes.gate.set()
    assert first.end() == [0]
    assert passes.log == [[0]]


def held_by_a_worker(hold: threading.Event) -> tuple[QueueRunner, Passes, Caller]:
    """A queue whose worker will be stuck in the pass of row 1, behind the pass of a first call."""
    passes = Passes(lambda given: given == [0] or hold.wait(20))
    runner = queue(passes)
    return runner, passes, busy(runner, passes)


def test_a_call_leaves_at_its_deadline_though_its_pass_still_runs() -> None:
    hold = threading.Event()
    runner, passes, first = held_by_a_worker(hold)

    def hurried() -> Any:
        with drut.deadline(1.0):
            return values(runner.run([row(1)]))

    caller = Caller(hurried)
    caller.start()
    waiting(runner, 1)
    passes.gate.set()
    assert (first.end(), type(caller.end())) == ([0], DeadlineExceededError)
    assert (passes.running, passes.threads[1]) == (1, "drut-queue")
    hold.set()
    wait_until(lambda: runner.stats().running_passes == 0)
    assert values(runner.run([row(2)])) == [2]


def test_a_deadline_that_passes_between_two_passes_of_a_call_ends_it() -> None:
    passes = Passes(lambda given: time.sleep(0.03))
    runner = queue(passes, plan=one_each)
    with drut.deadline(0.02), pytest.raises(DeadlineExceededError):
        runner.run([row(1), row(2), row(3)])
    assert passes.log == [[1]]
    assert (runner.stats().running_passes, runner.stats().waiting_rows) == (0, 0)


@pytest.mark.parametrize(
    ("limits", "known"), [((60.0, 90.0), True), ((60.0, None), False)], ids=["both", "one"]
)
def test_a_shared_pass_runs_under_the_latest_deadline_of_its_calls(
    limits: tuple[float | None, ...], known: bool
) -> None:
    seen: list[float | None] = []
    passes = Passes(lambda given: seen.append(current_deadline()))
    runner = queue(passes)
    first = busy(runner, passes)
    deadlines: dict[int, float | None] = {}

    def limited(value: int, seconds: float | None) -> Any:
        if seconds is None:
            return values(runner.run([row(value)]))
        with drut.deadline(seconds):
            deadlines[value] = current_deadline()
            return values(runner.run([row(value)]))

    callers = []
    for value, seconds in enumerate(limits, 1):
        callers.append(Caller(lambda value=value, seconds=seconds: limited(value, seconds)))
        callers[-1].start()
        waiting(runner, value)
    passes.gate.set()
    assert [each.end() for each in (first, *callers)] == [[0], [1], [2]]
    assert seen == [None, max(deadlines.values()) if known else None]


def test_a_cancelled_call_is_withdrawn_and_the_others_go_on() -> None:
    passes = Passes()
    runner = queue(passes)
    first = busy(runner, passes)
    cancellation = Cancellation()

    def cancelled() -> Any:
        with cancellable(cancellation):
            return values(runner.run([row(1), row(2)]))

    caller = Caller(cancelled)
    caller.start()
    waiting(runner, 2)
    other = call(runner, row(3))
    waiting(runner, 3)
    cancellation.cancel()
    assert isinstance(caller.end(), CancelledError)
    assert runner.stats().withdrawn_rows == 2
    passes.gate.set()
    assert (first.end(), other.end()) == ([0], [3])
    assert passes.log == [[0], [3]]


def test_a_cancelled_call_leaves_a_pass_in_flight_and_the_answer_is_dropped() -> None:
    hold = threading.Event()
    runner, passes, first = held_by_a_worker(hold)
    cancellation = Cancellation()

    def cancelled() -> Any:
        with cancellable(cancellation):
            return values(runner.run([row(1)]))

    caller = Caller(cancelled)
    caller.start()
    waiting(runner, 1)
    passes.gate.set()
    wait_until(lambda: passes.threads[1:] == ["drut-queue"])
    cancellation.cancel()
    assert (first.end(), type(caller.end())) == ([0], CancelledError)
    hold.set()
    assert values(runner.run([row(2)])) == [2]


def test_a_call_that_is_cancelled_in_its_own_pass_ends_behind_it() -> None:
    cancellation = Cancellation()
    passes = Passes(lambda given: cancellation.cancel())
    runner = queue(passes, plan=one_each)
    with cancellable(cancellation), pytest.raises(CancelledError):
        runner.run([row(1), row(2)])
    assert passes.log == [[1]]
    assert (runner.stats().running_passes, runner.stats().withdrawn_rows) == (0, 1)
    assert values(runner.run([row(3)])) == [3]


def test_a_cancellation_is_delivered_once() -> None:
    runner = queue(Passes())
    cancellation = Cancellation()
    cancellation.cancel()
    with cancellable(cancellation):
        with pytest.raises(CancelledError):
            runner.run([row(1)])
        assert values(runner.run([row(2)])) == [2]


def test_closing_fails_what_waits_and_lets_the_pass_in_flight_end() -> None:
    passes = Passes()
    runner = queue(passes)
    first = busy(runner, passes)
    queued = call(runner, row(1))
    waiting(runner, 1)
    runner.close()
    assert isinstance(queued.end(), RuntimeClosedError)
    assert passes.closed == 0
    passes.gate.set()
    assert first.end() == [0]
    assert passes.closed == 1
    runner.close()
    assert passes.closed == 1
    with pytest.raises(RuntimeClosedError):
        runner.run([row(2)])


def test_no_call_is_tried_again_once_the_queue_is_closed() -> None:
    def failing(given: list[int]) -> None:
        if given != [0]:
            raise ForwardError("broken")

    passes = Passes(failing)
    runner = queue(passes)
    first = busy(runner, passes)
    callers = []
    for value in (1, 2):
        callers.append(call(runner, row(value)))
        waiting(runner, value)
    third = threading.Event()
    passes._before = lambda given: given == [0] or [third.wait(20), failing(given)]
    passes.gate.set()
    wait_until(lambda: len(passes.log) == 2)
    runner.close()
    third.set()
    first.end()
    assert [type(each.end()) for each in callers] == [RuntimeClosedError] * 2
    assert passes.log == [[0], [1, 2]]


@pytest.mark.parametrize("way", ["close", "forget"])
def test_no_thread_outlives_the_queue(way: str) -> None:
    others = queue_threads()
    passes = Passes()
    runner = queue(passes, plan=one_each, passes=3)
    outcomes = together(6, lambda index, own=runner: values(own.run([row(index), row(index)])))
    assert outcomes == [[index, index] for index in range(6)]
    assert 1 <= len(queue_threads() - others) <= 3
    known = weakref.ref(runner)
    if way == "close":
        runner.close()
    del runner, outcomes
    gc.collect()
    assert known() is None
    wait_until(lambda: not queue_threads() - others)


def test_a_queue_that_is_full_of_work_is_not_polled() -> None:
    passes = Passes()
    runner = queue(passes)
    first = busy(runner, passes)
    queued = call(runner, row(1))
    waiting(runner, 1)
    before = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - before < 0.1
    passes.gate.set()
    assert (first.end(), queued.end()) == ([0], [1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_starts_with_an_empty_queue() -> None:
    passes = Passes()
    runner = queue(passes)
    first = busy(runner, passes)
    queued = call(runner, row(1))
    waiting(runner, 1)
    child = os.fork()
    if child == 0:  # pragma: no cover - coverage does not see it
        try:
            signal.alarm(20)
            passes.gate = threading.Event()
            passes.gate.set()
            passes._lock = threading.Lock()
            fine = runner.stats().waiting_rows == 0 and values(runner.run([row(7)])) == [7]
            after = busy(runner, passes, 8)
            behind = call(runner, row(9))
            waiting(runner, 1)
            passes.gate.set()
            fine = fine and (after.end(), behind.end()) == ([8], [9])
        finally:
            os._exit(0 if fine else 1)
    assert os.waitpid(child, 0)[1] == 0
    passes.gate.set()
    assert (first.end(), queued.end()) == ([0], [1])


def test_stats_tell_what_was_computed() -> None:
    passes = Passes()
    runner = queue(passes)
    first = busy(runner, passes)
    callers = []
    for value, tokens in ((1, 10), (2, 5)):
        callers.append(call(runner, row(value, tokens)))
        waiting(runner, value)
    stats = runner.stats()
    assert (stats.waiting_rows, stats.waiting_calls, stats.running_passes) == (2, 2, 1)
    assert stats.oldest_seconds > 0
    passes.gate.set()
    for each in (first, *callers):
        each.end()
    stats = runner.stats()
    assert (stats.calls, stats.passes, stats.shared_passes, stats.rows) == (3, 2, 1, 3)
    assert stats.rows_per_pass == 1.5
    assert stats.longest_wait_seconds > 0
    plain = runner.statistics()
    assert plain["passes"] == plain["queue"]["passes"] == 2
    assert plain["queue"]["rows_per_pass"] == 1.5
    assert queue(Passes()).stats().rows_per_pass == 0.0


class Planned(Exception):
    """A failure that the test asked for."""


def test_under_load_every_call_gets_its_own_answer_or_its_own_error() -> None:
    poison = 1 << 40

    def dice(given: list[int]) -> None:
        if any(value >= poison for value in given):
            raise Planned(str([value for value in given if value >= poison]))

    others = queue_threads()
    passes = Passes(dice)
    runner = queue(passes, fits=6, plan=chunks_of(3), passes=2, max_rows=24)
    counts: Counter[str] = Counter()
    faults: list[Any] = []
    lock = threading.Lock()

    def one(own: random.Random, number: int) -> str:
        size = own.choice([1, 1, 1, 2, 5, 20])
        asked = [number * 100 + place for place in range(size)]
        if poisoned := own.random() < 0.1:
            asked[own.randrange(size)] += poison
        cancellation = Cancellation() if own.random() < 0.3 else None
        canceller = threading.Timer(own.random() * 0.002, lambda: None)
        if cancellation is not None and own.random() < 0.5:
            canceller = threading.Timer(own.random() * 0.002, cancellation.cancel)
        canceller.start()
        try:
            if cancellation is None:
                found = values(runner.run([row(value, 2 + value % 3) for value in asked]))
            else:
                with cancellable(cancellation), drut.deadline(own.choice([0.001, 30])):
                    found = values(runner.run([row(value, 2 + value % 3) for value in asked]))
        except Planned as exc:
            if not poisoned or str(exc) != str([max(asked)]):
                faults.append((asked, exc))
            return "poisoned"
        except (OverloadedError, DeadlineExceededError, CancelledError) as exc:
            return type(exc).__name__
        finally:
            canceller.join()
        if poisoned or found != [int(np.float32(value)) for value in asked]:
            faults.append((asked, found))
        return "answered"

    def work(index: int) -> None:
        own = random.Random(index)
        for turn in range(25):
            kind = one(own, index * 25 + turn)
            with lock:
                counts[kind] += 1

    assert together(32, work) == [None] * 32
    assert faults == []
    assert sum(counts.values()) == 32 * 25
    assert counts["answered"] > 100
    assert counts["poisoned"] > 10
    stats = runner.stats()
    assert (stats.waiting_rows, stats.waiting_calls, stats.running_passes) == (0, 0, 0)
    assert passes.most <= 2
    runner.close()
    wait_until(lambda: not queue_threads() - others)
