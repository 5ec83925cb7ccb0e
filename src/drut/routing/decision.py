"""RouteDecision: which checkpoint answers, and why."""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, cast

from drut.errors import InvalidRequestError, InvalidTypeError
from drut.questions import shorten

ReasonCode: TypeAlias = Literal[
    "explicit_model",
    "explicit_task",
    "workflow",
    "explicit_lang",
    "lang_guess",
    "installed_lang_guess",
    "no_letters",
    "non_latin_script",
    "mixed_language",
    "other_language",
    "undecided",
    "english",
    "hook",
]
REASON_CODES: Final[frozenset[str]] = frozenset(ReasonCode.__args__)  # type: ignore[attr-defined]
"""Stable: programs may compare with these. The wording of `reason` may change."""


class RouteDecision(dict[str, Any]):
    """A routing decision. Plain JSON, and never holds text of the state.

    Keys: `model` (checkpoint name), `repo` (where it comes from, or None), `reason` (one
    sentence), `reason_code` (one of `REASON_CODES`), `detection` (what the text said, or None
    where it was not asked), `workflow` (name of the workflow whose question ids these are, or
    None).
    """

    @property
    def model(self) -> str:
        """Name of the chosen checkpoint."""
        return cast(str, self["model"])

    @property
    def reason(self) -> str:
        """Why, in one sentence."""
        return cast(str, self.get("reason", ""))

    @property
    def reason_code(self) -> str:
        """Why, as one of `REASON_CODES`; `hook` where a hook's decision does not say."""
        return cast(str, self.get("reason_code", "hook"))

    def __repr__(self) -> str:
        return f"RouteDecision(model={self.get('model')!r}, reason_code={self.reason_code!r})"


def as_decision(value: object) -> RouteDecision:
    """Return what `on_route` hooks left as a decision; a RouteDecision stays the same object.

    Raises:
        InvalidTypeError: it is not a dict, or its `model` is not a string.
        InvalidRequestError: it has no `model`.
    """
    if not isinstance(value, Mapping):
        raise InvalidTypeError(
            f"an on_route hook left the decision {shorten(value)}; change ctx.decision['model'], "
            "or assign a dict with the key 'model'"
        )
    if "model" not in value:
        raise InvalidRequestError(
            "an on_route hook left a decision without the key 'model'; it names the checkpoint "
            "that answers"
        )
    if not isinstance(value["model"], str):
        raise InvalidTypeError(
            f"an on_route hook left a decision whose 'model' is {shorten(value['model'])}; "
            "give the name of a checkpoint"
        )
    return value if isinstance(value, RouteDecision) else RouteDecision(value)


def explained(decision: RouteDecision) -> RouteDecision:
    """The decision with what of the text decided it, where the text did.

    `detection["diagnostic"]` has `stage` (`whole_state` or `segment`), `reason` (the reason code)
    and `source` (where the deciding part lies: positions and lengths, never its text).
    """
    detection = decision.get("detection")
    if not isinstance(detection, Mapping):
        return decision
    source = detection.get("mixed_segment")
    stage = "whole_state" if source is None else "segment"
    diagnostic = {"stage": stage, "reason": decision.reason_code, "source": copy_plain(source)}
    return RouteDecision({**decision, "detection": {**detection, "diagnostic": diagnostic}})


def copy_plain(value: Any) -> Any:
    """Copy nested dicts and lists, so that editing one copy leaves the others alone."""
    if isinstance(value, Mapping):
        return {key: copy_plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [copy_plain(each) for each in value]
    return value
