"""Logits of rows become the answers that callers see."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from drut.decoding.calibration import Calibration
from drut.decoding.probabilities import entropy_confidence, first_action_probability, softmax
from drut.errors import NonFiniteOutputError
from drut.questions import Question, shorten
from drut.schema import (
    Answer,
    ChoiceAnswer,
    NoulAnswer,
    OptionUsage,
    Prediction,
    QuestionId,
    QuestionType,
    QuestionUsage,
    ScoreAnswer,
    Usage,
)
from drut.tensors import Float32, Logits

MODEL_FAMILY = "laya-rl-agent"
"""Value of a result's `model`: the family's name on the wire, whichever checkpoint answered."""

LARGEST_LOGIT = 1e30
"""Beyond it, dividing by a temperature may overflow; no sound graph comes near."""

DIGITS = 4
"""Decimals of every number in an answer."""

_SCALE: Final = 10.0**DIGITS


@dataclass(frozen=True, slots=True)
class _Alike:
    """Rows whose questions have the same type and number of options: decoded in one go."""

    questions: list[Question]
    probabilities: Float32  # [rows, options], in the order of the options
    confidences: list[float]  # by entropy; none for yes/no questions
    tops: list[float]  # confidence of the answer given
    actions: list[float]


def decode_answers(
    logits: Logits,
    questions: Sequence[Question],
    calibration: Calibration,
    language: str | None = None,
) -> list[Answer]:
    """Turn the logits of a batch into one answer per row.

    An answer depends on nothing but its own row and question.

    Args:
        logits: of the batch; row i belongs to `questions[i]`, and is at least as wide.
        questions: the question of every row.
        calibration: temperatures and bins.
        language: code that picks the temperatures of a language, if there are any.

    Raises:
        NonFiniteOutputError: a logit of a real option or of the act head is NaN or infinite.
    """
    _require_finite(logits, questions)
    actions = _rounded(first_action_probability(logits.actions))
    found: dict[int, Answer] = {}
    for (kind, count), rows in _by_kind(questions).items():
        temperature = calibration.temperature(kind, count, language)
        slots = softmax(logits.options[rows, :count], temperature)
        asked = [questions[row] for row in rows]
        probabilities = _by_option(asked, slots)
        alike = _Alike(
            asked,
            probabilities,
            entropy_confidence(probabilities).tolist() if kind != "noul" else [],
            _tops(probabilities, calibration, kind, language),
            [actions[row] for row in rows],
        )
        found.update(zip(rows, _DECODERS[kind](alike), strict=True))
    return [found[row] for row in range(len(questions))]


def logits_by_option(logits: Logits, questions: Sequence[Question]) -> list[Float32]:
    """The logits of every row's real options, in the order of the question's options.

    Args:
        logits: of the batch; row i belongs to `questions[i]`, and is at least as wide.
        questions: the question of every row.

    Returns:
        One float32 array per row, [options] of its question.

    Raises:
        NonFiniteOutputError: a logit of a real option or of the act head is NaN or infinite.
    """
    _require_finite(logits, questions)
    return [
        _by_option([question], row[None, : len(question.options)])[0]
        for question, row in zip(questions, logits.options, strict=True)
    ]


def rounded(value: float | np.floating) -> float:
    """A Python float with four decimals."""
    return round(float(value), DIGITS)


def empty_prediction() -> Prediction:
    """What a state gets when nothing was asked."""
    return {
        "model": MODEL_FAMILY,
        "answers": {},
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }


def prediction(answered: Iterable[tuple[QuestionId, Answer, QuestionUsage]]) -> Prediction:
    """Put the answers of one state together, in question order, with what they used."""
    answers: dict[QuestionId, Answer] = {}
    per_question: dict[QuestionId, QuestionUsage] = {}
    for question_id, answer, usage in answered:
        answers[question_id] = answer
        per_question[question_id] = usage
    return {"model": MODEL_FAMILY, "answers": answers, "usage": state_usage(per_question)}


def state_usage(per_question: dict[QuestionId, QuestionUsage]) -> Usage:
    """Sum up what the questions about one state used; the state counts once per question."""
    tokens = longest = dropped = 0
    truncated: list[QuestionId] = []
    for key, row in per_question.items():
        tokens += row["tokens"]
        longest = max(longest, row["state_tokens"])
        if row["state_tokens_dropped"]:
            truncated.append(key)
            dropped = max(dropped, row["state_tokens_dropped"])
    usage: Usage = {
        "input_tokens": tokens,
        "output_tokens": 0,
        "state_tokens": longest,
        "state_tokens_dropped": dropped,
        "truncated": bool(truncated),
        "truncated_questions": truncated,
    }
    collapsed: dict[QuestionId, OptionUsage] = {
        key: {
            "total": row["options"],
            "distinct": row["options_distinct"],
            "tokens_per_option": row["tokens_per_option"],
        }
        for key, row in per_question.items()
        if row["options_distinct"] < row["options"]
    }
    if collapsed:
        usage["options"] = collapsed
    usage["questions"] = per_question
    return usage


def _by_kind(questions: Sequence[Question]) -> dict[tuple[QuestionType, int], list[int]]:
    """Rows of every type and number of options."""
    rows: dict[tuple[QuestionType, int], list[int]] = {}
    for row, question in enumerate(questions):
        rows.setdefault((question.type, len(question.options)), []).append(row)
    return rows


def _require_finite(logits: Logits, questions: Sequence[Question]) -> None:
    options, actions = np.abs(logits.options), np.abs(logits.actions)
    # Nearly always everything is sound, what lies beyond a row's options included.
    if options.max() < LARGEST_LOGIT and actions.max() < LARGEST_LOGIT:
        return
    for row, question in enumerate(questions):
        used = options[row, : len(question.options)]
        if not ((used < LARGEST_LOGIT).all() and (actions[row] < LARGEST_LOGIT).all()):
            raise NonFiniteOutputError(
                f"the graph returned NaN or infinity for question {shorten(question.id)}; the "
                "graph is damaged or its precision overflows, verify it or export it as fp32"
            )


def _by_option(questions: Sequence[Question], slots: Float32) -> Float32:
    """Values of rows' slots, [rows, options], in the order of the options."""
    straight = tuple(range(slots.shape[1]))
    if all(question.option_order == straight for question in questions):
        return slots
    values = np.empty_like(slots)
    orders = np.asarray([question.option_order for question in questions], np.int64)
    np.put_along_axis(values, orders, slots, axis=1)
    return values


