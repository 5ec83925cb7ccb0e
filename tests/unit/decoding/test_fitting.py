import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.decoding.calibration import MAX_TEMPERATURE, MIN_TEMPERATURE, Calibration, Temperatures
from drut.decoding.fitting import (
    Floors,
    Record,
    fit_binning,
    fit_calibration,
    fit_language_temperatures,
    fit_temperature,
    fit_temperatures,
    mean_nll,
    reliability,
)
from drut.errors import InvalidRequestError
from property_settings import examples

ANY = Floors(1, 1, 1)

logits = st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=7)


@st.composite
def records(draw: Any, kind: str | None = None) -> Record:
    chosen = kind or draw(st.sampled_from(["choice", "score", "noul"]))
    values = draw(st.lists(st.floats(-30, 30, width=32), min_size=2, max_size=2))
    if chosen != "noul":
        values = draw(logits)
    target = draw(st.integers(0, len(values) - 1))
    return Record(chosen, np.asarray(values, np.float32), target)


def drawn(
    temperature: float, *, count: int = 3000, options: int = 4, seed: int = 0, kind: Any = "choice"
) -> list[Record]:
    """Records whose right answers are drawn at a temperature, so that it is the one to find."""
    random = np.random.default_rng(seed)
    values = random.normal(0, 3, (count, options)).astype(np.float32)
    noise = random.gumbel(size=values.shape)
    targets = (values / temperature + noise).argmax(axis=1)
    return [Record(kind, row, int(target)) for row, target in zip(values, targets, strict=True)]


def at(temperature: float) -> Calibration:
    return Calibration(Temperatures((temperature,) * 3))


@examples(12)
@given(st.floats(0.6, 4.5), st.integers(2, 12), st.integers(0, 5))
def test_the_temperature_that_made_the_answers_is_found(
    temperature: float, options: int, seed: int
):
    found = fit_temperature(drawn(temperature, options=options, seed=seed))
    assert found == pytest.approx(temperature, rel=0.15)


@examples(60)
@given(st.lists(records(), min_size=1, max_size=30), st.floats(MIN_TEMPERATURE, MAX_TEMPERATURE))
def test_no_other_temperature_is_more_likely(found: list[Record], other: float):
    fitted = fit_temperature(found)
    assert MIN_TEMPERATURE <= fitted <= MAX_TEMPERATURE
    assert mean_nll(found, at(fitted)) <= mean_nll(found, at(other)) + 1e-9


temperatures = st.builds(
    lambda by_type, by_bucket: Temperatures(by_type, by_bucket),
    st.tuples(*[st.floats(MIN_TEMPERATURE, MAX_TEMPERATURE)] * 3),
    st.dictionaries(
        st.sampled_from(["choice:2", "choice:3-5", "score:2", "score:6-10", "noul:2"]),
        st.floats(MIN_TEMPERATURE, MAX_TEMPERATURE),
    ),
)


@examples(60)
@given(
    st.lists(records(), min_size=1, max_size=30),
    temperatures,
    st.integers(1, 12),
    st.integers(1, 12),
)
def test_fitting_never_makes_the_answers_less_likely(
    found: list[Record], current: Temperatures, per_type: int, per_bucket: int
):
    made = fit_temperatures(found, current, Floors(per_type, per_bucket))
    after, before = mean_nll(found, Calibration(made)), mean_nll(found, Calibration(current))
    assert after <= before + 1e-9


@examples(30)
@given(st.lists(records(), min_size=1, max_size=20), st.randoms(use_true_random=False))
def test_the_order_of_records_does_not_matter(found: list[Record], random: Any):
    shuffled = list(found)
    random.shuffle(shuffled)
    before = Calibration()
    made = [fit_calibration(each, before, ANY, binning=True) for each in (found, shuffled)]
    assert made[0].temperatures.by_type == pytest.approx(made[1].temperatures.by_type, rel=1e-4)
    assert made[0].temperatures.by_bucket == pytest.approx(
        dict(made[1].temperatures.by_bucket), rel=1e-4
    )
    assert reliability(found, before).error == pytest.approx(
        reliability(shuffled, before).error, abs=1e-9
    )


def test_answers_that_no_temperature_tells_apart_give_one():
    equal = [Record("choice", np.zeros(3, np.float32), 1)] * 20
    assert fit_temperature(equal) == 1.0
    assert fit_temperature([Record("choice", np.ones(1, np.float32), 0)]) == 1.0
    assert fit_temperature([]) == 1.0


def test_certain_answers_end_at_the_ends():
    row = np.asarray([3.0, 0.0], np.float32)
    assert fit_temperature([Record("noul", row, 0)] * 20) == MIN_TEMPERATURE
    assert fit_temperature([Record("noul", row, 1)] * 20) == MAX_TEMPERATURE


def test_the_minimum_is_the_one_that_calculus_gives():
    # Two options, d apart, right in a share s: s = 1 / (1 + exp(-d / T)).
    row = np.asarray([2.0, 0.0], np.float32)
    found = [Record("noul", row, 0)] * 3 + [Record("noul", row, 1)]
    assert fit_temperature(found) == pytest.approx(2 / math.log(3), rel=1e-9)


def test_a_type_below_its_floor_keeps_its_temperatures():
    found = drawn(3.0, count=9) + drawn(3.0, count=10, kind="score")
    current = Temperatures((1.5, 1.5, 1.5), {"choice:3-5": 1.25})
    made = fit_temperatures(found, current)
    assert (made.by_type[0], made.by_type[2]) == (1.5, 1.5)
    assert made.by_type[1] != 1.5
    assert made.by_bucket == {"choice:3-5": 1.25}


