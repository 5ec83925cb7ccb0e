import copy
import math
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.decoding.calibration import BUCKETS
from drut.decoding.gate import Gate, parse_min_confidence
from drut.errors import InvalidRequestError
from property_settings import examples

VERDICT = {"low_confidence", "abstention", "abstention_threshold"}

confidences = st.one_of(
    st.none(), st.booleans(), st.floats(), st.integers(-1, 2), st.text(max_size=3)
)
answers = st.fixed_dictionaries(
    {"type": st.sampled_from(["choice", "score", "noul", "other", None])},
    optional={
        "answer_confidence": confidences,
        "confidence": confidences,
        "probabilities": st.dictionaries(st.integers(0, 20), st.floats(0, 1), max_size=13),
        "low_confidence": st.just(True),
        "abstention": st.just("passed"),
    },
)
results = st.lists(
    st.fixed_dictionaries(
        {}, optional={"answers": st.dictionaries(st.text(max_size=2), answers, max_size=3)}
    ),
    max_size=3,
)
thresholds = st.floats(0, 1)
gates = st.one_of(
    thresholds,
    st.dictionaries(st.sampled_from([*BUCKETS, "default"]), thresholds, min_size=1),
)


def gate(value: Any) -> Gate:
    made = parse_min_confidence(value)
    assert made is not None
    return made


def judged(answer: dict[str, Any], value: Any) -> dict[str, Any]:
    answer = copy.deepcopy(answer)
    gate(value).apply([{"answers": {"q": answer}}])
    return answer


def choice(options: int, confidence: float) -> dict[str, Any]:
    return {
        "type": "choice",
        "probabilities": dict.fromkeys(range(options), 0.1),
        "answer_confidence": confidence,
    }


@examples(40)
@given(results, gates)
def test_judging_twice_is_judging_once(made: list[Any], value: Any):
    gate(value).apply(made)
    once = copy.deepcopy(made)
    gate(value).apply(made)
    assert repr(made) == repr(once)


@examples(40)
@given(results, gates)
def test_only_the_verdict_is_written_and_always(made: list[Any], value: Any):
    before = copy.deepcopy(made)
    gate(value).apply(made)
    for result, old in zip(made, before, strict=True):
        assert result.keys() == old.keys()
        for key, answer in result.get("answers", {}).items():
            kept = {name: each for name, each in answer.items() if name not in VERDICT}
            was = {name: each for name, each in old["answers"][key].items() if name not in VERDICT}
            assert repr(kept) == repr(was)
            assert answer["abstention"] in {"passed", "abstained", "unevaluated"}
            assert ("low_confidence" in answer) == (answer["abstention"] == "abstained")
            assert 0 <= answer["abstention_threshold"] <= 1


@examples(40)
@given(st.floats(0, 1), st.floats(0, 1))
def test_an_answer_passes_from_its_threshold_on(confidence: float, threshold: float):
    answer = judged(choice(2, confidence), threshold)
    assert answer["abstention"] == ("passed" if confidence >= threshold else "abstained")
    assert answer["abstention_threshold"] == threshold


def test_a_verdict_of_before_is_replaced():
    answer = judged(choice(2, 0.4), 0.5)
    assert answer["low_confidence"] is True
    again = judged(answer, 0.3)
    assert "low_confidence" not in again
    assert again["abstention"] == "passed"


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ({"type": "noul", "answer_confidence": 0.4, "confidence": 0.9}, "abstained"),
        ({"type": "noul", "confidence": 0.4}, "abstained"),
        ({"type": "noul", "answer_confidence": math.nan, "confidence": 0.9}, "passed"),
        ({"type": "noul", "answer_confidence": True, "confidence": 0.4}, "abstained"),
        ({"type": "noul", "answer_confidence": "0.9"}, "unevaluated"),
        ({"type": "noul"}, "unevaluated"),
    ],
)
def test_the_first_finite_confidence_counts(answer: dict[str, Any], value: str):
    assert judged(answer, 0.5)["abstention"] == value


@pytest.mark.parametrize(
    ("answer", "threshold"),
    [
        (choice(2, 0.5), 0.1),
        (choice(1, 0.5), 0.1),
        (choice(4, 0.5), 0.2),
        (choice(11, 0.5), 0.9),
        ({"type": "noul", "confidence": 0.5}, 0.3),
        ({"type": "score", "probabilities": {"0": 1.0}}, 0.9),
        ({"type": "other"}, 0.9),
        ({}, 0.9),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_threshold_is_that_of_the_bucket_or_the_default(answer: Any, threshold: float):
    by_bucket = {"choice:2": 0.1, "choice:3-5": 0.2, "noul:2": 0.3, "default": 0.9}
    assert judged(answer, by_bucket)["abstention_threshold"] == threshold


def test_without_a_default_other_buckets_pass():
    assert judged(choice(4, 0.0), {"choice:2": 1.0})["abstention"] == "passed"


def test_a_threshold_of_zero_counts_as_set():
    assert judged(choice(2, 0.0), 0)["abstention"] == "passed"
    assert parse_min_confidence(None) is None


def test_results_of_hooks_without_answers_are_left_alone():
    made: list[Any] = [
        {},
        {"answers": {}},
        {"answers": None},
        {"answers": ["text"]},
        {"answers": {"q": "text", "r": None}},
    ]
    before = copy.deepcopy(made)
    gate(0.5).apply(made)
    assert made == before


@pytest.mark.parametrize("probabilities", [None, 5, "many", [0.5, 0.5]], ids=repr)
def test_an_answer_of_a_hook_with_odd_probabilities_is_judged_all_the_same(probabilities: Any):
    answer = {"type": "choice", "confidence": 0.4, "probabilities": probabilities}
    assert judged(answer, {"choice:2": 0.5, "default": 0.5})["abstention"] == "abstained"


@pytest.mark.parametrize(
    "value",
    [True, False, "0.5", math.nan, math.inf, -0.1, 1.1, 2, 10**400, [0.5], np.float32(0.5), b"x"],
    ids=lambda value: repr(value)[:12],
)
def test_a_threshold_is_a_number_between_zero_and_one(value: Any):
    with pytest.raises(InvalidRequestError, match="min_confidence"):
        parse_min_confidence(value)
    with pytest.raises(InvalidRequestError, match=r"min_confidence\['default'\]"):
        parse_min_confidence({"default": value})


@pytest.mark.parametrize("key", ["choice", "choice:3", "Choice:2", "noul:1", "", None, 2])
def test_an_unknown_bucket_is_refused_with_the_known_ones(key: Any):
    with pytest.raises(InvalidRequestError, match=r"'choice:11\+'.*'default'"):
        parse_min_confidence({key: 0.5})


def test_an_empty_map_is_refused():
    with pytest.raises(InvalidRequestError, match="empty"):
        parse_min_confidence({})


def test_any_mapping_and_any_real_number_are_taken():
    assert gate(MappingProxyType({"noul:2": 1})).by_bucket == {"noul:2": 1.0}
    assert gate(np.float64(0.5)).default == 0.5
