"""What a comparison of a graph with its checkpoint found, as numbers."""

from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from drut_export.tolerance import Tolerance

INVARIANT: Final = 5e-4
"""Batch differences of logits up to here are float rounding."""

LOWEST_DECADE: Final = -10
BINS_PER_DECADE: Final = 4
BINS: Final = -LOWEST_DECADE * BINS_PER_DECADE
"""Bins between 10 ** LOWEST_DECADE and 1, equally wide on a log axis."""


@dataclass(frozen=True, slots=True)
class Figures:
    """How far a graph is from its reference on some rows, absolute. Probabilities at temperature 1.

    A row's logits are those of its options and actions.
    """

    title: str
    rows: int
    max_logit_difference: float
    mean_logit_difference: float
    max_probability_difference: float
    mean_probability_difference: float
    mean_confidence_difference: float  # of the largest probability of each row
    equal_choices: float  # share of rows with the same best option, ties aside
    batch_difference: float  # logits of a row alone against the row in a padded batch
    worst_row: str  # the one with the largest difference of probabilities, then of logits

    @property
    def batch_invariant(self) -> bool:
        """Whether a row's answer does not depend on its neighbours and its padding."""
        return self.batch_difference <= INVARIANT


@dataclass(frozen=True, slots=True)
class Calibrated:
    """How well confidences agree with labelled answers, for one runtime."""

    error_before: float  # expected calibration error at temperature 1
    error: float  # the same at the checkpoint's own temperatures
    right: float  # share of right answers


@dataclass(frozen=True, slots=True)
class CalibrationFigures:
    """Calibration of checkpoint and graph on the same labelled answers."""

    data: str  # name of the file
    answers: int
    checkpoint: Calibrated
    graph: Calibrated


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Figures of every batch and of all of them, and what exceeds the tolerance."""

    total: Figures
    cases: tuple[Figures, ...]
    distribution: tuple[int, ...]  # of the differences of probabilities, see `distribution_of`
    tolerance: Tolerance
    problems: tuple[str, ...] = ()  # each names the worst row
    calibration: CalibrationFigures | None = None  # None: no labelled data was given

    @property
    def passed(self) -> bool:
        """Whether nothing exceeds the tolerance."""
        return not self.problems

    @property
    def batch_invariant(self) -> bool:
        """Whether a row's answer does not depend on its neighbours and its padding."""
        return self.total.batch_invariant

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready summary, as it stands in the manifest."""
        figures = asdict(self.total)
        del figures["title"]
        return {
            "batches": len(self.cases),
            **figures,
            "calibration": None if self.calibration is None else asdict(self.calibration),
            "tolerance": asdict(self.tolerance),
        }

    def details(self) -> dict[str, Any]:
        """JSON-ready summary with the figures of every batch."""
        return {
            **self.as_dict(),
            "passed": self.passed,
            "problems": list(self.problems),
            "batch_invariant": self.batch_invariant,
            "distribution": list(self.distribution),
            "cases": [asdict(each) for each in self.cases],
        }


def distribution_of(differences: NDArray[np.float64]) -> tuple[int, ...]:
    """Count differences by size.

    Args:
        differences: absolute, at most 1.

    Returns:
        1 + `BINS` counts: first what is below 10 ** `LOWEST_DECADE` or nothing at all.
    """
    exponents = np.log10(differences.clip(min=1e-300)) - LOWEST_DECADE
    bins = np.floor(exponents * BINS_PER_DECADE).clip(-1, BINS - 1).astype(np.int64) + 1
    return tuple(int(count) for count in np.bincount(bins, minlength=BINS + 1))


def bin_start(index: int) -> float:
    """Exponent of ten at which a bin of `distribution_of` begins; the first one is index 1."""
    return LOWEST_DECADE + (index - 1) / BINS_PER_DECADE
