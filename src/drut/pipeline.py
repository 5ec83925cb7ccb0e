"""Encode, plan, forward, decode: what happens between the start hooks and the end hooks."""

import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import numpy as np

from drut.batching import made_up
from drut.checkpoint.opened import Checkpoint
from drut.decoding.answers import (
    decode_answers,
    empty_prediction,
    logits_by_option,
    prediction,
)
from drut.decoding.calibration import Calibration
from drut.encoding.memory import QuestionMemory
from drut.encoding.sequence import Encoder, Head, TokenBudget
from drut.errors import InvalidRequestError, InvalidTypeError, TruncationError
from drut.execution.base import RowRunner
from drut.execution.direct import DirectRunner, DistinctRunner
from drut.execution.passes import PassRunner
from drut.execution.policy import policy_for
from drut.questions import Question, UnknownKeys, as_mapping, shorten
from drut.runtimes.base import Runtime
from drut.schema import Answer, OnTruncation, Prediction, QuestionId, State
from drut.tensors import EncodedRow, Float32

WINDOW_STATES: Final = 1024
"""States encoded at a time where the caller sets no batch size, so that memory stays bounded."""

SORT_WINDOW: Final = 8
"""Batches that `sort_by_length` looks at together."""


@dataclass(frozen=True, slots=True)
class InferenceOptions:
    """How one call is answered. Unchecked: a start hook may have put anything here."""

    batch_size: Any = None  # states encoded together; None or less than 1: all
    lang: Any = None  # language code that picks temperatures
    max_len: Any = None  # tokens of a sequence; None: the checkpoint's
    head_max_len: Any = None
    sort_by_length: bool = False
    on_truncation: OnTruncation = "ignore"


@dataclass(frozen=True, slots=True)
class _Asked:
    """Checked questions with their heads, ready for any number of states."""

    questions: list[Question]
    heads: list[Head]
    budget: TokenBudget


class Pipeline:
    """Answers checked states and questions with one checkpoint. Knows nothing of hooks."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        runtime: Runtime,
        calibration: Calibration,
        *,
        neutralise_specials: bool = False,
        unknown_keys: UnknownKeys = "error",
        runner: RowRunner | None = None,
    ) -> None:
        self.runtime = runtime
        self.calibration = calibration
        self._config = checkpoint.config
        self._pad_id = checkpoint.tokenizer.pad_id
        bundle = checkpoint.bundle
        self._max_positions = bundle.max_positions if bundle else None
        if unknown_keys not in ("error", "ignore"):
            raise InvalidRequestError(
                f"unknown_keys must be 'error' or 'ignore', got {shorten(unknown_keys)}"
            )
        self.runner: RowRunner = runner or self._direct()
        self.encoder = Encoder(
            checkpoint.tokenizer,
            parallel=checkpoint.config.parallel,
            neutralise_specials=neutralise_specials,
        )
        self._memory = QuestionMemory(self.encoder, unknown_keys=unknown_keys)

    def answer(
        self, states: object, questions: object, options: InferenceOptions
    ) -> list[Prediction]:
        """Answer the same questions about every state, in input order."""
        listed, asked = _checked(states, questions)
        if not listed or not asked:
            return [empty_prediction() for _ in listed]
        prepared = self.prepare(asked, options)
        if options.lang is not None and not isinstance(options.lang, str):
            raise InvalidTypeError(
                f"lang must be a language code or None, got {type(options.lang).__name__}"
            )
        results: list[Prediction | None] = [None] * len(listed)
        for indices, rows in self._chunks(listed, prepared, options):
            _report_truncation(indices, rows, prepared.questions, options.on_truncation)
            answers = decode_answers(
                self.runner.run(rows),
                prepared.questions * len(indices),
                self.calibration,
                options.lang,
            )
            for place, index in enumerate(indices):
                results[index] = _assemble(prepared.questions, rows, answers, place)
        return [result for result in results if result is not None]

    def logits(
        self, states: object, questions: object, options: InferenceOptions
    ) -> dict[QuestionId, Float32]:
        """Ask the same questions about every state, and stop before the temperatures.

        Returns:
            By question id, [states, options]: rows in input order, options in their own order.
        """
        listed, asked = _checked(states, questions)
        prepared = self.prepare(asked, options)
        found = {
            question.id: np.empty((len(listed), len(question.options)), np.float32)
            for question in prepared.questions
        }
        for indices, rows in self._chunks(listed, prepared, options) if found else ():
            each = prepared.questions * len(indices)
            values = logits_by_option(self.runner.run(rows), each)
            for place, (question, value) in enumerate(zip(each, values, strict=True)):
                found[question.id][indices[place // len(prepared.questions)]] = value
        return found

    def prepare(self, questions: Mapping[Any, Any], options: InferenceOptions) -> _Asked:
        """Check questions and budget, and encode everything that no state changes."""
        asked = self._memory.recall(questions)
        budget = self.budget(options)
        heads = self._memory.heads(asked, budget)
        return _Asked([each.question for each in asked], heads, budget)

    def budget(self, options: InferenceOptions) -> TokenBudget:
        """Token budget of a call: its own, or the checkpoint's."""
        max_len = _tokens("max_len", options.max_len, self._config.max_len)
        head_max_len = _tokens("head_max_len", options.head_max_len, self._config.head_max_len)
        if self._max_positions is not None and max_len > self._max_positions:
            raise InvalidRequestError(
                f"max_len={max_len} is more than the {self._max_positions} positions that this "
                "checkpoint's encoder has; use predict_long for longer states"
            )
        return TokenBudget(max_len, head_max_len)

    def warm_up(self, shapes: Sequence[tuple[int, int, int]]) -> float:
        """Run one batch of padding per shape of rows, tokens and options; returns seconds."""
        start = time.perf_counter()
        for rows, tokens, options in shapes:
            for name, size in (("rows", rows), ("tokens", tokens), ("options", options)):
                whole_number(name, size, least=1)
            batch = made_up(
                (rows, tokens, options), pad_id=self._pad_id, parallel=self._config.parallel
            )
            self.runtime.forward(batch)
        return time.perf_counter() - start

    def _chunks(
        self, states: list[State], asked: _Asked, options: InferenceOptions
    ) -> Iterator[tuple[list[int], list[EncodedRow]]]:
        """Yield state indices with their rows, state by state, one chunk at a time."""
        size = _batch_size(options.batch_size)
        if not (options.sort_by_length and size is not None and 1 < size < len(states)):
            for indices in _slices(range(len(states)), size or WINDOW_STATES):
                yield indices, self._encode([states[index] for index in indices], asked)
            return
        for window in _slices(range(len(states)), SORT_WINDOW * size):
            rows = self._encode([states[index] for index in window], asked)
            per_state = _slices(rows, len(asked.questions))
            order = sorted(
                range(len(window)), key=lambda place: max(len(row.ids) for row in per_state[place])
            )
            for places in _slices(order, size):
                yield (
                    [window[place] for place in places],
                    [row for place in places for row in per_state[place]],
                )

    def _encode(self, states: Sequence[State], asked: _Asked) -> list[EncodedRow]:
        return [
            self.encoder.join(state, question, head, asked.budget)
            for state in self.encoder.encode_states(states)
            for question, head in zip(asked.questions, asked.heads, strict=True)
        ]

    def _direct(self) -> RowRunner:
        """What runs rows where nobody has chosen: this thread, one pass after the other."""
        policy = policy_for(self.runtime.info, max_positions=self._max_positions)
        return DistinctRunner(DirectRunner(PassRunner(self.runtime, policy, pad_id=self._pad_id)))


