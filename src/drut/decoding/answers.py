"""Logits of rows become the answers that callers see."""

from collections.abc import Iterable, Sequence

import numpy as np

from drut.decoding.calibration import Calibration
from drut.decoding.probabilities import entropy_confidence, first_action_probability, softmax
from drut.errors import NonFiniteOutputError
from drut.questions import Question, shorten
from drut.schema import (
    Action,
    Answer,
    ChoiceAnswer,
    NoulAnswer,
    OptionUsage,
    Prediction,
    QuestionId,
    QuestionUsage,
    ScoreAnswer,
    Usage,
)
from drut.tensors import Bool, Float32, Logits

MODEL_FAMILY = "laya-rl-agent"
"""Value of a result's `model`: the family's name on the wire, whichever checkpoint answered."""

LARGEST_LOGIT = 1e30
"""Beyond it, dividing by a temperature may overflow; no sound graph comes near."""

DIGITS = 4
"""Decimals of every number in an answer."""


def decode_answers(
    logits: Logits,
    marker_mask: Bool,
    questions: Sequence[Question],
    calibration: Calibration,
    language: str | None = None,
) -> list[Answer]:
    """Turn the logits of a batch into one answer per row.

    Args:
        logits: of the batch; row i belongs to `questions[i]`.
        marker_mask: [rows, options], true for real options.
        questions: the question of every row.
        calibration: temperatures and bins.
        language: code that picks the temperatures of a language, if there are any.

    Raises:
        NonFiniteOutputError: a logit of a real option or of the act head is NaN or infinite.
    """
    _require_finite(logits, marker_mask, questions)
    temperature = np.asarray(
        [calibration.temperature(q.type, len(q.options), language) for q in questions], np.float32
    )
    slots = softmax(logits.options, marker_mask, temperature)
    actions = first_action_probability(logits.actions)
    answers: list[Answer] = []
    for question, row, act in zip(questions, slots, actions, strict=True):
        probabilities = _by_option(question, row)
        action: Action = {"act_probability": rounded(act)}
        answers.append(_answer(question, probabilities, action, calibration, language))
    return answers


def logits_by_option(
    logits: Logits, marker_mask: Bool, questions: Sequence[Question]
) -> list[Float32]:
    """The logits of every row's real options, in the order of the question's options.

    Args:
        logits: of the batch; row i belongs to `questions[i]`.
        marker_mask: [rows, options], true for real options.
        questions: the question of every row.

    Returns:
        One float32 array per row, [options] of its question.

    Raises:
        NonFiniteOutputError: a logit of a real option or of the act head is NaN or infinite.
    """
    _require_finite(logits, marker_mask, questions)
    return [
        _by_option(question, row) for question, row in zip(questions, logits.options, strict=True)
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
    rows = per_question.values()
    truncated = [key for key, row in per_question.items() if row["state_tokens_dropped"]]
    usage: Usage = {
        "input_tokens": sum(row["tokens"] for row in rows),
        "output_tokens": 0,
        "state_tokens": max((row["state_tokens"] for row in rows), default=0),
        "state_tokens_dropped": max((row["state_tokens_dropped"] for row in rows), default=0),
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


def _require_finite(logits: Logits, mask: Bool, questions: Sequence[Question]) -> None:
    options, actions = logits
    sound = (np.abs(options) < LARGEST_LOGIT) | ~mask
    good = sound.all(axis=1) & (np.abs(actions) < LARGEST_LOGIT).all(axis=1)
    if not good.all():
        bad = questions[int(np.flatnonzero(~good)[0])]
        raise NonFiniteOutputError(
            f"the graph returned NaN or infinity for question {shorten(bad.id)}; the graph is "
            "damaged or its precision overflows, verify it or export it as fp32"
        )


def _by_option(question: Question, row: Float32) -> Float32:
    """Values of a row's slots, in the order of the options."""
    values = np.empty(len(question.options), np.float32)
    values[list(question.option_order)] = row[: len(question.options)]
    return values


def _answer(
    question: Question,
    probabilities: Float32,
    action: Action,
    calibration: Calibration,
    language: str | None,
) -> Answer:
    count = len(question.options)
    best = float(probabilities.max())
    top = rounded(calibration.binned(min(1.0, max(0.0, best)), question.type, count, language))
    if question.type == "noul":
        return _noul(probabilities, top, action)
    confidence = rounded(entropy_confidence(probabilities, count))
    if question.type == "score":
        return _score(question, probabilities, (confidence, top), action)
    return _choice(question, probabilities, (confidence, top), action)


def _choice(
    question: Question, probabilities: Float32, confidences: tuple[float, float], action: Action
) -> ChoiceAnswer:
    return {
        "type": "choice",
        "choice": question.options[int(probabilities.argmax())].label,
        "probabilities": {
            option.label: rounded(p)
            for option, p in zip(question.options, probabilities, strict=True)
        },
        "confidence": confidences[0],
        "answer_confidence": confidences[1],
        "action": action,
    }


def _score(
    question: Question, probabilities: Float32, confidences: tuple[float, float], action: Action
) -> ScoreAnswer:
    levels = np.arange(len(probabilities), dtype=np.float64)
    return {
        "type": "score",
        "score": rounded((levels * probabilities.astype(np.float64)).sum()),
        "legend": {str(level): option.legend for level, option in enumerate(question.options)},
        "probabilities": {str(level): rounded(p) for level, p in enumerate(probabilities)},
        "confidence": confidences[0],
        "answer_confidence": confidences[1],
        "action": action,
    }


def _noul(probabilities: Float32, top: float, action: Action) -> NoulAnswer:
    yes = float(probabilities[1])
    return {
        "type": "noul",
        "noul": rounded(yes),
        "confidence": rounded(max(yes, 1.0 - yes)),
        "answer_confidence": top,
        "action": action,
    }
