from collections.abc import Callable

import numpy as np
import pytest

from drut.errors import VerificationError
from drut.runtimes.fake import FakeRuntime, rising_logits
from drut.tensors import Batch, Logits
from drut_export.precision import Tolerance
from drut_export.trial_batches import (
    OPTIONS,
    ROWS,
    ModelFacts,
    TrialShape,
    make_batch,
    single_rows,
    trial_shapes,
)
from drut_export.verify import VerifyReport, verify

FACTS = ModelFacts(vocabulary=100, window=32)
STRICT = Tolerance(logits=1e-3, probabilities=1e-4, equal_choices=1.0, batch=1e-3)
LOOSE = Tolerance(logits=9.0, probabilities=1.0, equal_choices=0.0, batch=9.0)

Answer = Callable[[Batch], Logits]


def changed(options: Callable[[Batch, np.ndarray], np.ndarray]) -> Answer:
    def answer(batch: Batch) -> Logits:
        plain = rising_logits(batch)
        return Logits(options(batch, plain.options.copy()), plain.actions)

    return answer


def report_of(answer: Answer, tolerance: Tolerance = STRICT) -> VerifyReport:
    return verify(FakeRuntime(), FakeRuntime(answer), FACTS, tolerance)


def test_the_same_answers_differ_by_nothing() -> None:
    report = report_of(rising_logits)
    total = report.total
    assert total.max_logit_difference == total.max_probability_difference == 0.0
    assert total.batch_difference == 0.0
    assert report.batch_invariant
    assert report.passed
    assert total.equal_choices == 1.0
    assert total.rows == sum(shape.rows for shape in trial_shapes(FACTS))


def test_the_worst_row_is_named() -> None:
    def wrong_when_wide(batch: Batch, options: np.ndarray) -> np.ndarray:
        options[:, 0] += 0.5 * (batch.marker_mask.sum(axis=1) == 7)
        return options

    with pytest.raises(
        VerificationError, match=r"logits differ by 0\.5, allowed.*row \d of \d.* 7 options"
    ):
        report_of(changed(wrong_when_wide))


def test_figures_are_those_of_the_differences() -> None:
    def shifted(batch: Batch, options: np.ndarray) -> np.ndarray:
        return np.where(batch.marker_mask, options + np.float32(0.25), options)

    report = report_of(changed(shifted), LOOSE).total
    assert report.max_logit_difference == 0.25
    assert 0 < report.mean_logit_difference < 0.25
    assert report.max_probability_difference < 1e-7  # a shift of all options changes no share


def test_act_logits_are_compared_too() -> None:
    def answer(batch: Batch) -> Logits:
        plain = rising_logits(batch)
        return Logits(plain.options, plain.actions + np.float32(0.5))

    with pytest.raises(VerificationError, match=r"logits differ by 0\.5"):
        report_of(answer)


def test_another_choice_is_refused_even_within_the_other_limits() -> None:
    def reversed_order(batch: Batch, options: np.ndarray) -> np.ndarray:
        return np.where(batch.marker_mask, -options, options)

    tolerance = Tolerance(logits=99.0, probabilities=0.3, equal_choices=0.9, batch=9.0)
    with pytest.raises(VerificationError, match=r"of the rows choose the same option"):
        report_of(changed(reversed_order), tolerance)


def test_a_tie_may_fall_either_way() -> None:
    def even(batch: Batch) -> Logits:
        plain = rising_logits(batch)
        return Logits(np.where(batch.marker_mask, 0, plain.options), plain.actions)

    def nudged(batch: Batch) -> Logits:
        options = even(batch).options
        options[:, -1] += np.float32(1e-5) * batch.marker_mask[:, -1]
        return Logits(options.astype(np.float32), even(batch).actions)

    report = verify(FakeRuntime(even), FakeRuntime(nudged), FACTS, STRICT)
    assert report.total.equal_choices == 1.0


def test_an_answer_that_depends_on_the_neighbours_is_refused() -> None:
    def sees_neighbours(batch: Batch, options: np.ndarray) -> np.ndarray:
        return np.where(batch.marker_mask, options + np.float32(0.02 * len(batch)), options)

    runtime = FakeRuntime(changed(sees_neighbours))
    with pytest.raises(VerificationError, match=r"a padded batch moves logits by 0\.08"):
        verify(runtime, runtime, FACTS, STRICT)
    assert not verify(runtime, runtime, FACTS, LOOSE).batch_invariant


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_no_number_is_refused_whatever_the_tolerance(value: float) -> None:
    def spoiled(batch: Batch, options: np.ndarray) -> np.ndarray:
        options[-1, 0] = value if len(batch) == 5 else options[-1, 0]
        return options

    with pytest.raises(VerificationError, match="NaN or infinity for row 5 of 5 rows"):
        report_of(changed(spoiled), LOOSE)


def test_unused_options_must_be_masked() -> None:
    with pytest.raises(VerificationError, match="does not mask unused options"):
        report_of(changed(lambda _, options: np.maximum(options, 0)), LOOSE)


def test_progress_names_every_shape() -> None:
    told: list[str] = []
    verify(FakeRuntime(), FakeRuntime(), FACTS, STRICT, progress=told.append)
    assert told == [f"verifying {shape}" for shape in trial_shapes(FACTS)]


def test_shapes_cover_all_row_and_option_counts_and_go_beyond_the_window() -> None:
    shapes = trial_shapes(FACTS)
    assert {shape.rows for shape in shapes} == set(ROWS)
    assert {shape.options for shape in shapes} == set(OPTIONS)
    assert max(shape.tokens for shape in shapes) > 2 * 32
    assert any(shape.rows > 1 and shape.tokens > 2 * 32 for shape in shapes)
    short = ModelFacts(vocabulary=9, positions=12)
    assert max(shape.tokens for shape in trial_shapes(short)) == 12


@pytest.mark.parametrize("parallel", [False, True])
def test_made_up_rows_keep_the_contract(parallel: bool) -> None:
    facts = ModelFacts(vocabulary=100, parallel=parallel, window=32)
    for shape in trial_shapes(facts):
        batch = make_batch(shape, facts)
        feed = batch.feed()
        assert batch.parallel is parallel
        assert {name: array.dtype.name for name, array in feed.items()} == {
            name: "bool" if name == "marker_mask" else "int64" for name in feed
        }
        assert batch.input_ids.shape == (shape.rows, shape.tokens)
        assert batch.marker_pos.shape == (shape.rows, shape.options)
        lengths = batch.attention_mask.sum(axis=1, keepdims=True)
        assert ((batch.marker_pos < lengths) | ~batch.marker_mask).all()
        assert lengths[-1] == 0 if shape.dummy_row else (lengths > 0).all()
        assert np.array_equal(make_batch(shape, facts).input_ids, batch.input_ids)


def test_a_padded_batch_holds_short_rows_masked_options_and_several_types() -> None:
    batch = make_batch(TrialShape(5, 33, 3), FACTS)
    assert (batch.attention_mask == 0).any()
    assert (~batch.marker_mask).any()
    assert len(set(batch.qtype.tolist())) == 3
    for _, alone in single_rows(batch):
        assert alone.attention_mask.all()
        assert alone.marker_mask.all()
