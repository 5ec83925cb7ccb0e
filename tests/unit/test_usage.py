from collections import UserDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.errors import InvalidTypeError
from drut.usage import total_usage
from property_settings import examples

tokens = st.integers(0, 10**6)


@examples(25)
@given(st.lists(st.tuples(tokens, tokens), max_size=6))
def test_totals_are_the_sums(pairs: list[tuple[int, int]]):
    made = [{"usage": {"input_tokens": i, "output_tokens": o, "x": 1}} for i, o in pairs]
    assert total_usage(made) == {
        "input_tokens": sum(i for i, _ in pairs),
        "output_tokens": sum(o for _, o in pairs),
    }


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"usage": None},
        {"usage": {}},
        {"usage": {"input_tokens": None}},
        {"usage": {"input_tokens": "5"}},
        {"usage": {"input_tokens": True}},
        {"usage": {"input_tokens": 1.5}},
        UserDict(),
    ],
    ids=repr,
)
def test_a_result_without_a_count_counts_as_nothing(result: Any):
    assert total_usage([result]) == {"input_tokens": 0, "output_tokens": 0}


@pytest.mark.parametrize("result", [None, "text", 5, [1], ("a", 1)])
def test_a_result_that_is_no_dict_is_named_by_its_place(result: Any):
    with pytest.raises(InvalidTypeError, match="result 1 must be a dict"):
        total_usage([{}, result])


@pytest.mark.parametrize("usage", ["text", [1], 5])
def test_usage_that_is_no_dict_is_named_by_its_place(usage: Any):
    with pytest.raises(InvalidTypeError, match="usage of result 0"):
        total_usage([{"usage": usage}])


@pytest.mark.parametrize("results", [None, "text", b"x", {"usage": {}}, 5, iter([])])
def test_results_are_a_list(results: Any):
    with pytest.raises(InvalidTypeError, match="results must be a list"):
        total_usage(results)
