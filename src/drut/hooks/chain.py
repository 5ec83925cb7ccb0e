"""The only module that calls a hook."""

import time
import warnings
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from drut.hooks.context import CallVariables, PredictContext
from drut.hooks.invoke import DEFAULT_POLICY, HookPolicy, invoke
from drut.hooks.protocol import VETO_EVENTS, Event


class _Failures:
    """Collects what hooks raise. An interrupt outranks an error, and the first outranks later."""

    def __init__(self) -> None:
        self._error: Exception | None = None
        self._interrupt: BaseException | None = None

    def add(self, exc: BaseException) -> None:
        if isinstance(exc, Exception):
            self._error = self._error or exc
        else:
            self._interrupt = self._interrupt or exc

    def raise_first(self) -> None:
        if self._interrupt is not None:
            raise self._interrupt
        if self._error is not None:
            raise self._error


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
        failures = _Failures()
        for hook in self.hooks:
            method = getattr(hook, event, None)
            if method is None:
                continue
            try:
                invoke(method, ctx, self.policy)
            except Exception as exc:  # raised again, here or after the other hooks
                if not self.policy.raise_errors:
                    _warn(hook, event, exc)
                elif event in VETO_EVENTS:
                    raise
                else:
                    failures.add(exc)
            except BaseException as exc:
                if event in VETO_EVENTS:
                    raise
                failures.add(exc)
        failures.raise_first()

    def fire_all(self, events: Iterable[tuple[Event, PredictContext]]) -> None:
        """Fire every event, even where one fails; raise the first error after them."""
        failures = _Failures()
        for event, ctx in events:
            try:
                self.fire(event, ctx)
            except BaseException as exc:  # noqa: BLE001 - raised below
                failures.add(exc)
        failures.raise_first()

    @contextmanager
    def call(self, *contexts: PredictContext) -> Generator[None, None, None]:
        """Wrap the work of one call: start, then the body, then error and end.

        Several contexts share one body: all start in order, then all end in reverse. A failure of
        a start hook or of the body reaches every context that has started, and is raised again;
        an error of a hook on that path is linked to it, an interrupt takes its place.
        """
        started: list[PredictContext] = []
        variables = CallVariables()
        try:
            for ctx in contexts:
                ctx.variables = variables
                ctx.started_at = time.perf_counter()
                started.append(ctx)
                self.fire("on_predict_start", ctx)
            yield
        except BaseException as exc:
            try:
                self._finish(started, exc)
            except Exception as hook_error:  # noqa: BLE001 - must not hide the failure
                _link(exc, hook_error)
            raise
        self._finish(started, None)

    def _finish(self, started: list[PredictContext], error: BaseException | None) -> None:
        now = time.perf_counter()
        for ctx in started:
            ctx.elapsed_ms = (now - ctx.started_at) * 1000.0
            ctx.error = error
        events: tuple[Event, ...] = ("on_predict_end",)
        if error is not None:
            events = ("on_error", *events)
        self.fire_all((event, ctx) for ctx in reversed(started) for event in events)


NO_HOOKS: Final = HookChain()


def _warn(hook: object, event: Event, exc: Exception) -> None:
    warnings.warn(
        f"hook {type(hook).__name__}.{event} failed: {type(exc).__name__}: {exc}",
        RuntimeWarning,
        stacklevel=4,
    )


def _link(failure: BaseException, hook_error: BaseException) -> None:
    """Make `hook_error` the context of `failure`, without closing a circle."""
    if hook_error is failure:
        return
    last, seen = hook_error, {id(hook_error)}
    while (following := last.__context__) is not None and following is not failure:
        if id(following) in seen:
            return
        seen.add(id(following))
        last = following
    last.__context__ = failure.__context__ if id(failure.__context__) not in seen else None
    failure.__context__ = hook_error
