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
def batches(draw: st.DrawFn) -> tuple[np.ndarray, float]:
    rows, options = draw(st.integers(1, 5)), draw(st.integers(1, 20))
    values = [[draw(logits) for _ in range(options)] for _ in range(rows)]
    return np.asarray(values, np.float32), draw(temperatures)


@examples(40)
@given(batches())
def test_probabilities_of_the_options_sum_to_one(case):
    values, temperature = case
    made = softmax(values, temperature)
    assert made.dtype == np.float32
    assert np.isfinite(made).all()
    assert (made >= 0).all()
    np.testing.assert_allclose(made.sum(axis=1), 1.0, atol=1e-5)


@examples(40)
@given(batches())
def test_probabilities_are_the_definition_in_more_digits(case):
    values, temperature = case
    scaled = values.astype(np.float64) / temperature
    expected = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(softmax(values, temperature), expected, atol=2e-3)


@examples(40)
@given(batches())
def test_the_largest_logit_is_the_largest_probability(case):
    values, temperature = case
    made = softmax(values, temperature)
    for row in range(len(values)):
        assert made[row, values[row].argmax()] == made[row].max()


@examples(25)
@given(batches())
def test_a_row_is_not_changed_by_its_neighbours(case):
    values, temperature = case
    together = softmax(values, temperature)
    confidences = entropy_confidence(together)
    for row in range(len(values)):
        assert np.array_equal(together[[row]], softmax(values[[row]], temperature))
        assert confidences[row] == entropy_confidence(together[[row]])[0]


def test_rows_may_have_their_own_temperatures_and_lack_options():
    values = np.asarray([[3.0, 1.0, -np.inf], [2.0, 0.0, 1.0]], np.float32)
    made = softmax(values, np.asarray([[1.3], [0.5]], np.float32))
    assert made[0, 2] == 0
    np.testing.assert_allclose(made[0, :2], softmax(values[:1, :2], 1.3)[0], atol=1e-6)
    np.testing.assert_allclose(made[1], softmax(values[1:], 0.5)[0], atol=1e-6)


def test_a_higher_temperature_is_less_sure():
    values = np.asarray([[2.0, 0.0]], np.float32)
    assert softmax(values, 0.5)[0, 0] > softmax(values, 5.0)[0, 0] > 0.5


def confidence_of(probabilities: list[float]) -> float:
    return float(entropy_confidence(np.asarray([probabilities], np.float32))[0])


@examples(40)
@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=10))
def test_a_confidence_lies_between_zero_and_one(weights: list[float]):
    total = sum(weights) or 1.0
    assert 0.0 <= confidence_of([weight / total for weight in weights]) <= 1.0


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
    assert confidence_of(probabilities) == pytest.approx(confidence, abs=1e-6)


def test_the_order_of_the_options_does_not_matter():
    assert confidence_of([0.1, 0.7, 0.2]) == pytest.approx(confidence_of([0.7, 0.2, 0.1]))


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
