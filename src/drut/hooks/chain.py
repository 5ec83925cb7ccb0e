"""The only module that calls a hook."""

import time
import warnings
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final

from drut.errors import InvalidTypeError
from drut.hooks.context import CallVariables, PredictContext
from drut.hooks.invoke import DEFAULT_POLICY, HookPolicy, invoke, raise_unchanged
from drut.hooks.protocol import VETO_EVENTS, Event
from drut.usage import total_usage


class _Failures:
    """Collects what hooks raise. An interrupt outranks an error, and the first outranks later."""

    def __init__(self) -> None:
        self._errors: list[Exception] = []
        self._interrupts: list[BaseException] = []

    def add(self, exc: BaseException) -> None:
        if isinstance(exc, Exception):
            self._errors.append(exc)
        else:
            self._interrupts.append(exc)

    def first(self) -> BaseException | None:
        return next(iter((*self._interrupts, *self._errors)), None)


@dataclass(frozen=True, slots=True)
class HookChain:
    """The hooks of one call in the order they run."""

    hooks: tuple[object, ...] = ()
    policy: HookPolicy = DEFAULT_POLICY

    def then(self, extra: Iterable[object]) -> "HookChain":
        """Return this chain followed by further hooks."""
        return replace(self, hooks=(*self.hooks, *extra))

    def fire(self, event: Event, ctx: PredictContext) -> None:
        """Run `event` on every hook that implements it, in order.

        The first hook of a veto event that raises stops the event. Of all other events every hook
        runs, and the first error is raised after them.
        """
        self.fire_all([(event, ctx)])

    def fire_all(self, events: Iterable[tuple[Event, PredictContext]]) -> None:
        """Fire every event, even where one fails; raise the first error after them."""
        failures = _Failures()
        for event, ctx in events:
            self.collect(event, ctx, failures)
        if (exc := failures.first()) is not None:
            raise_unchanged(exc)

    def collect(self, event: Event, ctx: PredictContext, failures: _Failures) -> None:
        """Run `event` like `fire`, and add to `failures` what hooks raise."""
        for hook in self.hooks:
            try:
                self._run(hook, event, ctx)
            except BaseException as exc:  # noqa: BLE001 - raised by who collects
                failures.add(exc)
                if event in VETO_EVENTS:
                    return

    def call(self, *contexts: PredictContext) -> AbstractContextManager[None]:
        """Wrap the work of one call: start, then the body, then error and end.

        Several contexts share one body: all start in order, then all end in reverse. A failure of
        a start hook or of the body reaches every context that has started, and is raised again.
        An error of a hook on that path is linked to it; an interrupt takes the place of an error.
        """
        return _Call(self, contexts)

    def _run(self, hook: object, event: Event, ctx: PredictContext) -> None:
        method = getattr(hook, event, None)
        if method is None:
            return
        try:
            invoke(method, ctx, self.policy)
        except Exception as exc:
            if self.policy.raise_errors:
                raise
            _warn(hook, event, exc)


class _Call:
    """One call in progress. Not a generator, so that a `StopIteration` passes like any error."""

    def __init__(self, chain: HookChain, contexts: Sequence[PredictContext]) -> None:
        self._chain = chain
        self._contexts = contexts
        self._started: list[tuple[PredictContext, float]] = []

    def __enter__(self) -> None:
        variables = CallVariables()
        try:
            for ctx in self._contexts:
                ctx.variables = variables
                ctx.started_at = time.perf_counter()
                self._started.append((ctx, ctx.started_at))
                self._chain.fire("on_predict_start", ctx)
        except BaseException as failure:
            self._fail(failure)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if failure is not None:
            self._fail(failure)
        elif (hook_error := self._finish(None)) is not None:
            raise_unchanged(hook_error)

    def _fail(self, failure: BaseException) -> None:
        """Tell the hooks. Raises where a hook is interrupted, which no error may hide."""
        hook_error = self._finish(failure)
        if hook_error is None:
            return
        if isinstance(failure, Exception) and not isinstance(hook_error, Exception):
            raise hook_error
        _link(failure, hook_error)

    def _finish(self, error: BaseException | None) -> BaseException | None:
        """Fire the last events of every started request; return the first failure of a hook."""
        now = time.perf_counter()
        for ctx, started_at in self._started:
            ctx.elapsed_ms = (now - started_at) * 1000.0
            ctx.error = error
            if error is not None and ctx.usage is None and ctx.results is not None:
                with suppress(InvalidTypeError):  # a malformed result may be the failure itself
                    ctx.usage = total_usage(ctx.results)
        failures = _Failures()
        for ctx, _ in reversed(self._started):
            if error is not None:
                self._chain.collect("on_error", ctx, failures)
            self._chain.collect("on_predict_end", ctx, failures)
        return failures.first()


NO_HOOKS: Final = HookChain()


def _warn(hook: object, event: Event, exc: Exception) -> None:
    warnings.warn(
        f"hook {type(hook).__name__}.{event} failed: {type(exc).__name__}: {exc}",
        RuntimeWarning,
        stacklevel=5,
    )


def _link(failure: BaseException, hook_error: BaseException) -> None:
    """Make `hook_error` the context of `failure`, without closing a circle."""
    if hook_error is failure:
        return
    reached = _reachable(hook_error, failure)
    if any(exc.__cause__ is failure for exc in reached.values()):
        # Raised `from` the failure: that link is the hook's own and points the other way.
        failure.add_note(f"a hook failed too: {type(hook_error).__name__}: {hook_error}")
        return
    for exc in reached.values():
        if exc.__context__ is failure:
            exc.__context__ = None
    free = [exc for exc in reached.values() if exc.__context__ is None]
    if free and not reached.keys() & _reachable(failure.__context__, failure).keys():
        free[0].__context__ = failure.__context__
    failure.__context__ = hook_error


def _reachable(start: BaseException | None, stop: BaseException) -> dict[int, BaseException]:
    """Exceptions linked from `start`, itself first, without going through `stop`, by identity."""
    found: dict[int, BaseException] = {}
    waiting = [start]
    while waiting:
        exc = waiting.pop()
        if exc is not None and exc is not stop and id(exc) not in found:
            found[id(exc)] = exc
            waiting += (exc.__cause__, exc.__context__)
    return found
