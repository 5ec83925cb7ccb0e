import json
import math
import unicodedata
from collections import OrderedDict
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.errors import InvalidRequestError, InvalidTypeError
from drut.questions import (
    NOUL_TEXTS,
    Question,
    dump_json,
    parse_question,
    parse_questions,
    shorten,
)
from property_settings import examples

HUGE = 10**400  # valid JSON, but no float
ENORMOUS = 10**5000  # more digits than Python turns into text


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def circular() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def choice(criteria: Any, **more: Any) -> Question:
    return parse_question(
        "q", {"type": "choice", "instructions": "Which?", "criteria": criteria, **more}
    )


def score(criteria: Any, **more: Any) -> Question:
    return parse_question(
        "q", {"type": "score", "instructions": "How much?", "criteria": criteria, **more}
    )


def noul(**more: Any) -> Question:
    return parse_question("q", {"type": "noul", "instructions": "Is it?", **more})


def refused(call: Any, *mentions: str, error: type[Exception] = InvalidRequestError) -> str:
    """Check that a call is refused with a message that mentions something; return the message."""
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    assert all(mention in message for mention in mentions), message
    return message


_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([HUGE, -HUGE, 2**53, 2**53 + 1]),
    st.builds(lambda: ENORMOUS),  # hypothesis itself cannot show it
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["", " ", "\ud83d", "true", "false", "True", "1", "1.0", "[MASK]", "é"]),
)
_odd = st.one_of(
    st.binary(max_size=4),
    st.builds(object),
    st.builds(np.int64, st.integers(-5, 5)),
    st.builds(np.float32, st.floats(width=32)),
    st.tuples(_scalars),
    st.builds(lambda: {1, 2}),
    st.builds(nested, st.sampled_from([2, 3000])),
    st.builds(circular),
    st.builds(lambda: {(1, 2): "x"}),
    st.builds(lambda: MappingProxyType({"a": "b"})),
)
_anything = st.recursive(
    _scalars | _odd,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_scalars, inner, max_size=4),
    max_leaves=8,
)
_definition = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["choice", "score", "noul", "Choice"]) | _anything,
        "instructions": st.text(max_size=8) | _anything,
        "criteria": st.lists(_scalars, max_size=4)
        | st.dictionaries(_scalars, _anything, max_size=4)
        | st.dictionaries(st.sampled_from(["true", "False", True, "yes"]), _anything, max_size=3)
        | _anything,
        "labels": st.fixed_dictionaries({"true": _scalars, "false": _scalars}) | _anything,
        "option_order": st.permutations([0, 1]) | st.lists(st.integers(-1, 4)) | _anything,
        "instruction": _anything,
    },
)
_questions = st.dictionaries(_scalars, _definition | _anything, max_size=3) | _anything


@examples(100)
@given(_questions)
def test_whatever_is_passed_the_only_error_is_an_invalid_request(questions: Any):
    try:
        parsed = parse_questions(questions)
    except InvalidRequestError:
        return
    for question in parsed:
        assert sorted(question.option_order) == list(range(len(question.options)))
        assert len(question.slot_texts) == len(question.options) >= 1
        assert all(isinstance(text, str) for text in (question.prompt, *question.slot_texts))


_labels = st.one_of(
    st.booleans(),
    st.integers(-3, 3),
    st.integers(2**53, 2**53 + 3),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, 1.0, 2.0]),
    st.sampled_from(["a", "a ", " a", "1", "1.0", "true", "True", "false", "é", "e\u0301", ""]),
    st.text(max_size=3),
)


@examples(100)
@given(st.lists(_labels, min_size=1, max_size=5))
def test_options_that_pass_keep_apart_in_json(labels: list[Any]):
    try:
        question = choice(labels)
    except InvalidRequestError:
        return
    answer = json.loads(json.dumps({option.label: 0.5 for option in question.options}))
    assert len(answer) == len(labels)


