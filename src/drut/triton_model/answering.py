"""Many small requests become few forward passes, and every one of them gets its own answer.

Rows of all requests are planned together, so passes are full whatever mixture of lengths arrives.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np

from drut.batching import PassPolicy, collate, plan_batches
from drut.checkpoint.opened import Checkpoint
from drut.decoding.answers import decode_answers, empty_prediction, prediction
from drut.decoding.calibration import Calibration
from drut.decoding.gate import Gate, parse_min_confidence
from drut.errors import (
    DeadlineExceededError,
    DrutError,
    InvalidTypeError,
    OverloadedError,
    ServerFaultError,
    ServerNotReadyError,
)
from drut.pipeline import InferenceOptions, Pipeline
from drut.questions import Question, as_mapping
from drut.runtimes.base import Runtime
from drut.schema import Prediction
from drut.tensors import MASKED_LOGIT, Batch, EncodedRow, Float32, Logits
from drut.triton_model.payload import Ask

Forward: TypeAlias = Callable[[Batch, float | None], Awaitable[Logits]]
"""Runs one batch; the second argument is how many seconds it may wait, None: any number."""

_NOT_OUR_FAULT: Final = (DeadlineExceededError, OverloadedError, ServerNotReadyError)
"""Errors that say nothing about the rows of a pass, so that single rows fare no better."""


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


@dataclass(slots=True)
class _Outcome:
    """What a call has got so far."""

    call: Call
    options: dict[int, Float32] = field(default_factory=dict)  # by row, [options]
    actions: dict[int, Float32] = field(default_factory=dict)  # by row, [actions]
    error: Exception | None = None


_Place: TypeAlias = tuple[_Outcome, int]  # whose row, and which of them


class Answerer:
    """Answers calls about one checkpoint through any `Forward`. Safe to use from one event loop."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        runtime: Runtime,
        calibration: Calibration,
        policy: PassPolicy,
    ) -> None:
        self._pipeline = Pipeline(checkpoint, runtime, calibration)
        self._pad_id = checkpoint.tokenizer.pad_id
        self._policy = policy

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

    async def answer(self, calls: Sequence[Call], forward: Forward) -> list[Prediction | Exception]:
        """Answer prepared calls, in order; what failed is an exception in its place."""
        outcomes = [_Outcome(call, error=_over(call)) for call in calls]
        await self._run(
            [
                (each, row)
                for each in outcomes
                if not each.error
                for row in range(len(each.call.rows))
            ],
            forward,
        )
        return [self._decoded(each) for each in outcomes]

    async def _run(self, places: Sequence[_Place], forward: Forward) -> None:
        """Run rows in as many passes as it takes, all of them in flight together."""
        await asyncio.gather(*(self._pass(group, forward) for group in self._plan(places)))

    def _plan(self, places: Sequence[_Place]) -> Iterator[list[_Place]]:
        lengths = [len(each.call.rows[row].ids) for each, row in places]
        for group in plan_batches(lengths, self._policy):
            yield [places[index] for index in group]

    async def _pass(self, places: Sequence[_Place], forward: Forward) -> None:
        rows = [each.call.rows[row] for each, row in places]
        batch = collate(rows, pad_id=self._pad_id, policy=self._policy)
        callers = list({id(each): each for each, _ in places}.values())
        try:
            logits = await forward(batch, _seconds_left([each.call for each in callers]))
            _check(logits, batch)
        except Exception as exc:  # noqa: BLE001 - told to the callers whose rows were in it
            if len(callers) > 1 and not isinstance(exc, _NOT_OUR_FAULT):
                # Whose row it was shows only alone; the others are not to suffer for it.
                alone = [[place for place in places if place[0] is each] for each in callers]
                await asyncio.gather(*(self._pass(group, forward) for group in alone))
                return
            for each in callers:
                each.error = each.error or exc
            return
        for index, (each, row) in enumerate(places):
            width = len(each.call.rows[row].markers)
            each.options[row] = logits.options[index, :width]
            each.actions[row] = logits.actions[index]

    def _decoded(self, outcome: _Outcome) -> Prediction | Exception:
        call = outcome.call
        if (error := outcome.error or _over(call)) is not None:
            return error
        if not call.rows:
            return empty_prediction()
        try:
            answers = decode_answers(
                _rectangle(outcome), call.questions, self._pipeline.calibration, call.language
            )
        except DrutError as exc:
            return exc
        usages = [row.usage for row in call.rows]
        ids = [question.id for question in call.questions]
        result = prediction(zip(ids, answers, usages, strict=True))
        if call.gate is not None:
            call.gate.apply([result])
        return result


def _over(call: Call) -> Exception | None:
    """Why a call needs no answer any more, if so."""
    if call.gone():
        return CallerGoneError("the caller cancelled the request")
    if call.deadline is None or time.monotonic() < call.deadline:
        return None
    return DeadlineExceededError("the request's timeout passed before it was answered")


def _rectangle(outcome: _Outcome) -> Logits:
    """The logits of a call's rows."""
    rows = range(len(outcome.call.rows))
    widths = np.asarray([len(outcome.options[row]) for row in rows])
    mask = np.arange(widths.max()) < widths[:, None]
    options = np.full(mask.shape, MASKED_LOGIT, np.float32)
    options[mask] = np.concatenate([outcome.options[row] for row in rows])
    actions = np.stack([outcome.actions[row] for row in rows])
    return Logits(options, actions)


def _seconds_left(calls: Sequence[Call]) -> float | None:
    """How long a pass may take: as long as the most patient of its callers waits.

    Raises:
        DeadlineExceededError: nobody waits any more.
    """
    moments = [call.deadline for call in calls]
    if None in moments:
        return None
    left = max(moment for moment in moments if moment is not None) - time.monotonic()
    if left <= 0:
        raise DeadlineExceededError("the request's timeout passed before its forward pass")
    return left


def _check(logits: Logits, batch: Batch) -> None:
    rows, options = batch.marker_mask.shape
    if logits.options.shape != (rows, options) or len(logits.actions) != rows:
        raise ServerFaultError(
            f"the graph answered {logits.options.shape} logits and {len(logits.actions)} act rows "
            f"to a batch of {rows} rows with {options} options"
        )
