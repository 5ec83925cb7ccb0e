"""From examples to tensors: the checkpoint format's token layout, padded into batches."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from tokenizers import Tokenizer
from torch import Tensor

from drut.tensors import QTYPES
from starter.examples import Example, prompt

MOST_OPTION_TOKENS: Final = 48  # the format's own limit for the text of one option
LEAST_PROMPT_TOKENS: Final = 8
LEAST_OPTION_TOKENS: Final = 4
ROOM_FOR_PROMPT: Final = 16


@dataclass(frozen=True, slots=True)
class Row:
    """One encoded example; `markers` stand in the options' natural order."""

    ids: tuple[int, ...]
    markers: tuple[int, ...]
    state_start: int
    example: Example


@dataclass(frozen=True, slots=True)
class Batch:
    """Tensors of a batch, padded on the right.

    ids, attention: int64 [rows, tokens]; markers: int64 [rows, options]; marker_mask: bool
    [rows, options]; state_mask: bool [rows, tokens], tokens of the state; qtype, answer: int64
    [rows]; soft: bool [rows].
    """

    ids: Tensor
    attention: Tensor
    markers: Tensor
    marker_mask: Tensor
    state_mask: Tensor
    qtype: Tensor
    answer: Tensor
    soft: Tensor
    examples: tuple[Example, ...]


class Encoder:
    """Lays examples out as `[CLS] prompt [SEP] ([MASK] option)×k [SEP] state [SEP]`."""

    def __init__(self, tokenizer: Tokenizer, max_len: int = 512, head_max_len: int = 192) -> None:
        self.tokenizer = tokenizer
        self.max_len = max_len
        self.head_max_len = head_max_len
        vocabulary = tokenizer.get_vocab()
        self.cls, self.sep = vocabulary["[CLS]"], vocabulary["[SEP]"]
        self.mask, self.pad = vocabulary["[MASK]"], vocabulary["[PAD]"]

    def rows(self, examples: Sequence[Example]) -> list[Row]:
        """Encode many examples, each distinct text once."""
        texts: dict[str, list[int]] = {}
        for example in examples:
            texts[prompt(example)] = texts[example.state] = []
            texts.update({" " + option: [] for option in example.options})
        ordered = list(texts)
        encodings = self.tokenizer.encode_batch(
            [self._without_mask(text) for text in ordered], add_special_tokens=False
        )
        texts = {text: enc.ids for text, enc in zip(ordered, encodings, strict=True)}
        return [self._row(example, texts) for example in examples]

    def _without_mask(self, text: str) -> str:
        return text.replace("[MASK]", " ")

    def _row(self, example: Example, texts: dict[str, list[int]]) -> Row:
        options = [
            [self.mask, *texts[" " + example.options[option]][:MOST_OPTION_TOKENS]]
            for option in example.slots
        ]
        spare = self.head_max_len - sum(map(len, options))
        if spare < ROOM_FOR_PROMPT:
            each = max(LEAST_OPTION_TOKENS, (self.head_max_len - ROOM_FOR_PROMPT) // len(options))
            options = [option[:each] for option in options]
            spare = self.head_max_len - sum(map(len, options))
        ids = [self.cls, *texts[prompt(example)][: max(LEAST_PROMPT_TOKENS, spare)], self.sep]
        places = [0] * len(options)
        for option, tokens in zip(example.slots, options, strict=True):
            places[option] = len(ids)
            ids += tokens
        ids.append(self.sep)
        start = len(ids)
        room = max(0, self.max_len - start - 1)
        ids += [*texts[example.state][:room], self.sep]
        return Row(tuple(ids[: self.max_len]), tuple(places), start, example)

    def collate(self, rows: Sequence[Row]) -> Batch:
        """Pad rows into one batch."""
        count, longest = len(rows), max(len(row.ids) for row in rows)
        widest = max(len(row.markers) for row in rows)
        ids = torch.full((count, longest), self.pad)
        attention = torch.zeros(count, longest, dtype=torch.long)
        state_mask = torch.zeros(count, longest, dtype=torch.bool)
        markers = torch.zeros(count, widest, dtype=torch.long)
        marker_mask = torch.zeros(count, widest, dtype=torch.bool)
        for number, row in enumerate(rows):
            length, options = len(row.ids), len(row.markers)
            ids[number, :length] = torch.tensor(row.ids)
            attention[number, :length] = 1
            state_mask[number, row.state_start : length - 1] = True
            markers[number, :options] = torch.tensor(row.markers)
            marker_mask[number, :options] = True
        examples = tuple(row.example for row in rows)
        return Batch(
            ids=ids,
            attention=attention,
            markers=markers,
            marker_mask=marker_mask,
            state_mask=state_mask,
            qtype=torch.tensor([QTYPES[example.kind] for example in examples]),
            answer=torch.tensor([example.answer for example in examples]),
            soft=torch.tensor([example.soft for example in examples]),
            examples=examples,
        )


def bucketed(rows: Sequence[Row], tokens: int, rng: random.Random) -> list[list[Row]]:
    """Split rows into batches of at most `tokens` padded tokens, alike in length, shuffled."""
    batches: list[list[Row]] = []
    current: list[Row] = []
    for row in sorted(rows, key=lambda row: len(row.ids)):
        if current and (len(current) + 1) * len(row.ids) > tokens:
            batches.append(current)
            current = []
        current.append(row)
    if current:
        batches.append(current)
    rng.shuffle(batches)
    return batches
