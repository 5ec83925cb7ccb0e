"""Does a graph answer like the model it was made from? Two runtimes, the same batches, numbers."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from drut.errors import VerificationError
from drut.runtimes.base import Runtime
from drut.tensors import MASKED_LOGIT, Batch, Float32, Logits
from drut_export.precision import Tolerance
from drut_export.trial_batches import (
    ModelFacts,
    TrialShape,
    make_batch,
    single_rows,
    trial_shapes,
)

Progress = Callable[[str], None]
Float64 = NDArray[np.float64]

INVARIANT: Final = 5e-4
"""Batch differences of logits up to here are float rounding."""


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """How far a graph is from its reference, absolute. Probabilities are at temperature 1."""

    shapes: int
    rows: int
    max_logit_difference: float  # options and actions
    mean_logit_difference: float
    max_probability_difference: float
    mean_probability_difference: float
    equal_choices: float  # share of rows with the same best option, ties aside
    batch_difference: float  # logits of a row alone against the row in a padded batch
    worst_shape: str  # the one with the largest difference of probabilities

    @property
    def batch_invariant(self) -> bool:
        """Whether a row's answer does not depend on its neighbours and its padding."""
        return self.batch_difference <= INVARIANT

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready figures."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two answers to one batch, and the graph's answers to its rows alone."""

    shape: TrialShape
    logits: Float64  # differences of all real options and actions, flat
    probabilities: Float64  # differences, flat
    equal: NDArray[np.bool_]  # [rows with options]
    batch: float

    @property
    def worst(self) -> tuple[float, float]:
        """Sort key: largest difference of probabilities, then of logits."""
        return float(self.probabilities.max()), float(self.logits.max())


def verify(
    reference: Runtime,
    graph: Runtime,
    facts: ModelFacts,
    tolerance: Tolerance,
    *,
    progress: Progress | None = None,
) -> VerifyReport:
    """Compare a graph with its reference on a matrix of shapes.

    Args:
        reference: usually the torch model.
        graph: the graph under test.
        facts: what the made-up rows depend on.
        tolerance: how far apart the two may be.
        progress: told each shape before it runs.

    Raises:
        VerificationError: a difference exceeds the tolerance, or an output is not finite; names
            the worst shape.
    """
    compared = []
    for shape in trial_shapes(facts):
        if progress is not None:
            progress(f"verifying {shape}")
        compared.append(_compare(reference, graph, shape, make_batch(shape, facts), tolerance))
    report = _report(compared)
    problems = list(_problems(report, tolerance))
    if problems:
        raise VerificationError(
            f"the graph does not answer like the checkpoint: {'; '.join(problems)}; "
            f"worst shape: {report.worst_shape}. Export with the versions of constraints.txt, "
            "or choose another precision"
        )
    return report


def _compare(
    reference: Runtime, graph: Runtime, shape: TrialShape, batch: Batch, tolerance: Tolerance
) -> Comparison:
    expected = reference.forward(batch)
    actual = _checked(graph.forward(batch), batch, shape)
    real = batch.marker_mask
    wanted, got = _shares(expected.options, real), _shares(actual.options, real)
    logits = [np.abs(expected.options - actual.options)[real]]
    logits.append(np.abs(expected.actions - actual.actions).ravel())
    return Comparison(
        shape=shape,
        logits=np.concatenate(logits, dtype=np.float64),
        probabilities=np.abs(wanted - got)[real],
        equal=_equal_choices(wanted, got, np.asarray(real.any(axis=1)), tolerance.probabilities),
        batch=_batch_difference(graph, batch, actual),
    )


def _checked(answer: Logits, batch: Batch, shape: TrialShape) -> Logits:
    finite = np.isfinite(answer.options).all() and np.isfinite(answer.actions).all()
    if not finite:
        raise VerificationError(f"the graph returned NaN or infinity for {shape}")
    if not (answer.options[~batch.marker_mask] == np.float32(MASKED_LOGIT)).all():
        raise VerificationError(f"the graph does not mask unused options for {shape}")
    return answer


def _shares(logits: Float32, real: NDArray[np.bool_]) -> Float64:
    raised = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True)) * real
    return np.asarray(raised / raised.sum(axis=1, keepdims=True).clip(min=1e-300))


def _equal_choices(
    wanted: Float64, got: Float64, asked: NDArray[np.bool_], tie: float
) -> NDArray[np.bool_]:
    """Whether the graph's best option is one of the reference's best, which may lie `tie` apart."""
    chosen = np.take_along_axis(wanted, got.argmax(axis=1)[:, None], axis=1)[:, 0]
    return np.asarray(chosen >= wanted.max(axis=1) - tie)[asked]


def _batch_difference(graph: Runtime, batch: Batch, together: Logits) -> float:
    worst = 0.0
    for index, alone in single_rows(batch):
        answer = graph.forward(alone)
        options = together.options[index, : answer.options.shape[1]]
        differences = (answer.options[0] - options, answer.actions[0] - together.actions[index])
        worst = max(worst, *(float(np.abs(d).max(initial=0.0)) for d in differences))
    return worst


def _report(compared: list[Comparison]) -> VerifyReport:
    logits = np.concatenate([one.logits for one in compared])
    probabilities = np.concatenate([one.probabilities for one in compared])
    return VerifyReport(
        shapes=len(compared),
        rows=sum(one.shape.rows for one in compared),
        max_logit_difference=float(logits.max()),
        mean_logit_difference=float(logits.mean()),
        max_probability_difference=float(probabilities.max()),
        mean_probability_difference=float(probabilities.mean()),
        equal_choices=float(np.concatenate([one.equal for one in compared]).mean()),
        batch_difference=max(one.batch for one in compared),
        worst_shape=str(max(compared, key=lambda one: one.worst).shape),
    )


def _problems(report: VerifyReport, tolerance: Tolerance) -> Iterator[str]:
    limits = (
        ("logits differ by", report.max_logit_difference, tolerance.logits),
        ("probabilities differ by", report.max_probability_difference, tolerance.probabilities),
        ("a padded batch moves logits by", report.batch_difference, tolerance.batch),
    )
    for what, found, allowed in limits:
        if not found <= allowed:
            yield f"{what} {found:.2g}, allowed are {allowed:.2g}"
    if not report.equal_choices >= tolerance.equal_choices:
        yield (
            f"{report.equal_choices:.1%} of the rows choose the same option, "
            f"required are {tolerance.equal_choices:.1%}"
        )
