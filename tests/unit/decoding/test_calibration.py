import json
import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.decoding.calibration import (
    BUCKETS,
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    Calibration,
    Temperatures,
    apply_calibration_payload,
    bucket,
    calibration_of,
    clamp_temperature,
    primary_subtag,
    read_calibration,
)
from drut.errors import CheckpointFormatError, CheckpointNotFoundError, InvalidRequestError
from property_settings import examples
from tiny_checkpoint import config

GOOD = {"version": 1, "temperature": [1.5, 0.7, 2.0]}

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from([10**400, "0.7", " 2 ", "1e999", "nan", "0x1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=5,
)


def plain_config(**changes: Any) -> Any:
    """The tiny checkpoint's settings with temperatures in range."""
    return replace(
        config(), **{"temperature": (1.3, 0.9, 2.0), "temperature_by_options": {}, **changes}
    )


@pytest.mark.parametrize(
    ("kind", "options", "name"),
    [
        ("choice", 1, "choice:2"),
        ("choice", 2, "choice:2"),
        ("choice", 3, "choice:3-5"),
        ("score", 5, "score:3-5"),
        ("score", 6, "score:6-10"),
        ("choice", 10, "choice:6-10"),
        ("choice", 11, "choice:11+"),
        ("choice", 500, "choice:11+"),
        ("noul", 2, "noul:2"),
    ],
)
def test_buckets(kind: Any, options: int, name: str):
    assert bucket(kind, options) == name
    assert name in BUCKETS


@examples(40)
@given(json_values)
def test_any_configured_temperature_can_be_divided_by(value: Any):
    clamped = clamp_temperature(value)
    assert isinstance(clamped, float)
    assert MIN_TEMPERATURE <= clamped <= MAX_TEMPERATURE


@examples(25)
@given(st.floats(MIN_TEMPERATURE, MAX_TEMPERATURE))
def test_a_temperature_in_range_is_kept(value: float):
    assert clamp_temperature(value) == value
    assert clamp_temperature(repr(value)) == value


@pytest.mark.parametrize(
    ("value", "clamped"),
    [
        (0.1006, 0.5),
        (9, 5.0),
        (-3, 0.5),
        (0, 0.5),
        (1, 1.0),
        (True, 1.0),
        (None, 1.0),
        ("0.7", 0.7),
        ("seven", 1.0),
        ("", 1.0),
        (math.nan, 1.0),
        (math.inf, 1.0),
        (-math.inf, 1.0),
        ([2.0], 1.0),
        ({}, 1.0),
        (10**400, 1.0),
    ],
    ids=lambda value: repr(value)[:12],
)
def test_what_is_no_number_becomes_one_and_the_rest_is_confined(value: Any, clamped: float):
    assert clamp_temperature(value) == clamped


def test_a_bucket_goes_before_the_type():
    temperatures = Temperatures((1.0, 2.0, 3.0), {"choice:2": 4.0})
    assert temperatures.of("choice", 2) == 4.0
    assert temperatures.of("choice", 3) == 1.0
    assert temperatures.of("score", 2) == 2.0
    assert temperatures.of("noul", 2) == 3.0


def test_the_checkpoints_temperatures_are_clamped_once_with_one_warning():
    with pytest.warns(RuntimeWarning, match=r"choice:11\+: 0.1006 -> 0.5") as caught:
        made = calibration_of(config())
    assert len(caught) == 1
    assert "score:3-5: 9.0 -> 5.0" in str(caught[0].message)
    assert made.temperature("choice", 20) == 0.5
    assert made.temperature("score", 4) == 5.0
    assert made.temperature("score", 2) == 0.9


def test_temperatures_in_range_warn_of_nothing():
    made = calibration_of(plain_config())
    assert made.temperatures.by_type == (1.3, 0.9, 2.0)
    assert made.binning is None


@pytest.mark.parametrize(
    ("code", "tag"), [("de", "de"), ("de-AT", "de"), ("DE", "de"), ("de_AT", "de_at"), ("", "")]
)
def test_a_language_is_known_by_its_first_part(code: str, tag: str):
    assert primary_subtag(code) == tag


def test_a_language_has_its_own_temperatures_and_none_of_the_checkpoints_buckets():
    made = calibration_of(
        plain_config(temperature_by_options={"choice:2": 3.0}),
        {
            "DE-at": {"temperature": [2.0, 2.1, 2.2], "temperature_by_options": {"noul:2": 4.0}},
            "fr": None,
            "hi": {},
        },
    )
    assert made.temperature("choice", 2) == 3.0
    assert made.temperature("choice", 2, "de") == 2.0
    assert made.temperature("choice", 2, "de-CH") == 2.0
    assert made.temperature("noul", 2, "de") == 4.0
    assert made.temperature("choice", 2, "fr") == 1.3
    assert made.temperature("choice", 2, "hi") == 1.3
    assert made.temperature("choice", 2, "xx") == 3.0
    assert made.temperature("choice", 2, "") == 3.0
    assert made.has_language("fr")
    assert not made.has_language("xx")
    assert not made.has_language(None)


@pytest.mark.parametrize(
    "given",
    [
        [],
        "de",
        {5: None},
        {"": None},
        {" ": None},
        {"de": 1.0},
        {"de": [1, 1, 1]},
        {"de": {"temperature": 1.0}},
        {"de": {"temperature": [1.0]}},
        {"de": {"temperature_by_options": [1.0]}},
        {"de": {"temperature_by_options": 2.0}},
    ],
    ids=repr,
)
def test_malformed_language_temperatures_are_refused(given: Any):
    if given == []:
        assert calibration_of(plain_config(), given).by_language == {}
        return
    with pytest.raises(InvalidRequestError, match="lang_temperatures"):
        calibration_of(plain_config(), given)


def test_a_replaced_language_temperature_is_named():
    with pytest.warns(RuntimeWarning, match=r"lang_temperatures\['de'\].*score: 99"):
        made = calibration_of(plain_config(), {"de": {"temperature": [1.0, 99, 1.0]}})
    assert made.temperature("score", 3, "de") == 5.0


@pytest.mark.parametrize(
    ("confidence", "value"), [(0.0, 0.1), (0.24, 0.1), (0.25, 0.2), (0.99, 0.4), (1.0, 0.4)]
)
def test_a_confidence_falls_into_one_of_equal_bins(confidence: float, value: float):
    made = Calibration(binning={"noul:2": (0.1, 0.2, 0.3, 0.4)})
    assert made.binned(confidence, "noul", 2) == value


def test_bins_are_of_a_bucket_and_never_of_a_language():
    made = Calibration(by_language={"de": Temperatures()}, binning={"noul:2": (0.5,)})
    assert made.binned(0.9, "noul", 2) == 0.5
    assert made.binned(0.9, "choice", 2) == 0.9
    assert made.binned(0.9, "noul", 2, "de") == 0.9
    assert made.binned(0.9, "noul", 2, "fr") == 0.5
    assert Calibration().binned(0.9, "noul", 2) == 0.9


def test_a_calibration_file_replaces_temperatures_and_bins(tmp_path: Path):
    path = tmp_path / "calibration.json"
    content = {
        **GOOD,
        "temperature_by_options": {"choice:2": 3.0},
        "binning_map": {"noul:2": {"bins": 2, "values": [0, 1.0]}},
    }
    path.write_text(json.dumps(content), encoding="utf-8")
    before = Calibration(by_language={"de": Temperatures()}, binning={"choice:2": (0.5,)})
    made = read_calibration(str(path), before)
    assert made.temperatures == Temperatures((1.5, 0.7, 2.0), {"choice:2": 3.0})
    assert made.binning == {"noul:2": (0.0, 1.0)}
    assert made.by_language == before.by_language
    assert before.binning == {"choice:2": (0.5,)}


def test_a_calibration_file_without_bins_removes_them():
    assert apply_calibration_payload(GOOD, Calibration(binning={"noul:2": (0.5,)})).binning is None


@pytest.mark.parametrize("version", [None, 1, 2, 1.0, "3", " 3 "])
def test_any_whole_number_is_a_version(version: Any):
    assert apply_calibration_payload({**GOOD, "version": version}, Calibration())


@pytest.mark.parametrize(
    "change",
    [
        {"version": True},
        {"version": 1.5},
        {"version": "one"},
        {"version": []},
        {"version": math.inf},
        {"temperature": None},
        {"temperature": [1.0]},
        {"temperature": 1.0},
        {"temperature": "abc"},
        {"temperature_by_options": [1]},
        {"temperature_by_options": 1.0},
        {"binning_map": []},
        {"binning_map": {"noul:2": None}},
        {"binning_map": {"noul:2": {"bins": 0, "values": []}}},
        {"binning_map": {"noul:2": {"bins": True, "values": [0.5]}}},
        {"binning_map": {"noul:2": {"bins": 2, "values": [0.5]}}},
        {"binning_map": {"noul:2": {"bins": 1.0, "values": [0.5]}}},
        {"binning_map": {"noul:2": {"bins": 1, "values": "5"}}},
        {"binning_map": {"noul:2": {"bins": 1, "values": [1.5]}}},
        {"binning_map": {"noul:2": {"bins": 1, "values": [-0.1]}}},
        {"binning_map": {"noul:2": {"bins": 1, "values": [math.nan]}}},
        {"binning_map": {"noul:2": {"bins": 1, "values": [True]}}},
        {"binning_map": {"noul:2": {"bins": 1, "values": [None]}}},
        {"binning_map": {"noul:2": {"values": [0.5]}}},
    ],
    ids=repr,
)
def test_a_malformed_calibration_is_refused(change: dict[str, Any]):
    with pytest.raises(CheckpointFormatError, match=next(iter(change))):
        apply_calibration_payload({**GOOD, **change}, Calibration())


@pytest.mark.parametrize("payload", [None, [], "x", 5])
def test_a_calibration_is_an_object(payload: Any):
    with pytest.raises(CheckpointFormatError, match="object"):
        apply_calibration_payload(payload, Calibration())


@examples(30)
@given(
    st.fixed_dictionaries(
        {"temperature": st.lists(json_values, min_size=3, max_size=3)},
        optional={
            "version": json_values,
            "temperature_by_options": json_values,
            "binning_map": json_values
            | st.dictionaries(
                st.sampled_from(BUCKETS),
                st.fixed_dictionaries({"bins": json_values, "values": json_values}),
            ),
        },
    )
)
def test_any_calibration_file_is_usable_or_refused(payload: dict[str, Any]):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            made = apply_calibration_payload(payload, Calibration())
        except CheckpointFormatError:
            return
    for options in (2, 4, 8, 20):
        assert MIN_TEMPERATURE <= made.temperature("choice", options) <= MAX_TEMPERATURE
        assert 0 <= made.binned(0.7, "choice", options) <= 1


@pytest.mark.parametrize("content", ["", "{", "nonsense", "[" * 100_000])
def test_a_damaged_calibration_file_is_refused(tmp_path: Path, content: str):
    path = tmp_path / "calibration.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(CheckpointFormatError, match=r"calibration\.json"):
        read_calibration(path, Calibration())


def test_a_missing_calibration_file_is_named(tmp_path: Path):
    with pytest.raises(CheckpointNotFoundError, match=r"none\.json"):
        read_calibration(tmp_path / "none.json", Calibration())
