import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.decoding.probabilities import entropy_confidence, first_action_probability, softmax
from property_settings import examples

logits = st.floats(-1e4, 1e4, width=32)
temperatures = st.floats(0.5, 5.0, width=32)


@st.composite
def batches(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows, options = draw(st.integers(1, 5)), draw(st.integers(1, 8))
    real = [draw(st.integers(1, options)) for _ in range(rows)]
    values = [[draw(logits) for _ in range(options)] for _ in range(rows)]
    return (
        np.asarray(values, np.float32),
        np.arange(options) < np.asarray(real)[:, None],
        np.asarray([draw(temperatures) for _ in range(rows)], np.float32),
    )


@examples(40)
@given(batches())
def test_probabilities_of_the_real_options_sum_to_one(case):
    values, mask, temperature = case
    made = softmax(values, mask, temperature)
    assert made.dtype == np.float32
    assert np.isfinite(made).all()
    assert (made >= 0).all()
    assert (made[~mask] == 0).all()
    np.testing.assert_allclose(made.sum(axis=1), 1.0, atol=1e-5)


@examples(40)
@given(batches())
def test_probabilities_are_the_definition_in_more_digits(case):
    values, mask, temperature = case
    made = softmax(values, mask, temperature)
    for row in range(len(values)):
        scaled = values[row][mask[row]].astype(np.float64) / float(temperature[row])
        expected = np.exp(scaled - scaled.max())
        expected /= expected.sum()
        np.testing.assert_allclose(made[row][mask[row]], expected, atol=2e-3)


@examples(40)
@given(batches())
def test_the_largest_logit_is_the_largest_probability(case):
    values, mask, temperature = case
    made = softmax(values, mask, temperature)
    for row in range(len(values)):
        best = np.where(mask[row], values[row], -np.inf).argmax()
        assert made[row, best] == made[row].max()


@examples(25)
@given(batches(), st.floats(-100, 100, width=32))
def test_what_the_padding_holds_does_not_matter(case, filler: float):
    values, mask, temperature = case
    other = np.where(mask, values, np.float32(filler))
    assert np.array_equal(softmax(values, mask, temperature), softmax(other, mask, temperature))


def test_a_row_is_not_changed_by_its_neighbours():
    values = np.asarray([[3.0, 1.0, 2.0], [900.0, -900.0, 0.0]], np.float32)
    mask = np.ones_like(values, bool)
    temperature = np.asarray([1.3, 0.5], np.float32)
    both = softmax(values, mask, temperature)
    for row in range(2):
        alone = softmax(values[[row]], mask[[row]], temperature[[row]])
        assert np.array_equal(both[[row]], alone)


def test_a_higher_temperature_is_less_sure():
    values = np.asarray([[2.0, 0.0]] * 2, np.float32)
    made = softmax(values, np.ones((2, 2), bool), np.asarray([0.5, 5.0], np.float32))
    assert made[0, 0] > made[1, 0] > 0.5


@examples(40)
@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=10))
def test_a_confidence_lies_between_zero_and_one(weights: list[float]):
    total = sum(weights) or 1.0
    confidence = entropy_confidence(np.asarray(weights, np.float32) / total, len(weights))
    assert 0.0 <= confidence <= 1.0


@pytest.mark.parametrize(
    ("probabilities", "confidence"),
    [
        ([1.0], 1.0),
        ([1.0, 0.0], 1.0),
        ([0.5, 0.5], 0.0),
        ([0.25] * 4, 0.0),
        ([0.0, 0.0, 1.0], 1.0),
        ([0.9, 0.1], 1 + (0.9 * math.log(0.9) + 0.1 * math.log(0.1)) / math.log(2)),
    ],
)
def test_a_confidence_is_one_minus_the_entropy(probabilities: list[float], confidence: float):
    made = entropy_confidence(np.asarray(probabilities, np.float32), len(probabilities))
    assert made == pytest.approx(confidence, abs=1e-6)


def test_the_order_of_the_options_does_not_matter():
    first = entropy_confidence(np.asarray([0.7, 0.2, 0.1], np.float32), 3)
    assert entropy_confidence(np.asarray([0.1, 0.7, 0.2], np.float32), 3) == pytest.approx(first)


@pytest.mark.parametrize(
    ("row", "probability"),
    [
        ([0.0], 1.0),
        ([5.0], 1.0),
        ([0.0, 0.0], 0.5),
        ([1.0, 0.0], 1 / (1 + math.exp(-1))),
        ([1e4, -1e4], 1.0),
        ([-1e4, 1e4], 0.0),
        ([0.0, 0.0, 0.0, 0.0], 0.25),
    ],
)
def test_the_first_action(row: list[float], probability: float):
    made = first_action_probability(np.asarray([row, row], np.float32))
    assert made.shape == (2,)
    assert made == pytest.approx([probability] * 2, abs=1e-6)
