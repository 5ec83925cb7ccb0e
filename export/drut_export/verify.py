"""Does a graph answer like the model it was made from? Two runtimes, the same batches, numbers."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from drut.errors import VerificationError
from drut.runtimes.base import Runtime
from drut.tensors import MASKED_LOGIT, Float32, Logits
from drut_export.tolerance import Tolerance
from drut_export.trial_batches import ModelFacts, TrialCase, made_up_cases, single_rows
from drut_export.verify_report import INVARIANT, Figures, VerifyReport, distribution_of

Progress = Callable[[str], None]
Float64 = NDArray[np.float64]
Bool = NDArray[np.bool_]

ALL: Final = "all"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two answers to one batch, and the graph's answers to its rows alone."""

    case: TrialCase
    logits: Float64  # differences of all real options and actions, flat
    probabilities: Float64  # differences, flat
    row_logits: Float64  # [rows], the largest difference of each
    row_probabilities: Float64  # [rows]
    row_confidence: Float64  # [rows], difference of the largest probability
    row_batch: Float64  # [rows], logits of the row alone against the row in the batch
    other_choice: Bool  # [rows]
    asked: Bool  # [rows], false for a row of nothing but padding


def verify(
    reference: Runtime,
    graph: Runtime,
    facts: ModelFacts,
    tolerance: Tolerance,
    *,
    texts: Iterable[TrialCase] = (),
    progress: Progress | None = None,
) -> VerifyReport:
    """Compare a graph with its reference on a matrix of shapes and on texts.

    Args:
        reference: usually the torch model.
        graph: the graph under test.
        facts: what the made-up rows depend on.
        tolerance: how far apart the two may be.
        texts: further batches, as a rule those of `drut_export.trial_texts`.
        progress: told each batch before it runs.

    Raises:
        VerificationError: a difference exceeds the tolerance, or an output is not finite; names
            the worst row.
    """
    cases = chain(made_up_cases(facts), texts)
    report = compare(reference, graph, cases, tolerance, progress=progress)
    if report.problems:
        raise VerificationError(
            f"the graph does not answer like the checkpoint: {'; '.join(report.problems)}. "
            "Export with the versions of constraints.txt, or choose another precision"
        )
    return report


def compare(
    reference: Runtime,
    graph: Runtime,
    cases: Iterable[TrialCase],
    tolerance: Tolerance,
    *,
    progress: Progress | None = None,
) -> VerifyReport:
    """Compare a graph with its reference on some batches; what exceeds the tolerance is reported.

    Raises:
        VerificationError: an output is not finite or not masked.
    """
    compared = []
    for case in cases:
        if progress is not None:
            progress(f"verifying {case.title}")
        compared.append(_compare(reference, graph, case, tolerance))
    return VerifyReport(
        total=_figures(ALL, compared),
        cases=tuple(_figures(one.case.title, [one]) for one in compared),
        distribution=distribution_of(np.concatenate([one.probabilities for one in compared])),
        tolerance=tolerance,
        problems=tuple(_problems(compared, tolerance)),
    )


def _compare(
    reference: Runtime, graph: Runtime, case: TrialCase, tolerance: Tolerance
) -> Comparison:
    batch = case.batch
    real = batch.marker_mask
    expected = reference.forward(batch)
    together = _checked(graph.forward(batch), case)
    alone, row_batch = _one_by_one(graph, case, together)
    # Where neighbours matter rows are served one by one, so that is what counts.
    actual = together if row_batch.max() <= INVARIANT else _checked(alone, case)
    wanted, got = _shares(expected.options, real), _shares(actual.options, real)
    options = np.abs(expected.options - actual.options).astype(np.float64) * real
    actions = np.abs(expected.actions - actual.actions).astype(np.float64)
    asked = np.asarray(real.any(axis=1))
    return Comparison(
        case=case,
        logits=np.concatenate((options[real], actions.ravel())),
        probabilities=np.abs(wanted - got)[real],
        row_logits=np.maximum(options.max(axis=1), actions.max(axis=1, initial=0.0)),
        row_probabilities=np.asarray((np.abs(wanted - got) * real).max(axis=1)),
        row_confidence=np.abs(wanted.max(axis=1) - got.max(axis=1)),
        row_batch=row_batch,
        other_choice=_other_choice(wanted, got, tolerance.probabilities) & asked,
        asked=asked,
    )