@examples(40)
@given(st.lists(st.integers(), min_size=1, max_size=5, unique=True))
def test_different_integers_are_different_labels(labels: list[int]):
    assert [option.label for option in choice(labels).options] == labels


@pytest.mark.parametrize("questions", [None, [], "x", 5, [("q", {})], {"q"}])
def test_questions_that_are_no_mapping_are_a_type_error(questions: Any):
    message = refused(lambda: parse_questions(questions), error=InvalidTypeError)
    assert type(questions).__name__ in message


def test_questions_keep_their_order_and_ids():
    definition = {"type": "noul", "instructions": "x"}
    parsed = parse_questions({"b": definition, 3: definition, "a": definition})
    assert [question.id for question in parsed] == ["b", 3, "a"]


def test_any_mapping_is_accepted():
    definition = MappingProxyType({"type": "noul", "instructions": "x"})
    assert len(parse_questions(OrderedDict(q=definition))) == 1
    assert parse_questions({}) == []


def test_the_first_fault_wins():
    bad_type, bad_text = {"type": "nope", "instructions": "x"}, {"type": "noul"}
    good = {"type": "noul", "instructions": "x"}
    refused(lambda: parse_questions({"ok": good, "one": bad_type, "two": bad_text}), "'one'")
    refused(lambda: parse_questions({"ok": good, "two": bad_text, "one": bad_type}), "'two'")


@pytest.mark.parametrize("question_id", [None, 1.5, ("a",), b"a", "", "  ", frozenset()])
def test_an_id_is_a_text_or_an_integer(question_id: Any):
    refused(lambda: parse_questions({question_id: {"type": "noul", "instructions": "x"}}), "id")


@pytest.mark.parametrize("question_id", ["q", 0, -7, True, 2**70])
def test_text_and_integer_ids_pass(question_id: Any):
    assert parse_question(question_id, {"type": "noul", "instructions": "x"}).id == question_id


def test_an_id_of_many_digits_is_refused_or_kept_but_never_a_bare_error():
    with suppress(InvalidRequestError):
        parse_question(ENORMOUS, {"type": "noul", "instructions": "x"})
    refused(lambda: parse_question(ENORMOUS, {"type": "nope", "instructions": "x"}))


@pytest.mark.parametrize("definition", [None, "noul", ["noul"], 3])
def test_a_definition_is_a_mapping(definition: Any):
    refused(lambda: parse_question("refund", definition), "'refund'", type(definition).__name__)


@pytest.mark.parametrize("kind", [None, "", "Choice", "noul ", "bool", 1, ["choice"], {}])
def test_the_type_is_one_of_three(kind: Any):
    definition = {"type": kind, "instructions": "x"}
    refused(lambda: parse_question("q", definition), "'choice'", "'noul'", "'score'", "'q'")


def test_a_missing_type_is_named():
    refused(lambda: parse_question("q", {"instructions": "x"}), "'type'")


@pytest.mark.parametrize(
    ("kind", "meant"), [("Choice", "choice"), ("scores", "score"), ("null", "noul")]
)
def test_a_misspelt_type_is_answered_with_the_right_one(kind: str, meant: str):
    refused(lambda: parse_question("q", {"type": kind, "instructions": "x"}), f"mean '{meant}'")


def test_an_unknown_key_is_refused_with_the_key_that_was_meant():
    definition = {"type": "noul", "instruction": "x", "instructions": "x"}
    refused(lambda: parse_question("q", definition), "'instruction'", "mean 'instructions'")


def test_unknown_keys_can_be_ignored():
    definition = {"type": "noul", "instructions": "x", "note": 1}
    assert parse_question("q", definition, unknown_keys="ignore").id == "q"
    refused(lambda: parse_question("q", definition), "'note'")


