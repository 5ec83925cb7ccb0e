"""What the Router is asked, checked before any hook hears of it."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from drut.errors import InvalidRequestError, InvalidTypeError
from drut.questions import as_mapping, shorten

REQUEST_KEYS: Final = (
    "state",
    "questions",
    "model",
    "task",
    "lang",
    "lang_guess",
    "max_len",
    "head_max_len",
)


@dataclass(frozen=True, slots=True)
class RouteRequest:
    """One request. All but the first two fields mean the same in `predict` and in a batch."""

    state: Any
    questions: Any  # the caller's object; None only where nothing is to be answered
    model: Any = None
    task: Any = None
    lang: Any = None
    lang_guess: Any = None
    max_len: int | None = None
    head_max_len: int | None = None


def answerable(request: RouteRequest) -> RouteRequest:
    """Check that a request has a state and questions.

    Raises:
        InvalidTypeError: the state is None or the questions are not a dict.
    """
    if request.state is None:
        raise InvalidTypeError("a state is None; pass text, a dict or a list")
    as_mapping(request.questions)
    return request


def read_requests(requests: object) -> list[RouteRequest]:
    """Read the requests of a batch.

    Raises:
        InvalidTypeError: not a list of dicts, or one lacks a state or questions.
        InvalidRequestError: a dict has an unknown key.
    """
    if isinstance(requests, str | bytes | bytearray | Mapping) or not isinstance(
        requests, Iterable
    ):
        raise InvalidTypeError(
            f"a batch is a list of requests, each a dict with 'state' and 'questions'; "
            f"got {type(requests).__name__}"
        )
    return [_read(request, index) for index, request in enumerate(requests)]


def closest(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?`, or nothing where no known name is close."""
    found = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


def _read(request: object, index: int) -> RouteRequest:
    if not isinstance(request, Mapping):
        raise InvalidTypeError(
            f"request {index} must be a dict with 'state' and 'questions', "
            f"got {type(request).__name__}"
        )
    for key in request:
        if key not in REQUEST_KEYS:
            raise InvalidRequestError(
                f"request {index} has the unknown key {shorten(key)}"
                f"{closest(str(key), REQUEST_KEYS)}. Known keys are {', '.join(REQUEST_KEYS)}"
            )
    for key in ("state", "questions"):
        if key not in request:
            raise InvalidTypeError(f"request {index} has no {key!r}")
    try:
        return answerable(RouteRequest(**request))
    except InvalidTypeError as exc:
        raise InvalidTypeError(f"request {index}: {exc}") from exc
