import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.decoding.answers import (
    decode_answers,
    empty_prediction,
    prediction,
    rounded,
    state_usage,
)
from drut.decoding.calibration import Calibration, Temperatures
from drut.errors import NonFiniteOutputError
from drut.questions import Question, parse_question
from drut.schema import QuestionUsage
from drut.tensors import Logits
from property_settings import examples

PLAIN = Calibration()


def choice(labels: Any, **more: Any) -> Question:
    return parse_question("c", {"type": "choice", "instructions": "x", "criteria": labels, **more})


def score(levels: list[Any], **more: Any) -> Question:
    return parse_question("s", {"type": "score", "instructions": "x", "criteria": levels, **more})


def noul(**more: Any) -> Question:
    return parse_question("n", {"type": "noul", "instructions": "x", **more})


def decode(
    rows: list[list[float]],
    questions: list[Question],
    calibration: Calibration = PLAIN,
    *,
    actions: list[list[float]] | None = None,
    language: str | None = None,
) -> list[Any]:
    width = max(len(row) for row in rows)
    options = np.full((len(rows), width), -1e4, np.float32)
    for index, row in enumerate(rows):
        options[index, : len(row)] = row
    acts = np.asarray(actions or [[0.0, 0.0]] * len(rows), np.float32)
    return decode_answers(Logits(options, acts), questions, calibration, language)


def test_a_choice():
    (answer,) = decode([[0.0, math.log(3), 0.0]], [choice({"a": "x", 7: "y", "b": None})])
    assert answer == {
        "type": "choice",
        "choice": 7,
        "probabilities": {"a": 0.2, 7: 0.6, "b": 0.2},
        "confidence": pytest.approx(0.1350, abs=1e-4),
        "answer_confidence": 0.6,
        "action": {"act_probability": 0.5},
    }
    assert list(answer) == [
        "type",
        "choice",
        "probabilities",
        "confidence",
        "answer_confidence",
        "action",
    ]


def test_a_score_is_the_expected_level():
    (answer,) = decode([[0.0, 0.0, math.log(2)]], [score(["low", 5, {"a": 1}])])
    assert answer["score"] == 1.25
    assert answer["legend"] == {"0": "low", "1": "5", "2": '{"a": 1}'}
    assert answer["probabilities"] == {"0": 0.25, "1": 0.25, "2": 0.5}
    assert answer["answer_confidence"] == 0.5


def test_a_yes_no_answer_is_the_probability_of_yes():
    no, yes = decode([[math.log(3), 0.0], [0.0, math.log(3)]], [noul(), noul()])
    assert (no["noul"], no["confidence"], no["answer_confidence"]) == (0.25, 0.75, 0.75)
    assert (yes["noul"], yes["confidence"], yes["answer_confidence"]) == (0.75, 0.75, 0.75)
    assert "probabilities" not in yes


def test_the_callers_own_label_comes_back():
    label = "".join(["bil", "ling"])
    (answer,) = decode([[1.0]], [choice([label])])
    assert answer["choice"] is label
    assert answer["confidence"] == answer["answer_confidence"] == 1.0


def test_the_first_of_equals_is_chosen():
    (answer,) = decode([[2.0, 2.0]], [choice(["a", "b"])])
    assert answer["choice"] == "a"


@examples(40)
@given(st.data())
def test_an_order_of_options_permutes_the_answer_back(data: st.DataObject):
    count = data.draw(st.integers(1, 8))
    values = data.draw(st.lists(st.floats(-9, 9, width=32), min_size=count, max_size=count))
    order = data.draw(st.permutations(range(count)))
    labels = [f"o{index}" for index in range(count)]
    kind = data.draw(st.sampled_from([choice, score]))
    (straight,) = decode([values], [kind(labels)])
    (turned,) = decode([[values[index] for index in order]], [kind(labels, option_order=order)])
    assert turned["probabilities"] == pytest.approx(straight["probabilities"], abs=1e-4)
    assert list(turned["probabilities"]) == list(straight["probabilities"])
    if kind is score:
        assert turned["score"] == pytest.approx(straight["score"], abs=1e-3)


def test_a_yes_no_question_may_be_turned_too():
    straight, turned = decode([[1.0, 2.0], [2.0, 1.0]], [noul(), noul(option_order=[1, 0])])
    assert straight == turned


@examples(40)
@given(
    st.lists(st.lists(st.floats(-50, 50, width=32), min_size=2, max_size=6), min_size=1, max_size=5)
)
def test_rows_are_decoded_as_alone(rows: list[list[float]]):
    questions = [choice([f"o{index}" for index in range(len(row))]) for row in rows]
    together = decode(rows, questions)
    assert together == [
        decode([row], [question])[0] for row, question in zip(rows, questions, strict=True)
    ]


@examples(40)
@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=2, max_size=12))
def test_every_number_of_an_answer_is_json_of_four_digits(values: list[float]):
    answers = decode(
        [values, values, values[:2]],
        [choice([f"o{i}" for i in range(len(values))]), score([str(i) for i in values]), noul()],
        actions=[[1.0, 2.0]] * 3,
    )
    assert json.loads(json.dumps(answers, allow_nan=False)) == answers
    for answer in answers:
        for key in ("confidence", "answer_confidence"):
            assert type(answer[key]) is float
            assert 0.0 <= answer[key] <= 1.0
            assert round(answer[key], 4) == answer[key]
    assert sum(answers[0]["probabilities"].values()) == pytest.approx(1.0, abs=1e-3)
    assert 0.0 <= answers[1]["score"] <= len(values) - 1