@pytest.mark.parametrize(
    ("instructions", "mention"),
    [
        (None, "None"),
        ("", "empty"),
        (" \n", "empty"),
        ([], "empty"),
        ({}, "empty"),
        (("a",), "tuple"),
        (b"a", "bytes"),
        ({1}, "set"),
    ],
)
def test_instructions_that_say_nothing_are_refused(instructions: Any, mention: str):
    definition = {"type": "noul", "instructions": instructions}
    refused(lambda: parse_question("q", definition), "'q'", "'instructions'", mention)


def test_missing_instructions_are_named():
    refused(lambda: parse_question("q", {"type": "noul"}), "lacks 'instructions'")


@pytest.mark.parametrize(
    ("instructions", "text"),
    [
        ("Is it?", "Is it?"),
        (" spaces stay ", " spaces stay "),
        ({"ask": "é", "n": 1}, '{"ask": "é", "n": 1}'),
        (["a", None, True], '["a", null, true]'),
        (0, "0"),
        (False, "false"),
        (1.5, "1.5"),
    ],
)
def test_the_prompt_is_the_type_and_the_instructions(instructions: Any, text: str):
    question = parse_question("q", {"type": "noul", "instructions": instructions})
    assert question.prompt == f"noul question: {text}"


@pytest.mark.parametrize(
    "instructions",
    [{"a": object()}, {("a",): 1}, [b"x"], ENORMOUS, nested(3000), circular()],
    ids=lambda value: type(value).__name__,
)
def test_instructions_without_a_json_form_are_a_type_error(instructions: Any):
    definition = {"type": "noul", "instructions": instructions}
    refused(lambda: parse_question("q", definition), error=InvalidTypeError)


def test_a_dict_of_descriptions_makes_option_texts():
    question = choice({"billing": "money", "other": None, "tech": "", 3: {"é": 1}})
    assert [option.text for option in question.options] == [
        "billing: money",
        "other",
        "tech",
        '3: {"é": 1}',
    ]
    assert [option.label for option in question.options] == ["billing", "other", "tech", 3]
    assert question.qtype == 0


@pytest.mark.parametrize(
    ("description", "text"),
    [
        (0, "a: 0"),
        (False, "a: false"),
        ([1, "é"], 'a: [1, "é"]'),
        ({1}, 'a: "{1}"'),
        (float("nan"), "a: NaN"),
    ],
)
def test_descriptions_of_other_types_are_written_as_json(description: Any, text: str):
    assert choice({"a": description}).options[0].text == text


@pytest.mark.parametrize(
    "description", [{(1,): 2}, circular(), nested(3000), ENORMOUS], ids=lambda v: type(v).__name__
)
@pytest.mark.parametrize("kind", ["choice", "score", "noul"])
def test_a_description_without_a_json_form_is_an_invalid_request(kind: str, description: Any):
    criteria = {
        "choice": {"a": description},
        "score": [description],
        "noul": {"true": description},
    }[kind]
    definition = {"type": kind, "instructions": "x", "criteria": criteria}
    refused(lambda: parse_question("q", definition))


def test_a_list_of_labels_is_its_own_description():
    question = choice(["a", 1, 2.5])
    assert [(option.label, option.text) for option in question.options] == [
        ("a", "a"),
        (1, "1"),
        (2.5, "2.5"),
    ]


@pytest.mark.parametrize("criteria", [None, "a", ("a", "b"), 3, {1, 2}])
def test_choice_criteria_are_a_dict_or_a_list(criteria: Any):
    refused(lambda: choice(criteria), "'q'", "'criteria'", type(criteria).__name__)


@pytest.mark.parametrize("criteria", [[], {}])
def test_a_choice_needs_an_option(criteria: Any):
    refused(lambda: choice(criteria), "at least one option")


@pytest.mark.parametrize(
    "criteria", [[None], ["a", None], {None: "x"}, [["x"]], [{}], [b"x"], {("a",): 1}]
)
def test_a_label_is_a_text_or_a_number(criteria: Any):
    refused(lambda: choice(criteria), f"option {len(criteria) - 1}")


