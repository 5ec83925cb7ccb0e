"""How long the work inside a `with` block may take, known to everything below it.

    with drut.deadline(0.2):
        agent.predict(state, questions)

Queues and remote runtimes give up when it has passed; a forward pass that runs on this machine is
not interrupted. Nested deadlines only ever shorten the time.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from drut.errors import DeadlineExceededError, InvalidRequestError, InvalidTypeError

_AT: Final[ContextVar[float | None]] = ContextVar("drut_deadline", default=None)


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Give up on what is done inside after so many seconds, with `DeadlineExceededError`."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InvalidTypeError(f"a deadline is a number of seconds, got {type(seconds).__name__}")
    if not math.isfinite(seconds) or seconds <= 0:
        raise InvalidRequestError(f"a deadline must be a positive number of seconds, got {seconds}")
    with deadline_at(time.monotonic() + seconds):
        yield


@contextmanager
def deadline_at(moment: float | None) -> Iterator[None]:
    """The same with a moment of `time.monotonic`; None leaves the deadline in force."""
    current = _AT.get()
    if moment is None or (current is not None and current <= moment):
        yield
        return
    token = _AT.set(moment)
    try:
        yield
    finally:
        _AT.reset(token)


def current_deadline() -> float | None:
    """The moment of `time.monotonic` by which work has to end, or None."""
    return _AT.get()


def remaining(what: str) -> float | None:
    """Seconds left, or None without a deadline.

    Args:
        what: the work about to start, for the error.

    Raises:
        DeadlineExceededError: none are left.
    """
    moment = _AT.get()
    if moment is None:
        return None
    left = moment - time.monotonic()
    if left <= 0:
        raise DeadlineExceededError(f"the deadline passed {-left:.3f} s before {what}")
    return left
