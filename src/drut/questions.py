"""Typed questions: checked once, then rendered to the texts that the encoder reads."""

import json
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final, Literal, TypeAlias, cast

from drut.errors import InvalidRequestError, InvalidTypeError
from drut.schema import QuestionDef, QuestionId, QuestionType
from drut.tensors import QTYPES

KNOWN_KEYS: Final = ("type", "instructions", "criteria", "labels", "option_order")
NOUL_TEXTS: Final = (
    "no, the statement does not hold",
    "yes, the statement holds",
)
"""Texts of the two options of a yes/no question where the caller describes none: false, true."""

UnknownKeys: TypeAlias = Literal["error", "ignore"]
"""What to do with a key of a question that is none of `KNOWN_KEYS`."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option: the caller's own label, and the text the encoder reads."""

    label: Any
    text: str
    legend: str = ""  # the level's text without its number, `score` only


@dataclass(frozen=True, slots=True)
class Question:
    """One checked question. Options are in the order of the criteria; yes/no is false, true."""

    id: QuestionId
    type: QuestionType
    prompt: str
    options: tuple[Option, ...]
    option_order: tuple[int, ...]  # slot s of the sequence shows option option_order[s]

    @property
    def qtype(self) -> int:
        """Value of the graph's `qtype` input."""
        return QTYPES[self.type]

    @property
    def slot_texts(self) -> tuple[str, ...]:
        """Option texts in the order of the sequence."""
        return tuple(self.options[index].text for index in self.option_order)


def parse_questions(questions: object, *, unknown_keys: UnknownKeys = "error") -> list[Question]:
    """Check every question, in order; the first fault is raised.

    Raises:
        InvalidTypeError: `questions` is not a mapping.
        InvalidRequestError: a question cannot be asked as written; the message names it.
    """
    return [
        parse_question(question_id, definition, unknown_keys=unknown_keys)
        for question_id, definition in as_mapping(questions).items()
    ]


def as_mapping(questions: object) -> Mapping[Any, Any]:
    """Return `questions` if it is a mapping of id to definition."""
    if not isinstance(questions, Mapping):
        raise InvalidTypeError(
            f"questions must be a dict of question id to definition, "
            f"got {type(questions).__name__}: {shorten(questions)}"
        )
    return questions


def parse_question(
    question_id: object, definition: object, *, unknown_keys: UnknownKeys = "error"
) -> Question:
    """Check one question and render its texts."""
    checked_id = _question_id(question_id)
    if not isinstance(definition, Mapping):
        raise InvalidRequestError(
            f"question {checked_id!r} must be a dict with 'type' and 'instructions', "
            f"got {type(definition).__name__}: {shorten(definition)}"
        )
    kind = _question_type(checked_id, definition)
    if unknown_keys == "error":
        _refuse_unknown_keys(checked_id, definition)
    prompt = f"{kind} question: {_instructions(checked_id, definition)}"
    if kind != "noul" and "labels" in definition:
        raise InvalidRequestError(
            f"question {checked_id!r}: 'labels' name the two answers of a noul question, "
            f"this one is a {kind} question; put its labels into 'criteria'"
        )
    options = _OPTIONS[kind](checked_id, definition)
    return Question(
        checked_id, kind, prompt, options, _option_order(checked_id, definition, len(options))
    )


def dump_json(value: object) -> str:
    """Serialise a state or instructions the way the format's encoder reads them.

    Raises:
        InvalidTypeError: JSON has no form for a value or a key in it.
    """
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, RecursionError, ValueError) as exc:
        raise _not_json(value, exc) from exc


def without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make the object of a JSON text, as `object_pairs_hook`; a name twice is no object.

    Raises:
        ValueError: a name is there twice, of which `json` would keep the last in silence.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice!r} is there twice in one object")
    return found


def _not_json(value: object, cause: Exception) -> InvalidTypeError:
    return InvalidTypeError(
        f"{type(value).__name__} {shorten(value)} cannot be written as JSON ({cause}); "
        "pass text, or dicts and lists of text and numbers"
    )