def test_a_bucket_at_its_floor_is_fitted_for_itself():
    found = drawn(3.0, count=1500) + drawn(0.7, count=1500, options=8, seed=1)
    floors = Floors(10, 1500)
    made = fit_temperatures(found, Temperatures(), floors)
    assert made.by_bucket["choice:3-5"] == pytest.approx(3.0, rel=0.15)
    assert made.by_bucket["choice:6-10"] == pytest.approx(0.7, rel=0.15)
    assert 0.7 < made.by_type[0] < 3.0
    assert fit_temperatures(found, Temperatures(), Floors(10, 1501)).by_bucket == {}


def test_a_bucket_below_its_floor_stays_only_where_it_is_the_better_one():
    found = drawn(3.0) + drawn(1.0, count=200, options=8, seed=1)
    absurd = Temperatures(by_bucket={"choice:3-5": 0.5, "choice:6-10": 1.0, "choice:11+": 2.0})
    made = fit_temperatures(found, absurd, Floors(10, 10_000))
    # choice:11+ stays because no record says anything about it.
    assert dict(made.by_bucket) == {"choice:6-10": 1.0, "choice:11+": 2.0}


def test_other_types_and_unknown_buckets_stay():
    current = Temperatures((1.0, 2.0, 3.0), {"noul:2": 4.0, "made-up": 1.5})
    made = fit_temperatures(drawn(2.0, count=50), current)
    assert made.by_type[1:] == (2.0, 3.0)
    assert made.by_bucket == {"noul:2": 4.0, "made-up": 1.5}


def test_nothing_to_fit_is_told():
    with pytest.raises(InvalidRequestError, match=r"10 labelled answers.*choice 9, score 0"):
        fit_calibration(drawn(1.0, count=9), Calibration())
    with pytest.raises(InvalidRequestError):
        fit_calibration([], Calibration(), Floors(0, 0, 0))


def test_languages_are_fitted_apart_and_fill_up_from_the_general_temperatures():
    german = [Record(r.kind, r.logits, r.target, "DE-at") for r in drawn(3.0)]
    english = [Record(r.kind, r.logits, r.target, "en") for r in drawn(0.7, seed=1)]
    few = [Record("choice", english[0].logits, 0, "fr")] * 9
    general = Temperatures((1.0, 1.5, 2.0), {"choice:3-5": 4.0})
    made = fit_language_temperatures(german + english + few + drawn(1.0), general)
    assert list(made) == ["de", "en"]
    assert made["de"].by_type[0] == pytest.approx(3.0, rel=0.15)
    assert made["en"].by_type[0] == pytest.approx(0.7, rel=0.15)
    assert made["de"].by_type[1:] == (1.5, 2.0)
    assert set(made["de"].by_bucket) == {"choice:3-5"}
    assert made["de"].by_bucket["choice:3-5"] != 4.0


def confident(share: float, target: int) -> Record:
    """A yes/no record whose first option has that probability."""
    return Record("noul", np.asarray([math.log(share / (1 - share)), 0.0], np.float32), target)


def test_bins_hold_accuracy_and_empty_ones_their_centre():
    found = [confident(0.9, 0)] * 150 + [confident(0.9, 1)] * 50
    (values,) = fit_binning(found, Temperatures(), bins=5).values()
    assert values == pytest.approx((0.1, 0.3, 0.5, 0.7, 0.75))
    assert fit_binning(found[:-1], Temperatures()) == {}
    assert len(fit_binning(found, Temperatures())["noul:2"]) == 15


def test_bins_are_of_the_fitted_temperature():
    found = [confident(0.9, 0)] * 200
    made = fit_calibration(found, Calibration(), binning=True)
    assert made.temperatures.by_type[2] == MIN_TEMPERATURE
    assert made.binning is not None
    assert made.binning["noul:2"][14] == 1.0  # 0.9 at a temperature of 0.5 is 0.988


def test_without_enough_answers_for_bins_there_is_no_map():
    assert fit_calibration(drawn(1.0, count=50), Calibration(), binning=True).binning is None


def test_the_calibration_error_is_the_weighted_gap():
    found: Sequence[Record] = [confident(0.9, 0), confident(0.9, 1), confident(0.7, 0)]
    seen = reliability(found, Calibration(), bins=10)
    assert seen.counts[[6, 7, 8, 9]].sum() == 3
    assert seen.error == pytest.approx((2 * 0.4 + 0.3) / 3, abs=1e-6)
    assert reliability([], Calibration()).error == 0.0


def test_reliability_applies_maps_and_languages():
    found = [Record(r.kind, r.logits, r.target, "de") for r in [confident(0.9, 0)] * 4]
    mapped = Calibration(binning={"noul:2": (0.25, 0.25)})
    assert reliability(found, mapped).error == pytest.approx(0.75)
    german = Calibration(by_language={"de": Temperatures()}, binning={"noul:2": (0.25, 0.25)})
    assert reliability(found, german).error == pytest.approx(0.1, abs=1e-6)


def test_the_likelihood_is_in_nats():
    assert mean_nll([confident(0.8, 1)], Calibration()) == pytest.approx(-math.log(0.2), rel=1e-6)
    assert mean_nll([], Calibration()) == 0.0
