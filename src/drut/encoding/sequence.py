"""One state and one question become one row of token ids, and what was cut is known.

The sequence is ``[CLS] prompt [SEP] ([MASK] option) x k [SEP] state [SEP]``. The part up to the
third separator is the *head*; it depends on the question alone and is built once per question.
A state is tokenised once, however many questions are asked about it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from drut.checkpoint.tokenizer import CheckpointTokenizer
from drut.encoding.layout import parallel_layout
from drut.errors import InvalidTypeError, OptionsTruncatedError
from drut.questions import Question, dump_json, shorten
from drut.schema import QuestionUsage, State
from drut.tensors import EncodedRow, Int64

OPTION_TOKENS: Final = 48
"""Tokens of one option text at most, its marker not counted."""

MIN_PROMPT_SPARE: Final = 16
"""Options are shortened when they leave fewer tokens than this for the instructions."""

MIN_OPTION_TOKENS: Final = 4
MIN_PROMPT_TOKENS: Final = 8


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """How long a sequence and its head may be, in tokens."""

    max_len: int
    head_max_len: int


@dataclass(frozen=True, slots=True)
class Head:
    """Everything of a sequence that does not depend on the state."""

    ids: Int64  # [tokens]
    markers: Int64  # [options], position of every option's mask token; shared by its rows
    tokens: int  # length before anything was cut
    options_distinct: int
    tokens_per_option: int | None  # the cut applied to each option, None where none was needed

    @property
    def dropped(self) -> int:
        """Tokens cut from instructions and options."""
        return self.tokens - len(self.ids)


@dataclass(frozen=True, slots=True)
class EncodedState:
    """A tokenised state. Lists are read from their end, everything else from its beginning."""

    ids: Int64  # [tokens], uncut
    keep: Literal["start", "end"]


class Encoder:
    """Turns states and questions into rows with one checkpoint's tokenizer. Holds no state."""

    def __init__(
        self, tokenizer: CheckpointTokenizer, *, parallel: bool, neutralise_specials: bool = False
    ) -> None:
        self._tokenizer = tokenizer
        self._parallel = parallel
        self._neutralise = neutralise_specials
        self._separator = np.asarray([tokenizer.sep_id], np.int64)

    def encode_states(self, states: Sequence[State]) -> list[EncodedState]:
        """Tokenise states, all in one call of the tokenizer.

        Raises:
            InvalidTypeError: a state is None or has no JSON form.
            InvalidTextError: a state holds a lone surrogate.
        """
        texts = [self._clean(state_text(state)) for state in states]
        return [
            EncodedState(np.asarray(ids, np.int64), "end" if isinstance(state, list) else "start")
            for ids, state in zip(self._tokenizer.encode_all(texts), states, strict=True)
        ]

    def encode_heads(self, questions: Sequence[Question], budget: TokenBudget) -> list[Head]:
        """Build the head of every question, all texts in one call of the tokenizer."""
        texts = [
            text
            for question in questions
            for text in (question.prompt, *(f" {option}" for option in question.slot_texts))
        ]
        # Each distinct text once: yes/no questions share their option texts.
        unique = dict.fromkeys(map(self._clean_mask, texts))
        tokens = dict(zip(unique, self._tokenizer.encode_all(list(unique)), strict=True))
        pieces = iter([tokens[self._clean_mask(text)] for text in texts])
        return [
            self._head(next(pieces), [next(pieces) for _ in question.options], budget)
            for question in questions
        ]

    def join(
        self, state: EncodedState, question: Question, head: Head, budget: TokenBudget
    ) -> EncodedRow:
        """Put a state behind a head and cut the sequence to `budget.max_len`.

        Raises:
            OptionsTruncatedError: fewer option markers than options fit into `max_len`.
        """
        kept = self._fit(state, head, budget)
        limit, markers = max(0, budget.max_len), head.markers
        ids = whole = np.concatenate((head.ids, kept, self._separator))
        if len(whole) > limit:
            ids, markers = whole[:limit], markers[markers < limit]
        if len(markers) < len(head.markers):
            raise OptionsTruncatedError(_marker_message(question, len(markers), budget))
        positions = options = None
        if self._parallel:
            layout = parallel_layout(head.markers.tolist(), len(head.ids), len(whole))
            positions, options = layout.position_ids[:limit], layout.option_ids[:limit]
        # A head longer than the limit loses its end, options and separators included.
        usage = _usage(question, state, head, kept=len(kept), length=len(ids))
        return EncodedRow(ids, markers, question.qtype, usage, positions, options)

    def state_room(self, head: Head, budget: TokenBudget) -> int:
        """Tokens of a state that fit behind a head."""
        return max(0, budget.max_len - len(head.ids) - 1)

    def state_tokens(self, state: State) -> list[int]:
        """Token ids of a whole state, uncut."""
        return self._tokenizer.encode(self._clean(state_text(state)))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of a stretch of state tokens."""
        return self._tokenizer.decode(ids)

    def _fit(self, state: EncodedState, head: Head, budget: TokenBudget) -> Int64:
        room = self.state_room(head, budget)
        if len(state.ids) <= room:
            return state.ids
        return state.ids[len(state.ids) - room :] if state.keep == "end" else state.ids[:room]

    def _head(self, prompt: list[int], options: list[list[int]], budget: TokenBudget) -> Head:
        tokenizer, limit = self._tokenizer, budget.head_max_len
        uncut = len(prompt) + sum(map(len, options)) + len(options) + 3
        slots = [[tokenizer.mask_id, *option[:OPTION_TOKENS]] for option in options]
        spare, per_option = limit - sum(map(len, slots)), None
        if spare < MIN_PROMPT_SPARE:
            per_option = max(MIN_OPTION_TOKENS, (limit - MIN_PROMPT_SPARE) // len(slots))
            slots = [slot[:per_option] for slot in slots]
            spare = limit - sum(map(len, slots))
        prompt = prompt[: max(MIN_PROMPT_TOKENS, spare)]
        ids, markers = [tokenizer.cls_id, *prompt, tokenizer.sep_id], []
        for slot in slots:
            markers.append(len(ids))
            ids += slot
        ids.append(tokenizer.sep_id)
        distinct = len({tuple(slot) for slot in slots})
        places = np.asarray(markers, np.int64)
        places.flags.writeable = False
        return Head(np.asarray(ids, np.int64), places, uncut, distinct, per_option)

    def _clean_mask(self, text: str) -> str:
        # A mask token in a text would be one more option marker.
        return text.replace(self._tokenizer.mask_token, " ")

    def _clean(self, text: str) -> str:
        if self._neutralise:
            return self._tokenizer.without_special_tokens(text)
        return self._clean_mask(text)


def state_text(state: State) -> str:
    """Text of a state: a string as it is, anything else as JSON.

    Raises:
        InvalidTypeError: the state is None or has no JSON form.
    """
    if state is None:
        raise InvalidTypeError("a state is None; pass text, a dict or a list")
    return state if isinstance(state, str) else dump_json(state)


def _usage(
    question: Question, state: EncodedState, head: Head, *, kept: int, length: int
) -> QuestionUsage:
    dropped = len(state.ids) - kept
    return {
        "tokens": length,
        "head_tokens": head.tokens,
        "head_tokens_dropped": head.tokens - min(len(head.ids), length),
        "state_tokens": len(state.ids),
        "state_tokens_kept": kept,
        "state_tokens_dropped": dropped,
        "state_cut": None if dropped == 0 else ("start" if state.keep == "end" else "end"),
        "options": len(question.options),
        "options_distinct": head.options_distinct,
        "tokens_per_option": head.tokens_per_option,
    }


def _marker_message(question: Question, survived: int, budget: TokenBudget) -> str:
    return (
        f"question {shorten(question.id)}: only {survived} of {len(question.options)} options fit "
        f"into max_len={budget.max_len} (head_max_len={budget.head_max_len}); raise max_len, "
        "lower head_max_len, or ask with fewer or shorter options"
    )
