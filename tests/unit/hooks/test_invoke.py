"""How one hook method runs: where, in which context, under which limit."""

import asyncio
import contextvars
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from drut.errors import HookTimeoutError
from drut.hooks.context import PredictContext
from drut.hooks.invoke import DEFAULT_POLICY, HookGuard, HookPolicy, invoke, raise_unchanged
from lifecycle_helpers import wait_until

NAME: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="none")
TIMED = HookPolicy(timeout=20.0)


def context() -> PredictContext:
    return PredictContext(["x"], {})


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()
    wait_until(lambda: not [each for each in threading.enumerate() if each.name == "drut-hook"])


def test_a_plain_hook_runs_on_the_callers_thread_and_in_its_context() -> None:
    seen: list[Any] = []

    def method(ctx: PredictContext) -> None:
        seen.append((threading.current_thread(), ctx))
        NAME.set("hook")

    ctx = context()
    own = contextvars.copy_context()
    own.run(invoke, method, ctx, DEFAULT_POLICY)
    assert seen == [(threading.current_thread(), ctx)]
    assert own[NAME] == "hook"


def test_a_timed_hook_runs_on_a_thread_of_its_own_with_the_callers_variables() -> None:
    seen: list[Any] = []

    def method(ctx: PredictContext) -> None:
        seen.append(
            (threading.current_thread().name, threading.current_thread().daemon, NAME.get())
        )
        NAME.set("hook")

    own = contextvars.copy_context()
    own.run(NAME.set, "caller")
    own.run(invoke, method, context(), TIMED)
    assert seen == [("drut-hook", True, "caller")]
    assert own[NAME] == "caller"


@pytest.mark.parametrize("policy", [DEFAULT_POLICY, TIMED], ids=["no limit", "timed"])
@pytest.mark.parametrize("inside_loop", [False, True])
def test_a_coroutine_is_run_to_its_end_before_invoke_returns(
    policy: HookPolicy, inside_loop: bool
) -> None:
    log: list[str] = []

    async def method(ctx: PredictContext) -> None:
        log.append("begin")
        await asyncio.sleep(0.01)
        log.append("end")

    async def caller() -> None:
        invoke(method, context(), policy)
        log.append("back")

    if inside_loop:
        asyncio.run(caller())
    else:
        invoke(method, context(), policy)
        log.append("back")
    assert log == ["begin", "end", "back"]


def test_any_awaitable_is_awaited() -> None:
    log: list[str] = []

    class Awaitable:
        def __await__(self) -> Iterator[Any]:
            log.append("awaited")
            yield from asyncio.sleep(0).__await__()

    invoke(lambda ctx: Awaitable(), context(), DEFAULT_POLICY)
    assert log == ["awaited"]


def test_the_threads_own_event_loop_is_left_alone() -> None:
    async def method(ctx: PredictContext) -> None:
        await asyncio.sleep(0)

    outcome: list[bool] = []

    def work() -> None:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        invoke(method, context(), DEFAULT_POLICY)
        outcome.append(asyncio.get_event_loop() is loop)
        loop.close()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert outcome == [True]


@pytest.mark.parametrize("exc", [ValueError("x"), KeyboardInterrupt(), SystemExit(1)], ids=repr)
def test_what_a_timed_hook_raises_is_raised_on_the_callers_thread(exc: BaseException) -> None:
    def method(ctx: PredictContext) -> None:
        raise exc

    with pytest.raises(type(exc)) as caught:
        invoke(method, context(), TIMED)
    assert caught.value is exc


def test_an_overrunning_hook_is_left_behind_in_time(release: threading.Event) -> None:
    def method(ctx: PredictContext) -> None:
        release.wait()

    begin = time.monotonic()
    with pytest.raises(HookTimeoutError, match=r"longer than hooks_timeout=0\.05 seconds"):
        invoke(method, context(), HookPolicy(timeout=0.05))
    assert time.monotonic() - begin < 5


def test_after_a_late_hook_variables_live_on_in_a_copy(release: threading.Event) -> None:
    seen: list[str] = []
    ctx = context()
    invoke(lambda ctx: NAME.set("start") and None, ctx, TIMED)
    before = ctx.variables.context()
    with pytest.raises(HookTimeoutError):
        invoke(lambda ctx: release.wait() and None, ctx, HookPolicy(timeout=0.05))
    assert ctx.variables.context() is not before
    invoke(lambda ctx: seen.append(NAME.get()), ctx, TIMED)
    assert seen == ["start"]


def test_a_guard_lets_one_hook_in_and_times_the_others_out() -> None:
    guard = HookGuard()
    with guard.hold() as turn:
        assert guard.turn() is turn
        outcome: list[Any] = []

        def other() -> None:
            outcome.append(guard.turn())
            try:
                with guard.hold(0.02):
                    outcome.append("in")
            except HookTimeoutError as exc:
                outcome.append(str(exc))

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert outcome == [None, "waited for another hook's turn longer than hooks_timeout"]
    assert guard.turn() is None
    with guard.hold(0.0):
        pass


def test_a_turn_that_is_over_counts_no_more_where_it_was_copied_to() -> None:
    guard = HookGuard()
    with guard.hold() as turn:
        copied = contextvars.copy_context()
        assert copied.run(guard.turn) is turn
    assert copied.run(guard.turn) is None


def test_two_guards_do_not_know_each_others_turns() -> None:
    first, second = HookGuard(), HookGuard()
    with first.hold():
        assert second.turn() is None
        with second.hold(0.0) as turn:
            assert second.turn() is turn
    assert first.turn() is second.turn() is None


def test_a_failing_hook_gives_its_turn_back() -> None:
    def method(ctx: PredictContext) -> None:
        raise ValueError

    for policy in (HookPolicy(guard=HookGuard()), HookPolicy(timeout=20.0, guard=HookGuard())):
        for _ in range(2):
            with pytest.raises(ValueError):  # noqa: PT011 - any, as long as it comes
                invoke(method, context(), policy)


def test_raise_unchanged_keeps_the_context_an_exception_had() -> None:
    own, other, exc = LookupError("own"), OSError("other"), ValueError("x")
    exc.__context__ = own

    def raise_while_handling() -> None:
        try:
            raise other
        except OSError:
            raise_unchanged(exc)

    with pytest.raises(ValueError, match="x"):
        raise_while_handling()
    assert exc.__context__ is own
    exc.__context__ = None
    with pytest.raises(ValueError, match="x"):
        raise_while_handling()
    assert exc.__context__ is other
