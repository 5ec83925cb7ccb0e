"""A cancellation: delivered once, from any thread, to whatever waits."""

from asyncio import CancelledError

import pytest

from drut.cancelling import Cancellation, cancellable, current_cancellation


def test_only_a_cancelled_call_is_told_and_only_once() -> None:
    cancellation = Cancellation()
    cancellation.deliver()
    cancellation.cancel()
    with pytest.raises(CancelledError, match="the call was cancelled"):
        cancellation.deliver()
    cancellation.deliver()


def test_who_waits_is_woken_inside_the_block_only() -> None:
    cancellation = Cancellation()
    log: list[str] = []
    with cancellation.watched(lambda: log.append("early")):
        pass
    with cancellation.watched(lambda: log.append("one")):
        with cancellation.watched(lambda: log.append("two")):
            cancellation.cancel()
            assert log == ["one", "two"]
            cancellation.cancel()
    assert log == ["one", "two"]


def test_who_begins_to_wait_for_a_cancelled_call_is_woken_at_once() -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    log: list[str] = []
    with cancellation.watched(lambda: log.append("woken")):
        assert log == ["woken"]


def test_the_cancellation_of_a_call_is_known_inside_it() -> None:
    assert current_cancellation() is None
    outer, inner = Cancellation(), Cancellation()
    with cancellable(outer):
        with cancellable(inner):
            assert current_cancellation() is inner
        assert current_cancellation() is outer
    assert current_cancellation() is None