def as_states(states: object) -> list[State]:
    """List the states of a batch: any iterable that is not itself one state."""
    if isinstance(states, str | bytes | bytearray | Mapping):
        raise InvalidTypeError(
            f"predict_batch takes a list of states, got one {type(states).__name__}; "
            "put it into a list, or call predict for a single state"
        )
    if not isinstance(states, Iterable):
        raise InvalidTypeError(
            f"predict_batch takes a list of states, got {type(states).__name__!r}: "
            f"{shorten(states)}"
        )
    return list(states)


def _checked(states: object, questions: object) -> tuple[list[State], Mapping[Any, Any]]:
    listed, asked = as_states(states), as_mapping(questions)
    if any(state is None for state in listed):
        raise InvalidTypeError("a state is None; pass text, a dict or a list")
    return listed, asked


def whole_number(name: str, value: object, *, least: int) -> int:
    """Check that an argument is a whole number of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidTypeError(
            f"{name} must be an 'int', got {type(value).__name__!r}: {shorten(value)}"
        )
    if value < least:
        raise InvalidRequestError(f"{name} must be at least {least}, got {value}")
    return value


def share(name: str, value: object) -> float:
    """Check that an argument is a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidTypeError(
            f"{name} must be a number, got {type(value).__name__!r}: {shorten(value)}"
        )
    if not 0.0 <= value <= 1.0:
        raise InvalidRequestError(f"{name} must be between 0 and 1, got {value}")
    return float(value)


def _tokens(name: str, value: object, default: int) -> int:
    # Too small a budget is not refused here: the message about lost options says more.
    return default if value is None else whole_number(name, value, least=-(1 << 62))


def _batch_size(value: object) -> int | None:
    if value is None:
        return None
    size = whole_number("batch_size", value, least=-(1 << 62))
    return size if size > 0 else None


def _slices(items: Sequence[Any], size: int) -> list[list[Any]]:
    return [list(items[start : start + size]) for start in range(0, len(items), size)]


def _assemble(
    questions: Sequence[Question],
    rows: Sequence[EncodedRow],
    answers: Sequence[Answer],
    place: int,
) -> Prediction:
    first = place * len(questions)
    return prediction(
        (question.id, answers[row], rows[row].usage)
        for row, question in zip(count(first), questions, strict=False)
    )


def _report_truncation(
    indices: Sequence[int],
    rows: Sequence[EncodedRow],
    questions: Sequence[Question],
    wanted: OnTruncation,
) -> None:
    if wanted == "ignore":
        return
    if wanted not in ("warn", "error"):
        raise InvalidRequestError(
            f"on_truncation must be 'ignore', 'warn' or 'error', got {shorten(wanted)}"
        )
    cut = [
        f"state {indices[row // len(questions)]}, question {questions[row % len(questions)].id!r}: "
        f"{usage['state_tokens_dropped']} of {usage['state_tokens']} state tokens and "
        f"{usage['head_tokens_dropped']} of {usage['head_tokens']} instruction and option tokens"
        for row, usage in enumerate(row.usage for row in rows)
        if usage["state_tokens_dropped"] or usage["head_tokens_dropped"]
    ]
    if not cut:
        return
    message = (
        f"the token budget cut {len(cut)} of {len(rows)} rows ({'; '.join(cut[:3])}"
        f"{'; ...' if len(cut) > 3 else ''}); raise max_len or head_max_len, or use predict_long"
    )
    if wanted == "error":
        raise TruncationError(message)
    warnings.warn(message, RuntimeWarning, stacklevel=2)
