from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from drut.encoding.layout import parallel_layout
from property_settings import examples

sequences = st.tuples(
    st.integers(1, 6),  # tokens before the first option
    st.lists(st.integers(1, 9), max_size=6),  # length of every option, its marker included
    st.integers(0, 12),  # tokens behind the head
)


def lay(before: int, spans: list[int], after: int) -> tuple[list[int], int, int]:
    """Markers, head length and total length of a sequence."""
    markers = [before + sum(spans[:index]) for index in range(len(spans))]
    head = before + sum(spans) + 1
    return markers, head, head + after


def test_the_layout_is_the_one_expected():
    # [CLS] p [SEP] [M] a b [M] c [SEP] s [SEP]
    made = parallel_layout([3, 6], head_length=9, length=11)
    assert made.position_ids.tolist() == [0, 1, 2, 3, 4, 5, 3, 4, 6, 7, 8]
    assert made.option_ids.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 0, 0, 0]


def test_without_options_positions_just_count():
    made = parallel_layout([], head_length=3, length=5)
    assert made.position_ids.tolist() == [0, 1, 2, 3, 4]
    assert made.option_ids.tolist() == [0] * 5


@examples(40)
@given(sequences)
def test_every_option_starts_at_one_position_and_the_rest_follows_the_longest(
    case: tuple[int, list[int], int],
):
    before, spans, _ = case
    markers, head, length = lay(*case)
    made = parallel_layout(markers, head, length)
    assert made.position_ids.dtype == made.option_ids.dtype == np.int64
    assert len(made.position_ids) == len(made.option_ids) == length
    assert made.position_ids[:before].tolist() == list(range(before))
    for index, (start, span) in enumerate(zip(markers, spans, strict=True)):
        inside = slice(start, start + span)
        assert made.position_ids[inside].tolist() == list(range(before, before + span))
        assert set(made.option_ids[inside].tolist()) == {index + 1}
    tail = made.position_ids[head - 1 :].tolist()
    assert tail[0] == before + max(spans, default=0)
    assert all(second == first + 1 for first, second in pairwise(tail))
    assert not made.option_ids[:before].any()
    assert not made.option_ids[head - 1 :].any()


@examples(40)
@given(sequences)
def test_positions_stay_below_the_length(case: tuple[int, list[int], int]):
    markers, head, length = lay(*case)
    assert parallel_layout(markers, head, length).position_ids.max() < length


@examples(25)
@given(st.integers(1, 4), st.lists(st.integers(1, 9), min_size=2, max_size=5))
def test_the_order_of_the_options_changes_no_option_and_not_the_tail(before: int, spans: list[int]):
    markers, head, length = lay(before, spans, 4)
    turned, _, _ = lay(before, spans[::-1], 4)
    first, second = (parallel_layout(each, head, length) for each in (markers, turned))
    assert first.position_ids[head - 1 :].tolist() == second.position_ids[head - 1 :].tolist()
