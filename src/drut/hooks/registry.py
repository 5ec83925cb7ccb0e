"""The hooks installed on an object: a tuple that is swapped, so that a call sees a snapshot."""

import math
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import TIMEOUT_MAX, Lock
from typing import Any, Self

from drut.errors import InvalidRequestError
from drut.hooks.chain import HookChain
from drut.hooks.invoke import HookGuard, HookPolicy
from drut.hooks.protocol import as_callbacks, as_hooks


@dataclass(frozen=True, slots=True)
class HookOptions:
    """The hook arguments of a constructor or of one call, checked.

    Of a call, None means what the object was built with.
    """

    hooks: tuple[object, ...] = ()
    raise_errors: bool | None = None
    timeout: float | None = None


def hook_options(
    hooks: Any = None,
    on_predict_start: Any = None,
    on_predict_end: Any = None,
    hooks_raise: bool | None = None,
    hooks_timeout: Any = None,
) -> HookOptions:
    """Check hook arguments. Callables of `on_predict_*` run after the entries of `hooks`.

    Raises:
        InvalidHookError: an entry cannot be a hook.
        InvalidRequestError: the time limit is not a positive finite number of seconds.
    """
    entries = (
        *as_hooks(hooks),
        *as_callbacks("on_predict_start", on_predict_start),
        *as_callbacks("on_predict_end", on_predict_end),
    )
    return HookOptions(entries, hooks_raise, parse_timeout(hooks_timeout))


def parse_timeout(value: object) -> float | None:
    """Seconds of a hook at most, or None for no limit."""
    if value is None:
        return None
    try:
        seconds = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise InvalidRequestError(
            f"hooks_timeout must be a positive number of seconds or None, got {value!r}"
        )
    return min(seconds, TIMEOUT_MAX)


class HookOwner:
    """What `Agent` and `Router` have in common: installed hooks and the policy around them."""

    def __init__(self, options: HookOptions, *, concurrent: bool = True) -> None:
        self._installed = options.hooks
        self._installing = Lock()
        self._policy = HookPolicy(
            raise_errors=options.raise_errors is not False,
            timeout=options.timeout,
            guard=None if concurrent else HookGuard(),
        )

    @property
    def hooks(self) -> tuple[object, ...]:
        """Installed hooks, in the order they run."""
        return self._installed

    def add_hook(self, hook: Any) -> Self:
        """Install one hook, or several in order, behind those already there."""
        added = as_hooks(hook)
        with self._installing:
            self._installed = (*self._installed, *added)
        return self

    def remove_hook(self, hook: object) -> bool:
        """Remove the latest installed copy of `hook`, compared by identity."""
        with self._installing:
            for index in reversed(range(len(self._installed))):
                if self._installed[index] is hook:
                    self._installed = (*self._installed[:index], *self._installed[index + 1 :])
                    return True
        return False

    @contextmanager
    def hooks_installed(self, *hooks: object) -> Generator[Self, None, None]:
        """Install hooks for the time of a `with` block."""
        added = as_hooks(hooks)
        self.add_hook(added)
        try:
            yield self
        finally:
            for hook in reversed(added):
                self.remove_hook(hook)

    def _chain(self, call: HookOptions) -> HookChain:
        """Installed hooks, then those of the call."""
        policy = HookPolicy(
            raise_errors=self._policy.raise_errors
            if call.raise_errors is None
            else call.raise_errors,
            timeout=self._policy.timeout if call.timeout is None else call.timeout,
            guard=self._policy.guard,
        )
        return HookChain((*self._installed, *call.hooks), policy)
