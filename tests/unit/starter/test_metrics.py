import numpy as np
import pytest
from starter.evalsets import make_item
from starter.metrics import calibration_error, fit_temperature, shares, summarise


def test_shares_flatten_with_the_temperature():
    logits = np.array([2.0, 0.0])
    assert shares(logits).sum() == pytest.approx(1)
    assert shares(logits, 2.0)[0] == pytest.approx(1 / (1 + np.exp(-1)))


def test_overconfident_logits_get_a_temperature_above_one():
    logits = [np.array([6.0, 0.0])] * 100
    answers = [0] * 73 + [1] * 27  # odds of e
    assert fit_temperature(logits, answers) == pytest.approx(6.0, abs=1.1)
    assert fit_temperature([z / 3 for z in logits], answers) == pytest.approx(2.0, abs=0.05)


def test_answers_are_never_sharpened():
    assert fit_temperature([np.array([0.2, 0.0])] * 10, [0] * 10) == 1.0
    assert fit_temperature([], []) == 1.0


def test_calibration_error_is_the_gap_of_confidence_and_accuracy():
    right = np.array([True] * 3 + [False])
    assert calibration_error(np.full(4, 0.75), right) == pytest.approx(0)
    assert calibration_error(np.full(4, 0.95), right) == pytest.approx(0.2)
    assert calibration_error(np.ones(1), np.array([True])) == 0


def test_a_summary_counts_right_answers_and_chance():
    items = [make_item("choice", "?", ["a", "b"], 1, "s"), make_item("noul", "?", (), 0, "s")]
    summary = summarise([np.array([0.2, 0.8]), np.array([0.4, 0.6])], items)
    assert (summary.items, summary.accuracy, summary.chance) == (2, 0.5, 0.5)
    assert summary.confidence == pytest.approx(0.7)
    assert summary.nll == pytest.approx(-(np.log(0.8) + np.log(0.4)) / 2)
