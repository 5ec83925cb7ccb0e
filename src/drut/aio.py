"""`AsyncAgent` and `AsyncRouter`: the same calls for coroutines.

There is one core, which is synchronous. A coroutine's call runs there, on one of a bounded number
of threads and in a copy of the caller's context; hooks, passes, results and errors are the same.
See docs/async.md.
"""

import asyncio
import weakref
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import partial, wraps
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar

from drut.agent import DecisionAgent
from drut.call_threads import CallThreads
from drut.cancelling import Cancellation, cancellable
from drut.checkpoint.opened import Checkpoint
from drut.deadlines import remaining
from drut.errors import DeadlineExceededError, InvalidTypeError
from drut.hooks.invoke import CALLERS_LOOP, raise_unchanged
from drut.hooks.registry import HookOwner
from drut.loading import DEFAULT_CHECKPOINT, Agent
from drut.pipeline import whole_number
from drut.questions import shorten
from drut.router import Router
from drut.schema import Prediction
from drut.streaming import DEFAULT_WINDOW

P = ParamSpec("P")
R = TypeVar("R")
Core = TypeVar("Core", bound=HookOwner)
Wrapper = TypeVar("Wrapper", bound="AsyncCaller[Any]")

DEFAULT_MAX_CALLS: Final = 64
DEFAULT_MAX_WAITING_CALLS: Final = 1024

GRACE_SECONDS: Final = 0.5
"""How long a cancelled coroutine waits for the end hooks of its call."""

INSIDE_CALL: Final[ContextVar[bool]] = ContextVar("drut_inside_call", default=False)
"""Whether this is the work of a call, which a nested call must not queue up behind."""


def on_a_thread(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate["AsyncCaller[Any]", P], Coroutine[Any, Any, R]]:
    """Make the coroutine method that calls a method of the core."""

    @wraps(method)
    async def call(self: "AsyncCaller[Any]", /, *args: P.args, **kwargs: P.kwargs) -> R:
        work: Callable[[], R] = partial(getattr(self.sync, method.__name__), *args, **kwargs)
        return await self.run(work)

    return call


def chained(
    method: Callable[Concatenate[Any, P], Any],
) -> Callable[Concatenate[Wrapper, P], Coroutine[Any, Any, Wrapper]]:
    """Make the coroutine method for a method of the core that returns the core."""

    @wraps(method)
    async def call(self: Wrapper, /, *args: P.args, **kwargs: P.kwargs) -> Wrapper:
        await self.run(partial(getattr(self.sync, method.__name__), *args, **kwargs))
        return self

    return call


