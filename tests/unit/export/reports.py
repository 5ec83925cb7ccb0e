"""Reports of verifications that nobody ran."""

from dataclasses import replace
from typing import Any

from drut_export.precision import Tolerance
from drut_export.verify_report import BINS, Figures, VerifyReport

FIGURES = Figures(
    title="3 rows x 23 tokens x 2 options",
    rows=3,
    max_logit_difference=2e-5,
    mean_logit_difference=4e-6,
    max_probability_difference=5e-6,
    mean_probability_difference=6e-7,
    mean_confidence_difference=8e-7,
    equal_choices=1.0,
    batch_difference=5e-7,
    worst_row="row 2 of 3 rows x 23 tokens x 2 options",
)


def report(**changes: Any) -> VerifyReport:
    """A report that passed, of one batch of made-up rows and one of text."""
    text = replace(FIGURES, title="everyday text", worst_row="noul question about everyday text: a")
    settings: dict[str, Any] = {
        "total": replace(FIGURES, title="all", rows=6),
        "cases": (FIGURES, text),
        "distribution": (4, *[0] * 15, 7, 12, 3, *[0] * (BINS - 18)),
        "tolerance": Tolerance(logits=5e-3, probabilities=5e-4, equal_choices=1.0, batch=5e-4),
        **changes,
    }
    return VerifyReport(**settings)
