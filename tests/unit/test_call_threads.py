"""Threads for the calls of coroutines: how many, in which order, and how they end."""

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from drut.call_threads import CallThreads
from drut.errors import OverloadedError, RuntimeClosedError
from lifecycle_helpers import wait_until


def call_threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name == "drut-call"}


class Gate:
    """Work that notes itself and waits."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.open = threading.Event()

    def work(self, name: Any) -> Callable[[], None]:
        def run() -> None:
            self.log.append(name)
            assert self.open.wait(20)

        return run


def test_calls_beyond_the_size_wait_in_order() -> None:
    gate, threads = Gate(), CallThreads(2, 10)
    for name in range(6):
        threads.submit(gate.work(name))
    wait_until(lambda: len(gate.log) == 2)
    gate.open.set()
    threads.release()
    threads.join()
    assert sorted(gate.log[:2]) == [0, 1]
    assert sorted(gate.log) == list(range(6))


def test_one_thread_serves_one_call_after_the_other() -> None:
    threads = CallThreads(4, 10)
    seen: list[int] = []
    for _ in range(5):
        done = threading.Event()
        threads.submit(lambda done=done: [seen.append(threading.get_ident()), done.set()])
        assert done.wait(20)
        wait_until(lambda: threads._idle == threads._pooled)
    assert len(set(seen)) == 1
    threads.release()


@pytest.mark.parametrize("waiting", [0, 2])
def test_too_many_calls_are_refused_at_once(waiting: int) -> None:
    gate, threads = Gate(), CallThreads(2, waiting)
    for name in range(2 + waiting):
        threads.submit(gate.work(name))
    with pytest.raises(OverloadedError, match=f"2 calls are in progress and {waiting} wait"):
        threads.submit(gate.work("refused"))
    gate.open.set()
    threads.release()
    threads.join()
    assert sorted(gate.log) == list(range(2 + waiting))


def test_a_call_can_be_withdrawn_until_it_begins() -> None:
    gate, threads = Gate(), CallThreads(1, 1)
    begun = threads.submit(gate.work("begun"))
    wait_until(lambda: gate.log == ["begun"])
    waiting = threads.submit(gate.work("withdrawn"))
    assert threads.withdraw(waiting)
    assert not threads.withdraw(waiting)
    assert not threads.withdraw(begun)
    threads.submit(gate.work("last"))  # its place is free again
    gate.open.set()
    threads.release()
    threads.join()
    assert gate.log == ["begun", "last"]


def test_a_nested_call_does_not_wait_for_a_thread() -> None:
    threads = CallThreads(1, 0)
    log: list[str] = []

    def outer() -> None:
        inner = threading.Event()
        threads.submit(inner.set, nested=True)
        log.append("inner ran" if inner.wait(20) else "deadlock")

    threads.submit(outer)
    threads.release()
    threads.join()
    assert log == ["inner ran"]


def test_released_threads_finish_what_was_accepted_and_end() -> None:
    others = call_threads()
    gate, threads = Gate(), CallThreads(2, 10)
    for name in range(5):
        threads.submit(gate.work(name))
    threads.release()
    with pytest.raises(RuntimeClosedError):
        threads.submit(gate.work("late"))
    gate.open.set()
    threads.join()
    assert sorted(gate.log) == list(range(5))
    wait_until(lambda: not call_threads() - others)


def test_no_thread_to_be_had_is_an_overload(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    gate, threads = Gate(), CallThreads(2, 10)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    for nested in (False, True):
        with pytest.raises(OverloadedError, match="can't start new thread"):
            threads.submit(gate.work("never"), nested=nested)
    monkeypatch.undo()
    gate.open.set()
    threads.submit(gate.work("fine"))
    threads.release()
    threads.join()
    assert gate.log == ["fine"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_starts_threads_of_its_own() -> None:
    gate, threads = Gate(), CallThreads(1, 10)
    threads.submit(gate.work("parent"))
    wait_until(lambda: gate.log == ["parent"])
    child = os.fork()
    if child == 0:  # pragma: no cover - coverage does not see it
        fine = False
        try:
            signal.alarm(20)
            done = threading.Event()
            threads.submit(done.set)
            fine = done.wait(10)
        finally:
            os._exit(0 if fine else 1)
    assert os.waitpid(child, 0)[1] == 0
    gate.open.set()
    threads.release()
    threads.join()
