"""How work on another thread learns that nobody waits for it any more.

Like `drut.deadlines`, and for the same places: a queue lets go of the rows of a call that was
cancelled. What runs at that moment is not interrupted.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Final

_CURRENT: Final[ContextVar["Cancellation | None"]] = ContextVar("drut_cancellation", default=None)


class Cancellation:
    """One call that may be cancelled from any thread.

    It is delivered once, as `asyncio.CancelledError`; what the call does afterwards, such as its
    end hooks, runs undisturbed.
    """

    def __init__(self) -> None:
        self._lock = Lock()  # guards the other two
        self._pending = False
        self._watchers: list[Callable[[], None]] = []

    @property
    def pending(self) -> bool:
        """Whether the call was cancelled and does not know it yet."""
        return self._pending

    def cancel(self) -> None:
        """Cancel the call: wake what waits on its behalf."""
        with self._lock:
            self._pending = True
            watchers, self._watchers = self._watchers, []
        for wake in watchers:
            wake()

    def take(self) -> bool:
        """What `pending` says; the call knows from here on."""
        with self._lock:
            pending, self._pending = self._pending, False
        return pending

    def deliver(self) -> None:
        """Raise `asyncio.CancelledError` if the call was cancelled and does not know it yet."""
        if self.take():
            # Imported here: who is never cancelled needs no event loop, nor the memory of one.
            from asyncio import CancelledError

            raise CancelledError("the call was cancelled")

    @contextmanager
    def watched(self, wake: Callable[[], None]) -> Iterator[None]:
        """Call `wake` when the call is cancelled inside the block, on the cancelling thread."""
        with self._lock:
            already = self._pending
            if not already:
                self._watchers.append(wake)
        if already:
            wake()
        try:
            yield
        finally:
            with self._lock:
                if wake in self._watchers:
                    self._watchers.remove(wake)


@contextmanager
def cancellable(cancellation: Cancellation) -> Iterator[None]:
    """Let everything inside the block be cancelled through `cancellation`."""
    token = _CURRENT.set(cancellation)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_cancellation() -> Cancellation | None:
    """The cancellation of the current call, None where nobody can cancel it."""
    return _CURRENT.get()
