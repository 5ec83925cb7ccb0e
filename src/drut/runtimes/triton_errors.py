"""What went wrong between here and a Triton server, as errors of drut; and when to try again."""

import json
import random
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from drut.errors import (
    DeadlineExceededError,
    ForwardError,
    OverloadedError,
    RuntimeClosedError,
    ServerFaultError,
    ServerNotReadyError,
    ServerRefusedError,
    ServerUnreachableError,
)

T = TypeVar("T")

PAUSES: Final = (0.1, 0.3)
"""Seconds before the second and the third attempt, give or take a quarter."""

_TRANSPORT: Final = re.compile(
    r"failed to connect|connect(ion)? (failed|refused|reset|closed|timed? ?out)|socket closed"
    r"|errors? resolving|name resolution|lookup failed|recvmsg|broken pipe|goaway|keepalive"
    r"|stream removed|endpoint|no route|unreachable|handshake|ssl|tls|reset by peer|empty address",
    re.IGNORECASE,
)
"""How gRPC words failures of its own; its status code is the one a busy server sends, too."""

_GONE: Final = re.compile(r"not ready|stopping|shutting down|at ready state|no available versions")
_GRPC: Final[Mapping[str, type[ForwardError]]] = {
    "INVALID_ARGUMENT": ServerRefusedError,
    "FAILED_PRECONDITION": ServerRefusedError,
    "OUT_OF_RANGE": ServerRefusedError,
    "ALREADY_EXISTS": ServerRefusedError,
    "PERMISSION_DENIED": ServerRefusedError,
    "UNAUTHENTICATED": ServerRefusedError,
    "UNIMPLEMENTED": ServerRefusedError,
    "NOT_FOUND": ServerNotReadyError,
    "RESOURCE_EXHAUSTED": OverloadedError,
}
"""gRPC status to error, where one attempt says all; every other status is a fault."""

_VERBS: Final[Mapping[type[ForwardError], str]] = {
    ServerRefusedError: "refused the request",
    ServerNotReadyError: "does not serve this",
    OverloadedError: "is overloaded",
    ServerFaultError: "failed",
}
_SAID: Final = 300  # characters of a server's message that are repeated


class AttemptError(Exception):
    """One attempt failed.

    Attributes:
        error: for the caller.
        again: whether the same request may be sent again.
    """

    def __init__(self, error: ForwardError, *, again: bool = False) -> None:
        super().__init__(str(error))
        self.error = error
        self.again = again


def persist(attempt: Callable[[float], T], until: float, closed: threading.Event) -> T:
    """Call `attempt` with the seconds left, and again after failures that allow it.

    Args:
        attempt: raises `AttemptError`.
        until: moment of `time.monotonic` after which nothing is begun.
        closed: ends a pause early.

    Raises:
        ForwardError: that of the last attempt.
    """
    for pause in (*PAUSES, None):
        try:
            return attempt(_left(until))
        except AttemptError as failure:
            # Not a pause of fixed length: callers that failed together must not return together.
            wait = 0.0 if pause is None else pause * random.uniform(0.75, 1.25)
            if pause is None or not failure.again or time.monotonic() + wait >= until:
                raise failure.error from failure.__cause__
        if closed.wait(wait):
            raise RuntimeClosedError("the runtime was closed between two attempts")
    raise AssertionError  # the last attempt returns or raises


def unreachable(url: str, exc: BaseException) -> AttemptError:
    """Nobody answered: refused, reset before a response, no such host."""
    return AttemptError(
        ServerUnreachableError(
            f"no answer from {url}: {str(exc) or type(exc).__name__}; is the server running, and "
            "does the port belong to this protocol?"
        ),
        again=True,
    )


def untrusted(url: str, exc: BaseException) -> AttemptError:
    """The TLS handshake failed; the next one would, too."""
    return AttemptError(
        ServerUnreachableError(
            f"no trusted connection to {url}: {exc}; see the option tls (ca, certificate, key)"
        )
    )


def expired(url: str) -> AttemptError:
    """The time was over before the answer was complete."""
    return AttemptError(
        DeadlineExceededError(
            f"no complete answer from {url} in time; allow more with drut.deadline, or with "
            "server_timeout"
        )
    )


def incomplete(url: str, found: str) -> AttemptError:
    """The server answered, but not what was asked."""
    return AttemptError(ServerFaultError(f"{url} gave an answer that cannot be used: {found}"))


def http_failure(url: str, status: int, body: bytes) -> AttemptError:
    """The error of an HTTP status other than 200."""
    said = _said(body)
    if status == 503:
        return busy(url, said)
    kind: type[ForwardError] = ServerFaultError
    if status == 429:
        kind = OverloadedError
    elif status == 404 or (status == 400 and _GONE.search(said)):
        kind = ServerNotReadyError
    elif 300 <= status < 500:
        kind = ServerRefusedError
    return AttemptError(kind(f"{url} {_VERBS[kind]} ({status}): {said}"))


def grpc_failure(url: str, status: str | None, message: str | None) -> AttemptError:
    """The error of a gRPC status, such as `StatusCode.UNAVAILABLE`."""
    said = _shortened(message or "no message")
    name = (status or "no status").removeprefix("StatusCode.")
    if name == "UNAVAILABLE":
        return unreachable(url, Exception(said)) if _TRANSPORT.search(said) else busy(url, said)
    if name == "DEADLINE_EXCEEDED":
        return expired(url)
    if "CLIENT: Received message larger" in said:
        return incomplete(url, said)
    kind = _GRPC.get(name, ServerFaultError)
    if kind is ServerRefusedError and _GONE.search(said):
        kind = ServerNotReadyError
    return AttemptError(kind(f"{url} {_VERBS[kind]} ({name}): {said}"))


def busy(url: str, said: str) -> AttemptError:
    """The server takes no request now: its queue is full, or it is about to end."""
    if "not allowed" in said:  # of loading and unloading, where the server's mode forbids both
        return AttemptError(ServerRefusedError(f"{url} refused the request: {said}"))
    kind = ServerNotReadyError if _GONE.search(said) else OverloadedError
    return AttemptError(kind(f"{url} takes no request now: {said}"), again=True)


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise DeadlineExceededError(f"the time was over {-left:.3f} s before the request was sent")
    return left


def _said(body: bytes) -> str:
    """What a server wrote about its error: the text of Triton's JSON, else the beginning."""
    text = body.decode("utf-8", "replace").strip()
    try:
        told = json.loads(text)["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        told = text
    return _shortened(str(told) or "no message")


def _shortened(text: str) -> str:
    return text if len(text) <= _SAID else f"{text[:_SAID]}..."