def test_temperatures_are_looked_up_per_row():
    calibration = Calibration(Temperatures((2.0, 1.0, 0.5), {"choice:3-5": 5.0}))
    two, three, yes = decode(
        [[1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0]],
        [choice(["a", "b"]), choice(["a", "b", "c"]), noul()],
        calibration,
    )
    assert two["answer_confidence"] == rounded(1 / (1 + math.exp(-0.5)))
    assert three["answer_confidence"] == rounded(1 / (1 + 2 * math.exp(-0.2)))
    assert yes["noul"] == rounded(1 / (1 + math.exp(-2)))


def test_a_language_picks_its_temperatures_and_leaves_the_bins():
    calibration = Calibration(
        by_language={"de": Temperatures((1.0, 1.0, 5.0))}, binning={"noul:2": (0.1, 0.2)}
    )
    (plain,) = decode([[0.0, 1.0]], [noul()], calibration)
    (german,) = decode([[0.0, 1.0]], [noul()], calibration, language="de-AT")
    assert plain["answer_confidence"] == 0.2
    assert german["answer_confidence"] == german["noul"] == rounded(1 / (1 + math.exp(-0.2)))
    assert plain["noul"] != german["noul"]


def test_bins_change_the_answer_confidence_only():
    calibration = Calibration(binning={"choice:2": (0.3, 0.123456)})
    (answer,) = decode([[1.0, 0.0]], [choice(["a", "b"])], calibration)
    (plain,) = decode([[1.0, 0.0]], [choice(["a", "b"])])
    assert answer == {**plain, "answer_confidence": 0.1235}


def test_the_act_head_is_the_first_of_its_outputs():
    first, second = decode(
        [[0.0, 0.0]] * 2, [noul(), noul()], actions=[[0.0, math.log(3)], [math.log(3), 0.0]]
    )
    assert first["action"] == {"act_probability": 0.25}
    assert second["action"] == {"act_probability": 0.75}
    (single,) = decode([[0.0, 0.0]], [noul()], actions=[[-4.0]])
    assert single["action"] == {"act_probability": 1.0}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", ["option", "action"])
def test_a_number_that_is_none_is_an_error_that_names_the_question(value: float, place: str):
    rows, acts = [[0.0, 1.0], [0.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]]
    (rows if place == "option" else acts)[1][0] = value
    with pytest.raises(NonFiniteOutputError, match="'n'"):
        decode(rows, [choice(["a", "b"]), noul()], actions=acts)


def test_what_a_masked_slot_holds_is_no_concern():
    options = np.asarray([[1.0, 0.0, math.nan]], np.float32)
    logits = Logits(options, np.zeros((1, 2), np.float32))
    (answer,) = decode_answers(logits, [noul()], PLAIN)
    assert answer == decode([[1.0, 0.0]], [noul()])[0]


@pytest.mark.parametrize(
    ("value", "text"),
    [(np.float32(0.1), "0.1"), (0.00005, "0.0001"), (1, "1.0"), (2 / 3, "0.6667")],
)
def test_rounding(value: Any, text: str):
    assert repr(rounded(value)) == text


def usage(**changes: Any) -> QuestionUsage:
    base: Any = {
        "tokens": 30,
        "head_tokens": 20,
        "head_tokens_dropped": 0,
        "state_tokens": 10,
        "state_tokens_kept": 10,
        "state_tokens_dropped": 0,
        "state_cut": None,
        "options": 2,
        "options_distinct": 2,
        "tokens_per_option": None,
    }
    return {**base, **changes}


def test_usage_sums_rows_and_names_what_was_cut():
    made = state_usage(
        {
            "a": usage(),
            2: usage(tokens=50, state_tokens_dropped=3, state_cut="end"),
            "c": usage(state_tokens_dropped=5, options_distinct=1, tokens_per_option=4),
        }
    )
    assert made["input_tokens"] == 110
    assert made["output_tokens"] == 0
    assert made["state_tokens"] == 10
    assert made["state_tokens_dropped"] == 5
    assert made["truncated"] is True
    assert made["truncated_questions"] == [2, "c"]
    assert made["options"] == {"c": {"total": 2, "distinct": 1, "tokens_per_option": 4}}
    assert made["questions"].keys() == {"a", 2, "c"}


def test_usage_of_what_was_not_cut():
    made = state_usage({"a": usage()})
    assert made["truncated"] is False
    assert made["truncated_questions"] == []
    assert "options" not in made


def test_a_prediction_keeps_the_order_of_the_questions():
    answers = decode([[0.0, 1.0]] * 3, [noul()] * 3)
    made = prediction((key, answer, usage()) for key, answer in zip("bca", answers, strict=True))
    assert list(made["answers"]) == ["b", "c", "a"]
    assert made["model"] == empty_prediction()["model"]


def test_nothing_asked_is_an_empty_prediction():
    assert empty_prediction()["answers"] == {}
    assert empty_prediction() is not empty_prediction()
