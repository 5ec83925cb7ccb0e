"""Accuracy, calibration and temperatures from the logits of a list of items."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from starter.bank import Kind
from starter.examples import Example

Array: TypeAlias = NDArray[np.float64]

KINDS: Final[tuple[Kind, ...]] = ("choice", "score", "noul")  # the order of the config's list
TEMPERATURES: Final = np.round(np.arange(1.0, 5.001, 0.02), 2)
CALIBRATION_BINS: Final = 10


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures of one set, the calibration error (ece) and the mean loss (nll) among them."""

    items: int
    accuracy: float
    confidence: float  # mean probability of the given answers
    chance: float
    ece: float
    nll: float

    def as_dict(self) -> dict[str, float]:
        """The figures by name, rounded."""
        return {name: round(value, 4) for name, value in asdict(self).items()}


def shares(logits: Array, temperature: float = 1.0) -> Array:
    """Probabilities of one item's options."""
    scaled = logits / temperature
    powers = np.exp(scaled - scaled.max())
    return np.asarray(powers / powers.sum())


def summarise(probabilities: Sequence[Array], items: Sequence[Example]) -> Summary:
    """Compare answers with the right ones."""
    right = np.array([p.argmax() == e.answer for p, e in zip(probabilities, items, strict=True)])
    confidence = np.array([p.max() for p in probabilities])
    given = [max(p[e.answer], 1e-12) for p, e in zip(probabilities, items, strict=True)]
    return Summary(
        items=len(items),
        accuracy=float(right.mean()),
        confidence=float(confidence.mean()),
        chance=float(np.mean([1 / len(item.options) for item in items])),
        ece=calibration_error(confidence, right),
        nll=float(-np.log(given).mean()),
    )


def calibration_error(confidence: Array, right: NDArray[np.bool_]) -> float:
    """Expected calibration error over equal-width bins of the confidence."""
    bins = np.minimum((confidence * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    error = 0.0
    for number in range(CALIBRATION_BINS):
        inside = bins == number
        if inside.any():
            error += inside.mean() * abs(confidence[inside].mean() - right[inside].mean())
    return float(error)


def of_kind(items: Sequence[Example], kind: Kind) -> list[int]:
    """Positions of the items of one question type."""
    return [place for place, item in enumerate(items) if item.kind == kind]


def fit_temperature(logits: Sequence[Array], answers: Sequence[int]) -> float:
    """The temperature, at least 1, with the least mean NLL; 1 for no items.

    Below 1 it would sharpen answers, wrong ones included.
    """
    if not logits:
        return 1.0
    losses = [
        -np.mean(
            [np.log(max(shares(z, t)[a], 1e-12)) for z, a in zip(logits, answers, strict=True)]
        )
        for t in TEMPERATURES
    ]
    return float(TEMPERATURES[int(np.argmin(losses))])