class AsyncCaller(Generic[Core]):
    """What both have in common: threads for the calls, hooks, and an end.

    Args:
        core: what answers; closed together with this object.
        max_calls: calls in progress at the same time, each on a thread that mostly waits.
        max_waiting_calls: further calls, which wait in order; beyond that they are refused.
    """

    def __init__(self, core: Core, max_calls: int, max_waiting_calls: int) -> None:
        self._core = core
        self._threads = CallThreads(
            whole_number("max_calls", max_calls, least=1),
            whole_number("max_waiting_calls", max_waiting_calls, least=0),
        )
        weakref.finalize(self, self._threads.release)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._core!r})"

    @property
    def sync(self) -> Core:
        """The core. May be called too, from any thread but that of a running loop."""
        return self._core

    @property
    def hooks(self) -> tuple[object, ...]:
        """Installed hooks, in the order they run."""
        return self._core.hooks

    def add_hook(self, hook: Any) -> Self:
        """Install one hook, or several in order, behind those already there."""
        self._core.add_hook(hook)
        return self

    def remove_hook(self, hook: object) -> bool:
        """Remove the latest installed copy of `hook`, compared by identity."""
        return self._core.remove_hook(hook)

    @contextmanager
    def hooks_installed(self, *hooks: object) -> Generator[Self, None, None]:
        """Install hooks for the time of a `with` block."""
        with self._core.hooks_installed(*hooks):
            yield self

    async def run(self, work: Callable[[], R]) -> R:
        """Run a function the way the methods run: on a thread, in a copy of this context.

        Raises:
            OverloadedError: too many calls wait for a thread; raised at once.
            DeadlineExceededError: the deadline passed before a thread was free.
            RuntimeClosedError: this object is closed.
        """
        return await _Call(work).answer(self._threads)

    def predict_stream(
        self,
        items: Iterable[Any],
        *arguments: Any,
        window: int = DEFAULT_WINDOW,
        **options: Any,
    ) -> AsyncIterator[Prediction]:
        """Answer states from any iterable, as `predict_stream` of the core does.

        The iterable is read on the thread of a call, a window at a time, as answers are asked for.
        """
        stream = self._core.predict_stream(  # type: ignore[attr-defined]
            items, *arguments, window=window, **options
        )
        return self._answers(stream, window)

    async def _answers(
        self, stream: Iterator[Prediction], window: int
    ) -> AsyncIterator[Prediction]:
        def pull() -> tuple[list[Prediction], Exception | None]:
            answers: list[Prediction] = []
            try:
                answers.extend(islice(stream, window))
            except Exception as exc:  # noqa: BLE001 - raised behind the answers
                return answers, exc
            return answers, None

        failure: Exception | None = None
        answers: list[Prediction] = []
        while failure is None:
            answers, failure = await self.run(pull)
            for answer in answers:
                yield answer
            if failure is None and len(answers) < window:
                return
        raise_unchanged(failure)

    def close(self) -> None:
        """Close at once: rows that wait fail, passes in flight end. Does not wait for calls."""
        self._threads.release()
        self._core.close()  # type: ignore[attr-defined]

    async def aclose(self) -> None:
        """Accept no further call, wait for those accepted to end, then close the core."""
        self._threads.release()
        await asyncio.to_thread(self._end)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def _end(self) -> None:
        self._threads.join()
        self._core.close()  # type: ignore[attr-defined]


class AsyncAgent(AsyncCaller[DecisionAgent]):
    """An `Agent` for coroutines, of one event loop or several.

        agent = await AsyncAgent.load("starter")
        result = await agent.predict("The app crashes", questions)

    Methods take the arguments of `Agent`'s and return the same. Coroutine hooks run on the loop
    that made the call; a call that is cancelled ends like any failed call.

    Args:
        agent: what answers.
        max_calls: calls in progress at the same time.
        max_waiting_calls: further calls, which wait in order; beyond that they are refused with
            `OverloadedError`.
    """

    def __init__(
        self,
        agent: DecisionAgent,
        *,
        max_calls: int = DEFAULT_MAX_CALLS,
        max_waiting_calls: int = DEFAULT_MAX_WAITING_CALLS,
    ) -> None:
        if not isinstance(agent, DecisionAgent):
            raise InvalidTypeError(f"AsyncAgent takes an opened Agent, got {shorten(agent)}")
        super().__init__(agent, max_calls, max_waiting_calls)

    @classmethod
    async def load(
        cls,
        model_id_or_path: str | Path | Checkpoint = DEFAULT_CHECKPOINT,
        device: str | None = None,
        *,
        max_calls: int = DEFAULT_MAX_CALLS,
        max_waiting_calls: int = DEFAULT_MAX_WAITING_CALLS,
        **options: Any,
    ) -> Self:
        """Open a checkpoint; `options` are those of `Agent`."""
        agent = await asyncio.to_thread(Agent, model_id_or_path, device, **options)
        return cls(agent, max_calls=max_calls, max_waiting_calls=max_waiting_calls)

    @property
    def model_id(self) -> str:
        """The name or path the checkpoint was asked for by."""
        return self._core.model_id

    @property
    def device(self) -> str:
        """The device that really runs: `cpu`, `cuda:0`, ..."""
        return self._core.device

    def describe(self) -> dict[str, Any]:
        """What this agent runs, as plain data."""
        return self._core.describe()

    def statistics(self) -> dict[str, Any]:
        """What was computed so far, as plain numbers."""
        return self._core.statistics()

    predict_batch = on_a_thread(DecisionAgent.predict_batch)
    system_one = on_a_thread(DecisionAgent.system_one)
    predict = system_one
    predict_long = on_a_thread(DecisionAgent.predict_long)
    state_capacity = on_a_thread(DecisionAgent.state_capacity)
    logits = on_a_thread(DecisionAgent.logits)
    warmup = on_a_thread(DecisionAgent.warmup)


