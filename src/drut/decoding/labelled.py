"""Labelled data: JSON Lines of a state, questions about it, and the right answers.

One object a line::

    {"state": "I was charged twice", "lang": "en",
     "questions": {"refund": {"type": "noul", "instructions": "Does the customer want money?"}},
     "answers": {"refund": true}}

An answer is the label of a choice, the number of a level of a score, or true or false. `lang` is
optional, and so are answers: a question without one is not asked.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias

from drut.decoding.fitting import Record
from drut.errors import DrutError, InvalidRequestError, InvalidTextError
from drut.questions import Question, parse_questions, shorten, without_repeats
from drut.schema import QuestionId, State
from drut.tensors import Float32

KEYS: Final = ("state", "questions", "answers", "lang")
BATCH_LINES: Final = 256
MAX_LINE_BYTES: Final = 16 << 20
_LABELS_SHOWN: Final = 300  # characters

Ask: TypeAlias = Callable[[Sequence[State], Mapping[str, Any]], Mapping[QuestionId, Float32]]
"""Raw logits of the same questions about every state, as `Agent.logits` returns them."""

Step: TypeAlias = Callable[[int], None]
"""Told the number of the last line of every batch that is done."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """One line of labelled data, checked."""

    place: str  # file and line, for messages
    number: int  # of the line, from 1
    state: State
    questions: Mapping[str, Any]  # those with an answer, as written
    parsed: tuple[Question, ...]  # the same, checked
    targets: tuple[int, ...]  # index of each question's right option
    language: str | None = None


def read_labelled(path: str | Path) -> Iterator[Labelled]:
    """Yield the lines of a file of labelled data, one at a time; blank ones are skipped.

    Raises:
        InvalidRequestError: a line cannot be used; the message names file and line.
        OSError: the file cannot be read.
    """
    with Path(path).open("rb") as file:
        number = 0
        while content := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if content.strip():
                place = f"{path}:{number}"
                yield _labelled(_decoded(content, place), place, number)


def records_of(
    lines: Iterable[Labelled], ask: Ask, *, batch: int = BATCH_LINES, step: Step | None = None
) -> Iterator[Record]:
    """Ask about labelled lines and yield one record per answer.

    At most `batch` lines are held; those of them with the same questions are asked together.

    Args:
        lines: as `read_labelled` yields them.
        ask: what answers, such as `agent.logits`.
        batch: lines held at a time.
        step: told how far it is.

    Raises:
        DrutError: a line cannot be asked about; the message names file and line.
    """
    for held in _batches(lines, batch):
        groups: dict[str, list[Labelled]] = {}
        for line in held:
            groups.setdefault(json.dumps(line.questions), []).append(line)
        for group in groups.values():
            yield from _records(group, ask)
        if step is not None:
            step(held[-1].number)


def _batches(lines: Iterable[Labelled], size: int) -> Iterator[list[Labelled]]:
    held: list[Labelled] = []
    for line in lines:
        held.append(line)
        if len(held) >= size:
            yield held
            held = []
    if held:
        yield held


def _records(lines: Sequence[Labelled], ask: Ask) -> Iterator[Record]:
    for line, logits in zip(lines, _logits(lines, ask), strict=True):
        for question, target in zip(line.parsed, line.targets, strict=True):
            yield Record(question.type, logits[question.id], target, line.language)


def _logits(lines: Sequence[Labelled], ask: Ask) -> list[dict[QuestionId, Float32]]:
    """Logits of every line by question; what fails together is tried again line by line."""
    try:
        found = ask([line.state for line in lines], lines[0].questions)
    except DrutError as exc:
        if len(lines) == 1:
            raise type(exc)(f"{lines[0].place}: {exc}") from exc
        return [logits for line in lines for logits in _logits([line], ask)]
    return [{key: rows[index] for key, rows in found.items()} for index in range(len(lines))]


def _decoded(content: bytes, place: str) -> Any:
    if len(content) > MAX_LINE_BYTES:
        raise InvalidRequestError(f"{place}: the line has more than {MAX_LINE_BYTES} bytes")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise InvalidTextError(
            f"{place}: not UTF-8 (byte 0x{content[exc.start]:02x} at {exc.start})"
        ) from exc
    try:
        return json.loads(text, object_pairs_hook=without_repeats, parse_constant=_refuse)
    except (ValueError, RecursionError) as exc:
        raise InvalidRequestError(
            f"{place}: not JSON ({exc}); every line must be one object"
        ) from exc


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _labelled(value: Any, place: str, number: int) -> Labelled:
    if not isinstance(value, dict):
        raise InvalidRequestError(
            f"{place}: must be an object with {', '.join(KEYS[:3])}, got {shorten(value)}"
        )
    unknown = [key for key in value if key not in KEYS]
    if unknown:
        raise InvalidRequestError(
            f"{place}: unknown key {shorten(unknown[0])}; keys are {', '.join(KEYS)}"
        )
    if value.get("state") is None:
        raise InvalidRequestError(f"{place}: 'state' is missing or null")
    language = value.get("lang")
    if language is not None and (not isinstance(language, str) or not language.strip()):
        raise InvalidRequestError(
            f"{place}: 'lang' must be a language code, got {shorten(language)}"
        )
    questions, answers = _object(value, "questions", place), _object(value, "answers", place)
    _require_known(answers, questions, place)
    asked = {key: questions[key] for key in questions if key in answers}
    try:
        parsed = tuple(parse_questions(asked))
    except InvalidRequestError as exc:
        raise type(exc)(f"{place}: {exc}") from exc
    targets = tuple(_target(question, answers[str(question.id)], place) for question in parsed)
    return Labelled(place, number, value["state"], asked, parsed, targets, language)


def _object(value: Mapping[str, Any], key: str, place: str) -> dict[str, Any]:
    found = value.get(key)
    if not isinstance(found, dict) or not found:
        raise InvalidRequestError(
            f"{place}: {key!r} must be an object of question ids, got {shorten(found)}"
        )
    return found


def _require_known(answers: Mapping[str, Any], questions: Mapping[str, Any], place: str) -> None:
    for key in answers:
        if key not in questions:
            known = ", ".join(map(repr, questions))
            raise InvalidRequestError(
                f"{place}: 'answers' has {key!r}, which is none of the questions {known}"
            )


def _target(question: Question, answer: object, place: str) -> int:
    """Index of the right option."""
    wanted = "true or false"
    labels: list[Any] = [False, True]
    if question.type == "choice":
        labels = [option.label for option in question.options]
        wanted = f"a label, one of {shorten(labels, _LABELS_SHOWN)}"
    elif question.type == "score":
        labels = list(range(len(question.options)))
        wanted = f"a level from 0 to {len(labels) - 1}"
    for index, label in enumerate(labels):
        # By type as well: 1, 1.0 and True are equal and yet different labels.
        if type(label) is type(answer) and label == answer:
            return index
    raise InvalidRequestError(
        f"{place}: the answer to {question.id!r} must be {wanted}, got {shorten(answer)}"
    )
