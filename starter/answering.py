"""Who answers the evaluation items: a checkpoint in torch, or an exported bundle through drut."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import drut
from drut.decoding.calibration import bucket
from starter.checkpoint import load_checkpoint
from starter.examples import Example
from starter.metrics import KINDS, Array, shares
from starter.model_data import Encoder
from starter.train import all_logits


class Answerer(Protocol):
    """Gives probabilities of each item's options, in the options' natural order."""

    def probabilities(self, items: Sequence[Example]) -> list[Array]:
        """One array an item."""


class CheckpointAnswerer:
    """A checkpoint directory, run in torch in float32."""

    def __init__(self, directory: Path) -> None:
        self._model, tokenizer, self._settings = load_checkpoint(directory)
        self._encoder = Encoder(
            tokenizer, self._settings["max_len"], self._settings["head_max_len"]
        )

    def probabilities(self, items: Sequence[Example]) -> list[Array]:
        logits = all_logits(self._model, self._encoder, list(items), amp=False)
        return [
            shares(values, self._temperature(item))
            for values, item in zip(logits, items, strict=True)
        ]

    def _temperature(self, item: Example) -> float:
        by_options = self._settings["temperature_by_options"]
        by_type = self._settings["temperature"][KINDS.index(item.kind)]
        return float(by_options.get(bucket(item.kind, len(item.options)), by_type))


class BundleAnswerer:
    """An exported bundle, asked the way a user asks it."""

    def __init__(self, bundle: str | Path) -> None:
        self._agent: Any = drut.load(bundle, device="cpu")

    def probabilities(self, items: Sequence[Example]) -> list[Array]:
        return [self._answer(item) for item in items]

    def _answer(self, item: Example) -> Array:
        question: dict[str, Any] = {"type": item.kind, "instructions": item.instructions}
        if item.kind == "choice":
            question["criteria"] = list(item.options)
        elif item.kind == "score":
            question["criteria"] = [option.partition(": ")[2] for option in item.options]
        if item.order:
            question["option_order"] = list(item.order)
        answer = self._agent.predict(_state(item), {"q": question})["answers"]["q"]
        if item.kind == "noul":
            return np.array([1 - answer["noul"], answer["noul"]])
        keys = item.options if item.kind == "choice" else map(str, range(len(item.options)))
        return np.array([answer["probabilities"][key] for key in keys])


def reordered(item: Example, order: Sequence[int]) -> Example:
    """The same item with its options in other slots."""
    return dataclasses.replace(item, order=tuple(order))


def _state(item: Example) -> Any:
    # Items hold states as text; JSON ones go back to what the user would pass.
    if item.state[:1] in "{[":
        try:
            return json.loads(item.state)
        except json.JSONDecodeError:
            return item.state
    return item.state
