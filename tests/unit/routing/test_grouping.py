"""Which requests share a forward pass."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.hooks.context import PredictContext
from drut.routing.grouping import freeze, group_contexts
from property_settings import examples

SAME = [
    ({"a": {"b": [1, "x"]}}, {"a": {"b": [1, "x"]}}),
    ([float("nan")], [float("nan")]),
    ({}, {}),
]
DIFFERENT = [
    ({1: "x"}, {"1": "x"}),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ({"a": 1}, {"a": True}),
    ({"a": 1}, {"a": 1.0}),
    ({"a": 0.0}, {"a": -0.0}),
    ({"a": [1]}, {"a": (1,)}),
    ({"a": None}, {"a": "None"}),
    ({"a": []}, {"a": {}}),
    ([["a"], ["b"]], [["a", "b"]]),
    ({"a": object()}, {"a": object()}),
    (b"a", "a"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_equal_questions_share(one: Any, other: Any) -> None:
    assert freeze(one) == freeze(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_order_and_types_count(one: Any, other: Any) -> None:
    assert freeze(one) != freeze(other)


def test_an_odd_object_is_the_same_only_as_itself() -> None:
    odd = object()
    assert freeze({"a": odd}) == freeze({"a": odd})


def test_a_circle_ends() -> None:
    circle: list[Any] = []
    circle.append(circle)
    assert freeze(circle) == freeze(circle)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=8,
)


@examples(150)
@given(one=json_values, other=json_values)
def test_keys_are_equal_exactly_where_the_texts_are(one: Any, other: Any) -> None:
    assert (freeze(one) == freeze(other)) == (repr(one) == repr(other))


def context(questions: Any, max_len: Any = None, results: Any = None) -> PredictContext:
    return PredictContext(["s"], questions, max_len=max_len, results=results)


def test_groups_keep_the_order_and_leave_out_what_is_answered() -> None:
    contexts = [
        context({"a": 1}),
        context({"b": 1}),
        context({"a": 1}, results=[]),
        context({"a": 1}),
        context({"a": 1}, max_len=9),
        context({"a": 1}, max_len="9"),
    ]
    groups = group_contexts(contexts, lambda ctx: None)
    places = [[contexts.index(ctx) for ctx in group] for group in groups]
    assert places == [[0, 3], [1], [4], [5]]


def test_the_extra_key_splits() -> None:
    contexts = [context({"a": 1}) for _ in range(3)]
    groups = group_contexts(contexts, lambda ctx: contexts.index(ctx) % 2)
    assert [len(group) for group in groups] == [2, 1]
