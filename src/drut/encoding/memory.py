"""Questions that were asked before are neither checked nor tokenised again."""

import marshal
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

from drut.encoding.sequence import Encoder, Head, TokenBudget
from drut.questions import Question, UnknownKeys, as_mapping, parse_question

MAX_QUESTIONS: Final = 256
MAX_KEY_BYTES: Final = 32768
"""Longer questions are not remembered, so that memory stays below eight MiB of keys."""

_MAX_BUDGETS: Final = 4
_PLAIN: Final = frozenset({str, int, float, bool, type(None)})
_FORMAT: Final = 2  # later formats depend on which objects are shared, not only on values


@dataclass(slots=True)
class Remembered:
    """A checked question, with its head for every budget it was asked with lately."""

    question: Question
    heads: dict[int, Head] = field(default_factory=dict)  # by tokens of the head at most


class QuestionMemory:
    """Remembers questions by what they say, so that a changed dict is another question.

    Safe to use from many threads; the question asked longest ago is forgotten first.
    """

    def __init__(self, encoder: Encoder, *, unknown_keys: UnknownKeys) -> None:
        self._encoder = encoder
        self._unknown_keys: UnknownKeys = unknown_keys
        self._lock = Lock()  # guards the next one
        self._known: OrderedDict[bytes, Remembered] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def recall(self, questions: object) -> list[Remembered]:
        """Check every question that is not known yet, in order; the first fault is raised.

        Raises:
            InvalidTypeError: `questions` is not a mapping.
            InvalidRequestError: a question cannot be asked as written; the message names it.
        """
        return [self._recall(*item) for item in as_mapping(questions).items()]

    def heads(self, asked: Sequence[Remembered], budget: TokenBudget) -> list[Head]:
        """Head of every question; those that are missing in one call of the tokenizer."""
        size = budget.head_max_len
        found = [each.heads.get(size) for each in asked]
        missing = [at for at, head in enumerate(found) if head is None]
        if missing:
            made = self._encoder.encode_heads([asked[at].question for at in missing], budget)
            for at, head in zip(missing, made, strict=True):
                found[at] = head
                if len(asked[at].heads) >= _MAX_BUDGETS:
                    asked[at].heads.clear()
                asked[at].heads[size] = head
        return [head for head in found if head is not None]

    def _recall(self, question_id: Any, definition: Any) -> Remembered:
        key = _key(question_id, definition)
        if key is not None:
            with self._lock:
                known = self._known.get(key)
                if known is not None:
                    self._known.move_to_end(key)
                    return known
        made = Remembered(parse_question(question_id, definition, unknown_keys=self._unknown_keys))
        # What is not plain may be written with the same bytes and yet read otherwise.
        if key is not None and _is_plain(question_id) and _is_plain(definition):
            with self._lock:
                self._known[key] = made
                if len(self._known) > MAX_QUESTIONS:
                    self._known.popitem(last=False)
        return made


def _key(question_id: Any, definition: Any) -> bytes | None:
    """A question as bytes that differ wherever two plain values differ, order included."""
    try:
        key = marshal.dumps((question_id, definition), _FORMAT)
    except ValueError:  # an object of some class
        return None
    return key if len(key) <= MAX_KEY_BYTES else None


def _is_plain(value: object) -> bool:
    """Whether a value is built of text, numbers, booleans, None, lists, tuples and dicts alone."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if isinstance(value, Mapping):
        return kind is dict and all(_is_plain(key) and _is_plain(value[key]) for key in value)
    return isinstance(value, Sequence) and kind in (list, tuple) and all(map(_is_plain, value))