def shorten(value: object, limit: int = 80) -> str:
    """Return `repr(value)`, cut for use in a message."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a message must not fail because of what it shows
        text = f"<{type(value).__name__}>"
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _question_id(question_id: object) -> QuestionId:
    if question_id is None:
        raise InvalidRequestError("a question id is None; use a non-empty string or an integer")
    if not isinstance(question_id, str | int) or not _plain(question_id).strip():
        raise InvalidRequestError(
            f"question id {shorten(question_id)} must be a non-empty string or an integer"
        )
    return question_id


def _plain(value: str | int) -> str:
    """Text of an id; empty for a number too long to be written."""
    try:
        return str(value)
    except ValueError:
        return ""


def _question_type(question_id: QuestionId, definition: QuestionDef) -> QuestionType:
    kind = definition.get("type")
    if not isinstance(kind, str) or kind not in QTYPES:
        raise InvalidRequestError(
            f"question {question_id!r}: 'type' must be one of 'choice', 'noul', 'score', "
            f"got {shorten(kind)}{_suggestion(kind, tuple(QTYPES))}"
        )
    return cast(QuestionType, kind)


def _refuse_unknown_keys(question_id: QuestionId, definition: QuestionDef) -> None:
    for key in definition:
        if key not in KNOWN_KEYS:
            raise InvalidRequestError(
                f"question {question_id!r} has the unknown key {shorten(key)}"
                f"{_suggestion(key, KNOWN_KEYS)}; keys are {', '.join(KNOWN_KEYS)}"
            )


def _suggestion(given: object, valid: Sequence[str]) -> str:
    close = get_close_matches(str(given).strip().lower(), valid, n=1, cutoff=0.4)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _instructions(question_id: QuestionId, definition: QuestionDef) -> str:
    if "instructions" not in definition:
        raise InvalidRequestError(f"question {question_id!r} lacks 'instructions'")
    value = definition["instructions"]
    if value is None:
        raise InvalidRequestError(f"question {question_id!r}: 'instructions' is None")
    if not isinstance(value, str | dict | list | int | float):
        raise InvalidRequestError(
            f"question {question_id!r}: 'instructions' must be text or JSON, "
            f"got {type(value).__name__}"
        )
    if isinstance(value, str | dict | list) and not (
        value.strip() if isinstance(value, str) else value
    ):
        raise InvalidRequestError(f"question {question_id!r}: 'instructions' is empty")
    return value if isinstance(value, str) else dump_json(value)


def _description(value: object) -> str:
    """Text of a description or level, which may be any value."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError) as exc:
        raise _not_json(value, exc) from exc


def _choice_options(question_id: QuestionId, definition: QuestionDef) -> tuple[Option, ...]:
    criteria = definition.get("criteria")
    if not isinstance(criteria, dict | list):
        raise InvalidRequestError(
            f"question {question_id!r}: 'criteria' of a choice must be a dict of label to "
            f"description or a list of labels, got {type(criteria).__name__}"
        )
    if not criteria:
        raise InvalidRequestError(f"question {question_id!r}: a choice needs at least one option")
    described = (
        list(criteria.items())
        if isinstance(criteria, dict)
        else [(label, None) for label in criteria]
    )
    _check_labels(question_id, [label for label, _ in described])
    return tuple(
        Option(
            label,
            str(label)
            if description is None or description == ""
            else f"{label}: {_description(description)}",
        )
        for label, description in described
    )


def _check_labels(question_id: QuestionId, labels: Sequence[object]) -> None:
    seen: dict[tuple[str, object], int] = {}
    for index, label in enumerate(labels):
        if label is None or not isinstance(label, str | int | float):
            raise InvalidRequestError(
                f"question {question_id!r}: option {index} must be a string or a number, "
                f"got {type(label).__name__} {shorten(label)}"
            )
        # Equal as keys of a dict (1, 1.0 and True), or equal as keys in JSON (1 and "1").
        for key in (("dict", label), ("JSON", _json_key(question_id, index, label))):
            if seen.setdefault(key, index) != index:
                raise InvalidRequestError(
                    f"question {question_id!r}: options {seen[key]} and {index} have the same "
                    f"label {shorten(label)} in an answer; give every option its own name"
                )