def _checked(answer: Logits, case: TrialCase) -> Logits:
    finite = np.isfinite(answer.options).all(axis=1) & np.isfinite(answer.actions).all(axis=1)
    if not finite.all():
        row = case.row(int(finite.argmin()))
        raise VerificationError(f"the graph returned NaN or infinity for {row}")
    masked = (answer.options == np.float32(MASKED_LOGIT)) | case.batch.marker_mask
    if not masked.all():
        row = case.row(int(masked.all(axis=1).argmin()))
        raise VerificationError(f"the graph does not mask unused options for {row}")
    return answer


def _shares(logits: Float32, real: Bool) -> Float64:
    raised = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True)) * real
    return np.asarray(raised / raised.sum(axis=1, keepdims=True).clip(min=1e-300))


def _other_choice(wanted: Float64, got: Float64, tie: float) -> Bool:
    """Whether the graph's best option is not one of the reference's best, `tie` apart at most."""
    chosen = np.take_along_axis(wanted, got.argmax(axis=1)[:, None], axis=1)[:, 0]
    return np.asarray(chosen < wanted.max(axis=1) - tie)


def _one_by_one(graph: Runtime, case: TrialCase, together: Logits) -> tuple[Logits, Float64]:
    """Answers to the rows alone, and how far each is from the one in the batch."""
    single = Logits(together.options.copy(), together.actions.copy())
    worst = np.zeros(len(case.batch))
    for index, alone in single_rows(case.batch):
        answer = graph.forward(alone)
        options = together.options[index, : answer.options.shape[1]]
        differences = (answer.options[0] - options, answer.actions[0] - together.actions[index])
        worst[index] = max(float(np.abs(d).max(initial=0.0)) for d in differences)
        single.options[index, : answer.options.shape[1]] = answer.options[0]
        single.actions[index] = answer.actions[0]
    return single, worst


def _figures(title: str, compared: list[Comparison]) -> Figures:
    logits = np.concatenate([one.logits for one in compared])
    probabilities = np.concatenate([one.probabilities for one in compared])
    asked = np.concatenate([one.asked for one in compared])
    other = np.concatenate([one.other_choice for one in compared])
    confidences = np.concatenate([one.row_confidence for one in compared])
    return Figures(
        title=title,
        rows=len(asked),
        max_logit_difference=float(logits.max()),
        mean_logit_difference=float(logits.mean()),
        max_probability_difference=float(probabilities.max()),
        mean_probability_difference=float(probabilities.mean()),
        mean_confidence_difference=float(confidences.sum()) / max(1, int(asked.sum())),
        equal_choices=1.0 - float(other.sum()) / max(1, int(asked.sum())),
        batch_difference=max(float(one.row_batch.max()) for one in compared),
        worst_row=_worst(compared, lambda one: one.row_probabilities + 1e-9 * one.row_logits),
    )


def _worst(compared: list[Comparison], measure: Callable[[Comparison], Float64]) -> str:
    """Name of the row with the largest value."""
    one = max(compared, key=lambda each: float(measure(each).max()))
    return one.case.row(int(measure(one).argmax()))


def _problems(compared: list[Comparison], tolerance: Tolerance) -> Iterator[str]:
    limits: tuple[tuple[str, Callable[[Comparison], Float64], float], ...] = (
        ("logits differ by", lambda one: one.row_logits, tolerance.logits),
        ("probabilities differ by", lambda one: one.row_probabilities, tolerance.probabilities),
        ("a padded batch moves logits by", lambda one: one.row_batch, tolerance.batch),
    )
    for what, measure, allowed in limits:
        found = max(float(measure(one).max()) for one in compared)
        if not found <= allowed:
            row = _worst(compared, measure)
            yield f"{what} {found:.2g}, allowed are {allowed:.2g} (worst row: {row})"
    equal = _figures(ALL, compared).equal_choices
    if not equal >= tolerance.equal_choices:
        row = _worst(compared, lambda one: one.other_choice * (1.0 + one.row_probabilities))
        yield (
            f"{equal:.1%} of the rows choose the same option, required are "
            f"{tolerance.equal_choices:.1%} (worst row: {row})"
        )