def _tops(
    probabilities: Float32, calibration: Calibration, kind: QuestionType, language: str | None
) -> list[float]:
    best = probabilities.max(axis=1)
    if calibration.binning is None:
        return _rounded(best)
    count = probabilities.shape[1]
    return [
        rounded(calibration.binned(min(1.0, max(0.0, value)), kind, count, language))
        for value in best.tolist()
    ]


def _rounded(values: Float32) -> list[Any]:
    """What `rounded` makes of every value, as lists.

    The product of a float32 and 10000 is exact in float64, so nothing is rounded twice.
    """
    made: list[Any] = (np.rint(values.astype(np.float64) * _SCALE) / _SCALE).tolist()
    return made


def _choices(alike: _Alike) -> Iterator[ChoiceAnswer]:
    best = alike.probabilities.argmax(axis=1).tolist()
    for row, (question, values) in enumerate(
        zip(alike.questions, _rounded(alike.probabilities), strict=True)
    ):
        labels = [option.label for option in question.options]
        yield {
            "type": "choice",
            "choice": labels[best[row]],
            "probabilities": dict(zip(labels, values, strict=True)),
            "confidence": rounded(alike.confidences[row]),
            "answer_confidence": alike.tops[row],
            "action": {"act_probability": alike.actions[row]},
        }


def _scores(alike: _Alike) -> Iterator[ScoreAnswer]:
    levels = np.arange(alike.probabilities.shape[1], dtype=np.float64)
    expected = (levels * alike.probabilities.astype(np.float64)).sum(axis=1).tolist()
    names = [str(level) for level in range(len(levels))]
    for row, (question, values) in enumerate(
        zip(alike.questions, _rounded(alike.probabilities), strict=True)
    ):
        legends = [option.legend for option in question.options]
        yield {
            "type": "score",
            "score": rounded(expected[row]),
            "legend": dict(zip(names, legends, strict=True)),
            "probabilities": dict(zip(names, values, strict=True)),
            "confidence": rounded(alike.confidences[row]),
            "answer_confidence": alike.tops[row],
            "action": {"act_probability": alike.actions[row]},
        }


def _nouls(alike: _Alike) -> Iterator[NoulAnswer]:
    for row, yes in enumerate(alike.probabilities[:, 1].tolist()):
        yield {
            "type": "noul",
            "noul": rounded(yes),
            "confidence": rounded(max(yes, 1.0 - yes)),
            "answer_confidence": alike.tops[row],
            "action": {"act_probability": alike.actions[row]},
        }


_DECODERS: Final[Mapping[QuestionType, Callable[[_Alike], Iterator[Answer]]]] = MappingProxyType(
    {"choice": _choices, "score": _scores, "noul": _nouls}
)
