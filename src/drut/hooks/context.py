"""What a hook is handed."""

import time
import uuid
from collections.abc import Iterable, Mapping, Sized
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Any

from drut.errors import InvalidRequestError, InvalidTypeError
from drut.schema import Prediction, Usage


class CallVariables:
    """The context variables that off-thread and coroutine hooks of one call share.

    What such a hook sets in start is there in end, and its tokens can be reset.
    """

    def __init__(self) -> None:
        self._context: Context | None = None

    def context(self) -> Context:
        """The shared context, copied from the caller's at first use."""
        if self._context is None:
            self._context = copy_context()
        return self._context

    def leave_to_late_hook(self) -> None:
        """Go on with a copy, since a hook that overran its limit still runs in this one."""
        self._context = self.context().copy()


@dataclass(eq=False, slots=True)
class PredictContext:
    """One request, from start to end. Every hook of the request sees this object.

    A start hook may replace `states`, `questions`, `max_len`, `head_max_len` and `lang`, or answer
    the request with `skip`; an end hook may replace `results`; an `on_route` hook may replace
    `decision`. Changes to the other fields are ignored.
    """

    states: Any  # the caller's states, unchecked
    questions: Any  # the caller's questions, the same object
    decision: Mapping[str, Any] | None = None  # Router only
    model: str | None = None
    agent: Any = None
    router: Any = None  # Router only
    max_len: int | None = None
    head_max_len: int | None = None
    lang: str | None = None  # language code that picks temperatures
    results: list[Prediction] | None = None
    usage: Usage | None = None  # totals over the results
    elapsed_ms: float | None = None
    error: BaseException | None = None
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    started_at: float = field(default_factory=time.perf_counter)
    document: bool = False  # the states are windows of one document, which has one result
    variables: CallVariables = field(default_factory=CallVariables, repr=False)

    def skip(self, results: list[Prediction]) -> None:
        """Answer the request from a start hook: nothing is tokenised and no forward pass runs.

        Args:
            results: one per state. One for all is enough where the states are the windows of a
                document. Nothing is counted where the states are an iterator.

        Raises:
            InvalidTypeError: `results` is not a list.
            InvalidRequestError: it does not hold one result per state.
        """
        if not isinstance(results, list):
            raise InvalidTypeError(
                f"skip takes a list with one result per state, got {type(results).__name__}"
            )
        states = _count(self.states)
        if states not in (None, len(results)) and not (self.document and len(results) == 1):
            raise InvalidRequestError(
                f"skip got {len(results)} results for {states} states; give one per state"
            )
        self.results = results


def _count(states: object) -> int | None:
    """Number of states, None where only reading them would tell."""
    if isinstance(states, str | bytes | bytearray | Mapping) or not isinstance(states, Iterable):
        return 1
    return len(states) if isinstance(states, Sized) else None
