"""How one hook method runs: inline, under a time limit, or as a coroutine."""

import inspect
import sys
import time
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import Context, ContextVar
from dataclasses import dataclass
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final, NoReturn

from drut.cancelling import Cancellation, current_cancellation
from drut.errors import HookTimeoutError
from drut.hooks.context import PredictContext

if TYPE_CHECKING:
    # Imported where a coroutine runs: asyncio brings sockets and TLS, 5 MiB that plain calls save.
    import asyncio

HookMethod = Callable[[PredictContext], Awaitable[None] | None]

CALLERS_LOOP: Final[ContextVar["asyncio.AbstractEventLoop | None"]] = ContextVar(
    "drut_callers_loop", default=None
)
"""The loop that waits for the current call, if one does: coroutine hooks run there."""

MAX_LATE_HOOKS: Final = 8
"""Hooks that may still run after their limit; beyond that, timed hooks are refused at once."""


class Turn:
    """One hook's turn under a guard, from taking the lock to giving it back."""

    __slots__ = ("active",)

    def __init__(self) -> None:
        self.active = True


class HookGuard:
    """One hook at a time. Re-entrant along a call, whichever thread the call continues on."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._turn: ContextVar[Turn | None] = ContextVar("hook_turn", default=None)

    def turn(self) -> Turn | None:
        """The turn that this call already holds."""
        turn = self._turn.get()
        return turn if turn is not None and turn.active else None

    def adopt(self, turn: Turn) -> None:
        """Make a turn known in the current context, so that nested calls join it."""
        self._turn.set(turn)

    @contextmanager
    def hold(self, limit: float | None = None) -> Generator[Turn, None, None]:
        """Take a turn, waiting at most `limit` seconds.

        Raises:
            HookTimeoutError: another hook kept its turn for longer than that.
        """
        if not self._lock.acquire(timeout=-1 if limit is None else limit):
            raise HookTimeoutError("waited for another hook's turn longer than hooks_timeout")
        turn = Turn()
        token = self._turn.set(turn)
        try:
            yield turn
        finally:
            turn.active = False
            self._turn.reset(token)
            self._lock.release()


@dataclass(frozen=True, slots=True)
class HookPolicy:
    """What happens around a hook."""

    raise_errors: bool = True
    timeout: float | None = None  # seconds
    guard: HookGuard | None = None  # None: hooks of different threads overlap


DEFAULT_POLICY: Final = HookPolicy()


class _LateHooks:
    """Knows the hooks that overran their limit and still run, over the whole process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._threads: list[Thread] = []

    def add(self, thread: Thread) -> None:
        with self._lock:
            self._threads.append(thread)

    def refuse_if_many(self) -> None:
        with self._lock:
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            count = len(self._threads)
        if count >= MAX_LATE_HOOKS:
            raise HookTimeoutError(
                f"{count} hooks still run past their hooks_timeout, so no further one is started; "
                "make those hooks give up by themselves"
            )


_LATE: Final = _LateHooks()


def invoke(method: HookMethod, ctx: PredictContext, policy: HookPolicy) -> None:
    """Run one hook method to completion.

    Raises:
        HookTimeoutError: it took longer than `policy.timeout`.
    """
    if policy.timeout is not None:
        _invoke_timed(method, ctx, policy.timeout, policy.guard)
    elif policy.guard is None or policy.guard.turn() is not None:
        _invoke_inline(method, ctx, policy.guard)
    else:
        with policy.guard.hold():
            _invoke_inline(method, ctx, policy.guard)


def _invoke_inline(method: HookMethod, ctx: PredictContext, guard: HookGuard | None) -> None:
    outcome = method(ctx)
    if not inspect.isawaitable(outcome):
        return
    awaitable = outcome
    variables = ctx.variables.context()
    if guard is not None and (turn := guard.turn()) is not None:
        variables.run(guard.adopt, turn)
    if _loop_is_running():
        # A loop of its own: a shared one deadlocks when the hook calls back into this object.
        variables.run(CALLERS_LOOP.set, None)
        _run_on_worker(lambda: _finish(awaitable, ctx, variables), ctx, None)
    else:
        _finish(awaitable, ctx, variables)