@pytest.mark.parametrize("label", [math.nan, math.inf, -math.inf])
def test_a_label_that_json_cannot_carry_is_refused(label: float):
    refused(lambda: choice(["a", label]), "JSON")


@pytest.mark.parametrize(
    "criteria",
    [
        ["a", "a"],
        [1, "1"],
        [1, 1.0],
        [True, 1],
        [True, "true"],
        [False, "false"],
        [1.5, "1.5"],
        [1.0, "1.0"],
        {"a": 1, "a ": 2},
        ["a", " a"],
        ["é", unicodedata.normalize("NFD", "é")],
    ],
    ids=repr,
)
def test_labels_that_would_fall_together_are_refused(criteria: Any):
    refused(lambda: choice(["first", *criteria]), "1 and 2", "same")


@pytest.mark.parametrize(
    "criteria",
    [
        [1, 2],
        [1, 1.5],
        ["a", "A"],
        ["1", 2],
        [2**53, 2**53 + 1],
        [1, "1.0"],
        [HUGE, HUGE + 1],
        [""],
        [np.str_("a")],
    ],
    ids=lambda criteria: repr(criteria)[:20],
)
def test_labels_that_stay_apart_pass(criteria: list[Any]):
    assert [option.label for option in choice(criteria).options] == criteria


def test_a_label_of_many_digits_is_an_invalid_request():
    refused(lambda: choice([ENORMOUS]))


def test_labels_are_handed_back_as_the_callers_own_objects():
    label = "".join(["bil", "ling"])
    assert choice({label: "money"}).options[0].label is label


@pytest.mark.parametrize("kind", ["choice", "score"])
@pytest.mark.parametrize("labels", [None, {"true": "a", "false": "b"}])
def test_labels_belong_to_noul_only(kind: str, labels: Any):
    definition = {"type": kind, "instructions": "x", "criteria": ["a"], "labels": labels}
    refused(lambda: parse_question("q", definition), "'labels'", kind)


def test_levels_are_numbered_from_zero():
    question = score(["minor", 2, {"a": 1}])
    assert [option.text for option in question.options] == [
        "level 0: minor",
        "level 1: 2",
        'level 2: {"a": 1}',
    ]
    assert [option.legend for option in question.options] == ["minor", "2", '{"a": 1}']
    assert question.qtype == 1


def test_levels_may_have_equal_texts():
    assert len(score(["same", "same"]).options) == 2


@pytest.mark.parametrize("criteria", [None, "a", ("a",), {"0": "a"}, 5])
def test_score_criteria_are_a_list(criteria: Any):
    refused(lambda: score(criteria), "'q'", "list", type(criteria).__name__)


def test_a_score_needs_a_level_and_no_level_is_none():
    refused(lambda: score([]), "at least one level")
    refused(lambda: score(["a", None]), "level 1")


@pytest.mark.parametrize("more", [{}, {"criteria": None}, {"criteria": {}}, {"labels": None}])
def test_a_yes_no_question_needs_no_criteria(more: dict[str, Any]):
    question = noul(**more)
    assert [option.label for option in question.options] == ["false", "true"]
    assert [option.text for option in question.options] == [
        f"false: {NOUL_TEXTS[0]}",
        f"true: {NOUL_TEXTS[1]}",
    ]
    assert question.qtype == 2


@pytest.mark.parametrize(
    "criteria",
    [
        {"true": "hot", "false": "cold"},
        {"True": "hot", "FALSE": "cold"},
        {True: "hot", False: "cold"},
        {"true": "warm", "TRUE": "hot", "false": "cold"},
    ],
    ids=repr,
)
def test_criteria_of_a_noul_describe_true_and_false_in_any_case(criteria: Any):
    texts = [option.text for option in noul(criteria=criteria).options]
    assert texts == ["false: cold", "true: hot"]


