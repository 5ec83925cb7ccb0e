"""The six events, and what may be installed as a hook."""

from collections.abc import Awaitable, Callable, Iterable, Set
from typing import Any, Final, Literal, TypeAlias

from drut.errors import InvalidHookError
from drut.hooks.context import PredictContext

Event: TypeAlias = Literal[
    "on_predict_start", "on_predict_end", "on_route", "on_load", "on_evict", "on_error"
]
EVENTS: Final[tuple[Event, ...]] = (
    "on_predict_start",
    "on_predict_end",
    "on_route",
    "on_load",
    "on_evict",
    "on_error",
)
VETO_EVENTS: Final[frozenset[Event]] = frozenset({"on_predict_start", "on_route"})
"""Events whose hooks may stop the call by raising; of all others every hook runs."""

Callback: TypeAlias = Callable[[PredictContext], Awaitable[None] | None]


class BaseHook:
    """A hook that does nothing. Derive from it, or write any object with some of its methods.

    Every method is handed the `PredictContext` of the call and may be a coroutine.
    """

    def on_predict_start(self, ctx: PredictContext) -> Awaitable[None] | None:
        """Before anything is validated; may rewrite the request, answer it, or raise."""
        return None

    def on_predict_end(self, ctx: PredictContext) -> Awaitable[None] | None:
        """Exactly once per started request, on success and on failure."""
        return None

    def on_route(self, ctx: PredictContext) -> Awaitable[None] | None:
        """After a checkpoint was chosen and before it is loaded; may replace `ctx.decision`."""
        return None

    def on_load(self, ctx: PredictContext) -> Awaitable[None] | None:
        """After a checkpoint was built."""
        return None

    def on_evict(self, ctx: PredictContext) -> Awaitable[None] | None:
        """After a checkpoint was freed."""
        return None

    def on_error(self, ctx: PredictContext) -> Awaitable[None] | None:
        """When a started request fails, before its `on_predict_end`; `ctx.error` is the reason."""
        return None


class CallbackHook(BaseHook):
    """One plain function as a hook."""

    def __init__(self, event: Literal["on_predict_start", "on_predict_end"], function: Callback):
        self._function = function
        setattr(self, event, function)

    def __repr__(self) -> str:
        return f"CallbackHook({getattr(self._function, '__qualname__', self._function)!r})"


def as_hooks(hooks: object, *, argument: str = "hooks") -> tuple[object, ...]:
    """Return the hooks of an argument as a tuple: None, one hook, or an ordered iterable of them.

    Raises:
        InvalidHookError: an entry cannot be a hook; the message says which and why.
    """
    if hooks is None:
        return ()
    if isinstance(hooks, Set):
        raise InvalidHookError(f"{argument} is a set, but hooks run in order: pass a list")
    if isinstance(hooks, type) or _events_of(hooks) or not isinstance(hooks, Iterable):
        return (_checked(hooks, argument),)
    return tuple(_checked(hook, f"{argument}[{position}]") for position, hook in enumerate(hooks))


def as_callbacks(
    event: Literal["on_predict_start", "on_predict_end"], functions: object
) -> tuple[object, ...]:
    """Wrap the callables of `on_predict_start=` or `on_predict_end=` as hooks."""
    if functions is None:
        return ()
    entries: Iterable[Any] = functions if isinstance(functions, list | tuple) else (functions,)
    for function in entries:
        if not callable(function):
            raise InvalidHookError(
                f"{event} takes a function or a list of functions, got {type(function).__name__}"
            )
    return tuple(CallbackHook(event, function) for function in entries)


def _events_of(hook: object) -> list[Event]:
    return [event for event in EVENTS if getattr(hook, event, None) is not None]


def _checked(hook: object, where: str) -> object:
    if isinstance(hook, type):
        raise InvalidHookError(f"{where} is the class {hook.__name__}; pass an instance of it")
    events = _events_of(hook)
    if not events and callable(hook):
        raise InvalidHookError(
            f"{where} is a plain function; pass it as on_predict_start= or on_predict_end="
        )
    if not events:
        raise InvalidHookError(
            f"{where} is a {type(hook).__name__} without any of the methods {', '.join(EVENTS)}"
        )
    for event in events:
        if not callable(getattr(hook, event)):
            raise InvalidHookError(f"{where}: {type(hook).__name__}.{event} is not callable")
    return hook