def _invoke_timed(
    method: HookMethod, ctx: PredictContext, limit: float, guard: HookGuard | None
) -> None:
    _LATE.refuse_if_many()
    deadline = time.monotonic() + limit
    variables = ctx.variables.context()
    if _loop_is_running():
        variables.run(CALLERS_LOOP.set, None)  # it stands still until the hook has ended
    joined = guard is not None and guard.turn() is not None

    def run() -> None:
        outcome = variables.run(method, ctx)
        if inspect.isawaitable(outcome):
            _finish(outcome, ctx, variables)

    def take_turn() -> None:
        if guard is None or joined:
            run()
        else:
            with guard.hold(max(0.0, deadline - time.monotonic())) as turn:
                variables.run(guard.adopt, turn)
                run()

    _run_on_worker(take_turn, ctx, limit)


def _run_on_worker(work: Callable[[], None], ctx: PredictContext, limit: float | None) -> None:
    worker = _Worker(work)
    try:
        worker.start()
        worker.join(limit)
    finally:
        # Also where an interrupt ends the waiting: the hook still runs in these variables.
        if late := not worker.done:
            _LATE.add(worker)
            ctx.variables.leave_to_late_hook()
    if late:
        raise HookTimeoutError(f"the hook took longer than hooks_timeout={limit:g} seconds")
    if worker.failure is not None:
        raise_unchanged(worker.failure)


def raise_unchanged(exc: BaseException) -> NoReturn:
    """Raise an exception that was caught before, with the context it had then, if any."""
    context = exc.__context__
    try:
        raise exc
    finally:
        if context is not None:
            exc.__context__ = context


def _finish(awaitable: Awaitable[None], ctx: PredictContext, variables: Context) -> None:
    loop = variables.get(CALLERS_LOOP)
    if loop is not None and loop.is_running():
        # What tells of a call's end runs to its own, also where the call was cancelled.
        cancellation = variables.run(current_cancellation) if ctx.elapsed_ms is None else None
        _finish_on(loop, awaitable, variables, cancellation or Cancellation())
        return

    import asyncio

    async def finish() -> None:
        await awaitable

    # With a factory the runner leaves the thread's own event loop alone.
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(finish(), context=variables)


def _finish_on(
    loop: "asyncio.AbstractEventLoop",
    awaitable: Awaitable[None],
    variables: Context,
    cancellation: Cancellation,
) -> None:
    """Run a hook on the loop of who made the call; cancel it where the call is cancelled."""
    import asyncio

    ended: Future[None] = Future()
    tasks: list[asyncio.Task[None]] = []

    def start() -> None:
        tasks.append(loop.create_task(_report(awaitable, ended), context=variables))

    def cancel() -> None:
        loop.call_soon_threadsafe(lambda: tasks[0].cancel())

    loop.call_soon_threadsafe(start)
    with cancellation.watched(cancel):
        while not wait([ended], timeout=1.0).done:
            if loop.is_closed():
                raise RuntimeError("the event loop was closed while a hook ran on it")
    failure = ended.exception()
    if isinstance(failure, asyncio.CancelledError):
        cancellation.take()
    if failure is not None:
        raise_unchanged(failure)


async def _report(awaitable: Awaitable[None], ended: "Future[None]") -> None:
    try:
        await awaitable
    except BaseException as exc:  # noqa: BLE001 - raised where the call runs
        ended.set_exception(exc)
    else:
        ended.set_result(None)


def _loop_is_running() -> bool:
    if "asyncio" not in sys.modules:
        return False
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _Worker(Thread):
    """One hook on a thread of its own."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(name="drut-hook", daemon=True)
        self.failure: BaseException | None = None  # what the hook raised, once it is done
        self.done = False
        self._work = work

    def run(self) -> None:
        """Run the hook and keep what it raises."""
        try:
            self._work()
        except BaseException as exc:  # noqa: BLE001 - raised again on the caller's thread
            self.failure = exc
        self.done = True
