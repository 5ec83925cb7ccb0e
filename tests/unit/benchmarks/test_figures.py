"""Statistics of measured seconds."""

import pytest
from benchmarks.figures import agreement, exponent, quantile, ratio, spread


def test_quantiles_lie_between_neighbours() -> None:
    assert quantile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.5
    assert quantile([1.0, 2.0, 3.0], 1.0) == 3.0
    assert quantile([7.0], 0.99) == 7.0


def test_a_spread_has_median_and_quartiles() -> None:
    assert spread([5.0, 1.0, 2.0, 4.0, 3.0]) == {"median": 3.0, "q1": 2.0, "q3": 4.0, "n": 5}


def test_a_ratio_above_one_is_faster_than_the_peer() -> None:
    assert ratio({"median": 6.0}, {"median": 2.0}) == 3.0


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_the_exponent_is_the_power_of_the_size(power: float) -> None:
    sizes = [1.0, 3.0, 10.0, 100.0]
    assert exponent(sizes, [0.02 * size**power for size in sizes]) == pytest.approx(power)


@pytest.mark.parametrize(("sizes", "values"), [([2.0, 2.0], [1.0, 2.0]), ([1.0, 2.0], [0.0, 1.0])])
def test_no_exponent_without_two_sizes_or_with_a_zero(
    sizes: list[float], values: list[float]
) -> None:
    with pytest.raises(ValueError, match="two different sizes"):
        exponent(sizes, values)


def test_agreement_counts_decisions_and_keeps_the_largest_gap() -> None:
    own = [{"q": {"a": 0.6, "b": 0.4}}, {"q": {"a": 0.2, "b": 0.8}}]
    peer = [{"q": {"a": 0.55, "b": 0.45}}, {"q": {"a": 0.7, "b": 0.3}}]
    found = agreement(own, peer)
    assert found == {"equal": 0.5, "largest": pytest.approx(0.5), "answers": 2}


def test_agreement_refuses_answers_to_other_questions_or_options() -> None:
    with pytest.raises(ValueError, match="different questions"):
        agreement([{"q": {"a": 1.0}}], [{"r": {"a": 1.0}}])
    with pytest.raises(ValueError, match="different options"):
        agreement([{"q": {"a": 1.0}}], [{"q": {"b": 1.0}}])
