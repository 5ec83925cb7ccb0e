"""What a row of a request becomes before its forward pass, and after."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from drut.batching import PassPolicy, collate
from drut.checkpoint.opened import Checkpoint
from drut.decoding.answers import decode_answers, empty_prediction, prediction
from drut.decoding.calibration import Calibration
from drut.decoding.gate import Gate, parse_min_confidence
from drut.errors import (
    DeadlineExceededError,
    DrutError,
    InvalidTypeError,
    ServerFaultError,
)
from drut.pipeline import InferenceOptions, Pipeline
from drut.questions import Question, as_mapping
from drut.runtimes.base import Runtime
from drut.schema import Prediction
from drut.tensors import MASKED_LOGIT, Batch, EncodedRow, Float32, Logits
from drut.triton_model.payload import Ask

LATE: Final = "the request's timeout passed before it was answered"


class CallerGoneError(DrutError):
    """Nobody waits for the answer any more."""


def _here() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Call:
    """One row of a request, encoded."""

    questions: Sequence[Question]
    rows: Sequence[EncodedRow]
    language: str | None
    gate: Gate | None
    deadline: float | None  # moment of time.monotonic
    gone: Callable[[], bool]  # whether its caller has cancelled it


class Answerer:
    """Prepares and decodes calls about one checkpoint. Holds nothing of any call."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        runtime: Runtime,
        calibration: Calibration,
        policy: PassPolicy,
    ) -> None:
        self._pipeline = Pipeline(checkpoint, runtime, calibration)
        self._pad_id = checkpoint.tokenizer.pad_id
        self.policy = policy

    def prepare(
        self, ask: Ask, deadline: float | None = None, gone: Callable[[], bool] = _here
    ) -> Call:
        """Check a row of a request and encode it.

        Args:
            ask: the row.
            deadline: moment of `time.monotonic` after which nobody waits.
            gone: asked before and after the forward pass whether the caller has cancelled.

        Raises:
            InvalidRequestError: it cannot be answered as written.
        """
        given = ask.options
        language = given.get("lang")
        if language is not None and not isinstance(language, str):
            raise InvalidTypeError(
                f"lang must be a language code or null, got {type(language).__name__}"
            )
        gate = parse_min_confidence(given.get("min_confidence"))
        budget = InferenceOptions(
            max_len=given.get("max_len"), head_max_len=given.get("head_max_len")
        )
        asked = self._pipeline.prepare(as_mapping(ask.questions), budget)
        encoder = self._pipeline.encoder
        (state,) = encoder.encode_states([ask.state])
        rows = [
            encoder.join(state, question, head, asked.budget)
            for question, head in zip(asked.questions, asked.heads, strict=True)
        ]
        return Call(asked.questions, rows, language, gate, deadline, gone)

    def collate(self, rows: Sequence[EncodedRow]) -> Batch:
        """Rows as one batch, padded as the policy says."""
        return collate(rows, pad_id=self._pad_id, policy=self.policy)

    def decode(
        self, call: Call, options: Mapping[int, Float32], actions: Mapping[int, Float32]
    ) -> Prediction | Exception:
        """The prediction of a call, or why there is none.

        Args:
            call: the call.
            options: of each of its rows, [options of the row].
            actions: of each of its rows, [actions].
        """
        if not call.rows:
            return empty_prediction()
        try:
            answers = decode_answers(
                _rectangle(options, actions),
                call.questions,
                self._pipeline.calibration,
                call.language,
            )
        except DrutError as exc:
            return exc
        usages = [row.usage for row in call.rows]
        ids = [question.id for question in call.questions]
        result = prediction(zip(ids, answers, usages, strict=True))
        if call.gate is not None:
            call.gate.apply([result])
        return result


def why_over(call: Call) -> Exception | None:
    """Why a call needs no answer any more, if so."""
    if call.gone():
        return CallerGoneError("the caller cancelled the request")
    if call.deadline is None or time.monotonic() < call.deadline:
        return None
    return DeadlineExceededError(LATE)


def check_logits(logits: Logits, batch: Batch) -> None:
    """Refuse what is not the answer to a batch.

    Raises:
        ServerFaultError: the shapes are those of another batch.
    """
    rows, options = batch.marker_mask.shape
    if logits.options.shape != (rows, options) or len(logits.actions) != rows:
        raise ServerFaultError(
            f"the graph answered {logits.options.shape} logits and {len(logits.actions)} act rows "
            f"to a batch of {rows} rows with {options} options"
        )


def _rectangle(options: Mapping[int, Float32], actions: Mapping[int, Float32]) -> Logits:
    """The logits of a call's rows."""
    rows = range(len(options))
    widths = np.asarray([len(options[row]) for row in rows])
    mask = np.arange(widths.max()) < widths[:, None]
    padded = np.full(mask.shape, MASKED_LOGIT, np.float32)
    padded[mask] = np.concatenate([options[row] for row in rows])
    return Logits(padded, np.stack([actions[row] for row in rows]))