class AsyncRouter(AsyncCaller[Router]):
    """A `Router` for coroutines, of one event loop or several.

    Methods take the arguments of `Router`'s and return the same.

    Args:
        router: what answers.
        max_calls: calls in progress at the same time.
        max_waiting_calls: further calls, which wait in order; beyond that they are refused with
            `OverloadedError`.
    """

    def __init__(
        self,
        router: Router,
        *,
        max_calls: int = DEFAULT_MAX_CALLS,
        max_waiting_calls: int = DEFAULT_MAX_WAITING_CALLS,
    ) -> None:
        if not isinstance(router, Router):
            raise InvalidTypeError(f"AsyncRouter takes a Router, got {shorten(router)}")
        super().__init__(router, max_calls, max_waiting_calls)

    @classmethod
    async def create(
        cls,
        models: Mapping[str, Any] | None = None,
        *,
        max_calls: int = DEFAULT_MAX_CALLS,
        max_waiting_calls: int = DEFAULT_MAX_WAITING_CALLS,
        **options: Any,
    ) -> Self:
        """Make a router; `options` are those of `Router`, `preload` among them."""
        router = await asyncio.to_thread(partial(Router, models, **options))
        return cls(router, max_calls=max_calls, max_waiting_calls=max_waiting_calls)

    @property
    def loaded(self) -> list[str]:
        """Resident checkpoints, least recently used first."""
        return self._core.loaded

    route = on_a_thread(Router.route)
    route_batch = on_a_thread(Router.route_batch)
    predict = on_a_thread(Router.predict)
    predict_batch = on_a_thread(Router.predict_batch)
    predict_long = on_a_thread(Router.predict_long)
    system_one = predict
    predict_many = predict_batch
    resolve = on_a_thread(Router.resolve)
    register = on_a_thread(Router.register)
    unregister = on_a_thread(Router.unregister)
    load = on_a_thread(Router.load)
    attach = on_a_thread(Router.attach)
    unload = on_a_thread(Router.unload)
    preload = chained(Router.preload)
    pin = chained(Router.pin)
    unpin = chained(Router.unpin)


class _Call(Generic[R]):
    """One call, on its way from a coroutine to a thread and back."""

    def __init__(self, work: Callable[[], R]) -> None:
        self._work = work
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._cancellation = Cancellation()
        self._waiter: asyncio.Future[None] = self._loop.create_future()
        self._outcome: tuple[R] | BaseException | None = None
        self._ended = False  # as far as the loop knows

    async def answer(self, threads: CallThreads) -> R:
        """Wait for the result, or raise what the call raised."""
        left = remaining("the call was made")
        job = threads.submit(self._run, nested=INSIDE_CALL.get())

        def give_up() -> None:
            if threads.withdraw(job):
                self._wake()

        timer = None if left is None else self._loop.call_later(left, give_up)
        try:
            await self._waiter
        except asyncio.CancelledError:
            if not self._ended and not threads.withdraw(job):
                await self._leave()
            raise
        finally:
            if timer is not None:
                timer.cancel()
        return self._result()

    def _run(self) -> None:
        try:
            self._outcome = (self._context.run(self._inside),)
        except BaseException as exc:  # noqa: BLE001 - raised by the coroutine that waits
            self._outcome = exc
        with suppress(RuntimeError):  # the loop is closed, so nobody waits
            self._loop.call_soon_threadsafe(self._wake)

    def _inside(self) -> R:
        INSIDE_CALL.set(True)
        CALLERS_LOOP.set(self._loop)
        with cancellable(self._cancellation):
            return self._work()

    def _wake(self) -> None:
        self._ended = True
        if not self._waiter.done():
            self._waiter.set_result(None)

    async def _leave(self) -> None:
        """Cancel the call, and give its end hooks some time."""
        self._waiter = self._loop.create_future()
        self._cancellation.cancel()
        await asyncio.wait([self._waiter], timeout=GRACE_SECONDS)

    def _result(self) -> R:
        outcome, self._outcome = self._outcome, None
        if isinstance(outcome, tuple):
            return outcome[0]
        if outcome is None:
            raise DeadlineExceededError("the deadline passed while the call waited for a thread")
        try:
            raise_unchanged(outcome)
        finally:
            del outcome  # or the error would refer to this frame, which refers to it