def _json_key(question_id: QuestionId, index: int, label: str | float) -> str:
    """The key under which a label travels; texts that look alike are one."""
    if isinstance(label, str):
        return unicodedata.normalize("NFC", label).strip()
    try:
        return json.dumps(label, allow_nan=False)
    except ValueError as exc:
        raise InvalidRequestError(
            f"question {question_id!r}: option {index} is {shorten(label)}, which JSON cannot "
            "carry as a name; write it as text"
        ) from exc


def _score_options(question_id: QuestionId, definition: QuestionDef) -> tuple[Option, ...]:
    criteria = definition.get("criteria")
    if not isinstance(criteria, list):
        raise InvalidRequestError(
            f"question {question_id!r}: 'criteria' of a score must be a list of level texts, "
            f"level 0 first, got {type(criteria).__name__}"
        )
    if not criteria:
        raise InvalidRequestError(f"question {question_id!r}: a score needs at least one level")
    for index, level in enumerate(criteria):
        if level is None:
            raise InvalidRequestError(
                f"question {question_id!r}: level {index} is None (levels count from 0)"
            )
    texts = [_description(level) for level in criteria]
    return tuple(
        Option(str(index), f"level {index}: {text}", text) for index, text in enumerate(texts)
    )


def _noul_options(question_id: QuestionId, definition: QuestionDef) -> tuple[Option, ...]:
    texts = list(NOUL_TEXTS)
    for key, value in _noul_criteria(question_id, definition).items():
        if value is not None and value != "":
            texts[key == "true"] = _description(value)
    names = _noul_labels(question_id, definition)
    return tuple(
        Option(label, f"{names[label]}: {text}")
        for label, text in zip(("false", "true"), texts, strict=True)
    )


def _noul_criteria(question_id: QuestionId, definition: QuestionDef) -> dict[str, object]:
    criteria = definition.get("criteria")
    if criteria is None:
        return {}
    if not isinstance(criteria, dict):
        raise InvalidRequestError(
            f"question {question_id!r}: 'criteria' of a noul must be a dict with 'true' and "
            f"'false', got {type(criteria).__name__}"
        )
    lowered = {str(key).lower(): value for key, value in criteria.items()}
    surplus = sorted(lowered.keys() - {"true", "false"})
    if surplus:
        raise InvalidRequestError(
            f"question {question_id!r}: 'criteria' of a noul takes 'true' and 'false', got "
            f"{', '.join(map(repr, surplus))}; use 'labels' to name the two answers"
        )
    return lowered


def _noul_labels(question_id: QuestionId, definition: QuestionDef) -> dict[str, str]:
    labels = definition.get("labels")
    if labels is None:
        return {"false": "false", "true": "true"}
    valid = (
        isinstance(labels, dict)
        and set(labels) == {"false", "true"}
        and all(isinstance(text, str) and text.strip() for text in labels.values())
        and labels["false"].strip() != labels["true"].strip()
    )
    if not valid:
        raise InvalidRequestError(
            f"question {question_id!r}: labels must be a dict with two different texts under "
            f"'false' and 'true', got {shorten(labels)}"
        )
    return {key: labels[key].strip() for key in ("false", "true")}


def _option_order(question_id: QuestionId, definition: QuestionDef, count: int) -> tuple[int, ...]:
    if "option_order" not in definition:
        return tuple(range(count))
    order = definition["option_order"]
    exact = isinstance(order, list | tuple) and all(type(index) is int for index in order)
    if not exact or sorted(order) != list(range(count)):
        raise InvalidRequestError(
            f"question {question_id!r}: 'option_order' must list each of the {count} option "
            f"indices once, counting from 0, got {shorten(order)}"
        )
    return tuple(order)


_OPTIONS: Final[dict[QuestionType, Callable[[QuestionId, QuestionDef], tuple[Option, ...]]]] = {
    "choice": _choice_options,
    "score": _score_options,
    "noul": _noul_options,
}