def test_one_side_alone_may_be_described():
    texts = [option.text for option in noul(criteria={"true": "hot", "false": ""}).options]
    assert texts == [f"false: {NOUL_TEXTS[0]}", "true: hot"]


@pytest.mark.parametrize("criteria", [0, "", [], ["no", "yes"], "x"])
def test_noul_criteria_are_a_dict(criteria: Any):
    refused(lambda: noul(criteria=criteria), "'q'", type(criteria).__name__)


def test_other_keys_in_noul_criteria_are_refused():
    refused(lambda: noul(criteria={"Yes": "a", "no": "b", "true": "c"}), "'no', 'yes'", "labels")


def test_labels_rename_the_answers_in_the_texts():
    question = noul(labels={"true": " hot ", "false": "cold"}, criteria={"true": "warm"})
    assert [option.text for option in question.options] == [
        f"cold: {NOUL_TEXTS[0]}",
        "hot: warm",
    ]
    assert [option.label for option in question.options] == ["false", "true"]


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"true": "a"},
        {"true": "a", "false": "b", "x": "c"},
        {"true": "a", "false": "a "},
        {"true": "a", "false": " "},
        {"true": "a", "false": 1},
        {True: "a", False: "b"},
        ["a", "b"],
        "ab",
    ],
    ids=repr,
)
def test_labels_are_two_different_texts(labels: Any):
    refused(lambda: noul(labels=labels), "labels", "'q'")


def test_slots_show_the_options_in_the_given_order():
    question = choice(["a", "b", "c"], option_order=[2, 0, 1])
    assert question.slot_texts == ("c", "a", "b")
    assert [option.text for option in question.options] == ["a", "b", "c"]
    assert choice(["a", "b"], option_order=(1, 0)).slot_texts == ("b", "a")
    assert noul(option_order=[1, 0]).slot_texts[0].startswith("true")


@pytest.mark.parametrize(
    "order",
    [
        None,
        [],
        [0],
        [0, 0],
        [1, 2],
        [0, 1, 2],
        [0, True],
        [0, 1.0],
        ["0", "1"],
        [np.int64(0), np.int64(1)],
        {0: 1, 1: 0},
        "01",
        [0, ENORMOUS],
    ],
    ids=lambda order: type(order).__name__,
)
def test_an_order_lists_every_index_once(order: Any):
    refused(lambda: choice(["a", "b"], option_order=order), "'q'", "'option_order'", "2")


@examples(25)
@given(st.integers(1, 8).flatmap(lambda n: st.permutations(range(n))))
def test_every_permutation_is_an_order(order: list[int]):
    question = choice([f"o{index}" for index in range(len(order))], option_order=list(order))
    assert question.slot_texts == tuple(f"o{index}" for index in order)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None]}, '{"b": 1, "a": [true, null]}'),
        ("é", '"é"'),
        (float("nan"), "NaN"),
        ({1: 2}, '{"1": 2}'),
    ],
)
def test_json_is_written_as_the_model_has_read_it(value: Any, text: str):
    assert dump_json(value) == text


@pytest.mark.parametrize(
    "value",
    [object(), {"a": {1}}, b"x", {("a",): 1}, nested(3000), circular(), [ENORMOUS], np.float32(1)],
    ids=lambda value: type(value).__name__,
)
def test_what_has_no_json_form_is_a_type_error(value: Any):
    refused(lambda: dump_json(value), type(value).__name__, error=InvalidTypeError)


@pytest.mark.parametrize(
    "value",
    ["x" * 500, list(range(500)), nested(3000), ENORMOUS, Unprintable(), circular()],
    ids=lambda value: type(value).__name__,
)
def test_any_value_can_be_shown_in_a_message(value: Any):
    assert 0 < len(shorten(value)) <= 80


def test_short_values_are_shown_whole():
    assert shorten("abc") == "'abc'"
    assert shorten("x" * 500, limit=10).endswith("...")
