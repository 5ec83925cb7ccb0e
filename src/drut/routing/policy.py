"""Which checkpoint answers a request: explicit names, then hints, then the text. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from drut.errors import InvalidTypeError
from drut.language.codes import names_english, primary_subtag
from drut.language.detect import Detection, detect
from drut.questions import shorten
from drut.routing.catalog import (
    AUTOMATIC,
    ENGLISH,
    MULTILINGUAL,
    TYPED_DECISIONS,
    Catalog,
)
from drut.routing.decision import ReasonCode, RouteDecision
from drut.routing.requests import RouteRequest

Detector = Callable[[Any], Detection]

WORKFLOWS: Final[Mapping[frozenset[str], str]] = {
    frozenset({"action", "needs_review", "outcome", "risk", "urgency"}): (
        "agent_trace_observability"
    ),
    frozenset({"action", "category", "churn_risk", "needs_human", "urgency"}): "customer_service",
    frozenset({"discrepancy_severity", "disposition", "duplicate", "matches_order", "urgency"}): (
        "invoice_processing"
    ),
    frozenset({"credential_compromise", "disposition", "severity", "true_positive", "urgency"}): (
        "security_incidents"
    ),
}
"""Exactly these question ids make a workflow that `typed-decisions` was trained for."""


@dataclass(slots=True)
class RoutingPolicy:
    """The Router's own settings for routing."""

    catalog: Catalog
    default: str = MULTILINGUAL  # where the text does not tell
    auto_task_detection: bool = False
    lang_guess: Any = None
    detector: Detector = detect

    def decide(self, request: RouteRequest) -> RouteDecision:
        """Choose a checkpoint. The first of model, task, workflow, hints and text that tells wins.

        Raises:
            InvalidRequestError: an unknown checkpoint is named, or a language is not a code.
        """
        named = self._named(request)
        if named is not None:
            return named
        workflow = workflow_of(request.questions)
        if workflow is not None and self.auto_task_detection:
            reason = f"the question ids are those of the workflow {workflow}"
            return self._decision(TYPED_DECISIONS, "workflow", reason, workflow=workflow)
        return self._hinted(request, workflow) or self._detected(request, workflow)

    def _named(self, request: RouteRequest) -> RouteDecision | None:
        if not is_automatic(request.model):
            name = self.catalog.resolve(request.model)
            return self._decision(name, "explicit_model", f"model={name!r} was given")
        if request.task is not None:
            name = self._task(request.task)
            return self._decision(name, "explicit_task", f"task={name!r} was given")
        return None

    def _task(self, task: object) -> str:
        if isinstance(task, str) and task.strip().lower().replace("-", "_") == "typed_decisions":
            return TYPED_DECISIONS
        return self.catalog.resolve(task)

    def _hinted(self, request: RouteRequest, workflow: str | None) -> RouteDecision | None:
        hints: tuple[tuple[ReasonCode, str, Any], ...] = (
            ("explicit_lang", "lang", request.lang),
            ("lang_guess", "lang_guess", request.lang_guess),
            ("installed_lang_guess", "the Router's lang_guess", self.lang_guess),
        )
        for code, argument, hint in hints:
            english = names_english(_code(hint, request.state, argument))
            if english is not None:
                name = ENGLISH if english else MULTILINGUAL
                said = "English" if english else "a language other than English"
                return self._decision(name, code, f"{argument} says {said}", workflow=workflow)
        return None

    def _detected(self, request: RouteRequest, workflow: str | None) -> RouteDecision:
        detection = self.detector(request.state)
        name, code, reason = self._read(detection)
        decision = self._decision(name, code, reason, workflow=workflow)
        decision["detection"] = detection.as_dict()
        return decision

    def _read(self, found: Detection) -> tuple[str, ReasonCode, str]:
        default = self.default
        if found.reading == "no-letters":
            return default, "no_letters", f"no letters to judge by; the default is {default}"
        if found.reading == "undecided":
            return default, "undecided", f"the language is undecided; the default is {default}"
        if found.reading == "english":
            return ENGLISH, "english", "English text"
        if found.mixed_segment is not None:
            part = found.mixed_segment.language or found.mixed_segment.script
            return MULTILINGUAL, "mixed_language", f"a part of the text is not English ({part})"
        if found.script != "latin":
            share = found.script_profile.get(found.script, 0.0)
            reason = f"non-Latin script ({found.script}, {share:.0%} of the letters)"
            return MULTILINGUAL, "non_latin_script", reason
        named = f"looks like {found.language}" if found.language else "is not English"
        return MULTILINGUAL, "other_language", f"Latin text that {named}"

    def _decision(
        self, name: str, code: ReasonCode, reason: str, *, workflow: str | None = None
    ) -> RouteDecision:
        source = self.catalog[name].source
        return RouteDecision(
            model=name,
            repo=None if source is None else str(source),
            reason=reason,
            reason_code=code,
            detection=None,
            workflow=workflow,
        )


def workflow_of(questions: object) -> str | None:
    """Name of the workflow whose question ids these are, or None."""
    if not isinstance(questions, Mapping) or len(questions) != 5:
        return None
    return WORKFLOWS.get(frozenset(questions))


def is_automatic(model: object) -> bool:
    """Whether a model argument leaves the choice to the Router: None, `auto` or blank."""
    return model is None or (isinstance(model, str) and model.strip().lower() in AUTOMATIC)


def language_for(request: RouteRequest, decision: Mapping[str, Any]) -> str | None:
    """The language an agent is told: the one that was given, else the one that was detected."""
    given = primary_subtag(request.lang)
    if given is not None:
        return given
    detection = decision.get("detection")
    language = detection.get("language") if isinstance(detection, Mapping) else None
    return language if isinstance(language, str) else None


def _code(hint: Any, state: Any, argument: str) -> Any:
    if argument == "lang" or not callable(hint):
        return hint
    code = hint(state)
    if code is not None and not isinstance(code, str):
        raise InvalidTypeError(
            f"{argument} must return a language code or None, got {type(code).__name__}: "
            f"{shorten(code)}"
        )
    return code
