"""What the Router needs of an agent, and what it may pass to it."""

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from drut.errors import ForwardError, InvalidTypeError
from drut.questions import shorten


@runtime_checkable
class AgentProtocol(Protocol):
    """What can be attached to a Router. `drut.Agent` has all of it and more.

    Either method may also take `lang`, `max_len`, `head_max_len` and `on_truncation`, and
    `predict_batch` also `batch_size` and `sort_by_length`: the Router looks at the signatures
    once and passes what is set and accepted. `predict_long` and `close` are optional.
    """

    def system_one(self, state: Any, questions: Any) -> Any:
        """Answer questions about one state; returns a dict with `answers`."""
        ...

    def predict_batch(self, states: Any, questions: Any) -> Any:
        """Answer the same questions about every state; returns one dict per state, in order."""
        ...


@dataclass(frozen=True, slots=True)
class Accepted:
    """Keyword arguments a method takes."""

    names: frozenset[str]
    everything: bool = False

    def __contains__(self, name: str) -> bool:
        return self.everything or name in self.names


@dataclass(frozen=True, slots=True)
class AgentHandle:
    """An agent with what its methods accept."""

    agent: Any
    one: Accepted
    batch: Accepted
    long: Accepted | None  # None: it has no predict_long
    by_language: bool  # whether `lang` may change an answer of a batch

    def system_one(self, state: Any, questions: Any, options: Mapping[str, Any]) -> Any:
        """Ask about one state."""
        return self.agent.system_one(state, questions, **self._taken(self.one, options))

    def predict_batch(self, states: list[Any], questions: Any, options: Mapping[str, Any]) -> Any:
        """Ask about several states, which share the questions.

        Raises:
            ForwardError: the agent did not return a list with one result per state.
        """
        results = self.agent.predict_batch(states, questions, **self._taken(self.batch, options))
        if not isinstance(results, list | tuple):
            raise ForwardError(
                f"{_name(self.agent)}.predict_batch must return a list with one result per state, "
                f"got {type(results).__name__}"
            )
        if len(results) != len(states):
            raise ForwardError(
                f"{_name(self.agent)}.predict_batch returned {len(results)} results for "
                f"{len(states)} states; it must return one per state, in order"
            )
        return results

    def predict_long(self, state: Any, questions: Any, options: Mapping[str, Any]) -> Any:
        """Ask about one state of any length.

        Raises:
            InvalidTypeError: the agent has no such method.
        """
        if self.long is None:
            raise InvalidTypeError(
                f"the attached {_name(self.agent)} has no predict_long; use predict, or attach an "
                "agent that reads long states"
            )
        return self.agent.predict_long(state, questions, **self._taken(self.long, options))

    def _taken(self, accepted: Accepted, options: Mapping[str, Any]) -> dict[str, Any]:
        taken = {name: value for name, value in options.items() if name in accepted}
        left = [name for name in options if name not in taken and name != "lang"]
        if left:
            warnings.warn(
                f"{_name(self.agent)} takes no {' or '.join(left)}, so it answers without",
                RuntimeWarning,
                stacklevel=2,
            )
        return taken


def as_handle(agent: object) -> AgentHandle:
    """Check an agent and look at its signatures, once.

    Raises:
        InvalidTypeError: it lacks `system_one` or `predict_batch`.
    """
    if isinstance(agent, type) or not isinstance(agent, AgentProtocol):
        raise InvalidTypeError(
            f"{shorten(agent)} cannot answer for the Router: it needs the methods "
            "system_one(state, questions) and predict_batch(states, questions)"
        )
    long = getattr(agent, "predict_long", None)
    batch = _accepted(agent.predict_batch)
    return AgentHandle(
        agent,
        _accepted(agent.system_one),
        batch,
        _accepted(long) if callable(long) else None,
        "lang" in batch and _may_differ_by_language(agent),
    )


def _accepted(method: Callable[..., Any]) -> Accepted:
    try:
        parameters = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):  # written in C, or no signature at all: pass nothing extra
        return Accepted(frozenset())
    keywords = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return Accepted(
        frozenset(each.name for each in parameters if each.kind in keywords),
        any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters),
    )


def _may_differ_by_language(agent: Any) -> bool:
    """False only for agents that show they have no temperatures per language."""
    for owner, attribute in (
        (agent, "lang_temperatures"),
        (getattr(agent, "calibration", None), "by_language"),
    ):
        value = getattr(owner, attribute, None)
        if isinstance(value, Mapping):
            return bool(value)
    return True


def _name(agent: object) -> str:
    return type(agent).__name__
