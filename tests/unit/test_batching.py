from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.batching import PassPolicy, collate, plan_batches
from drut.schema import QuestionUsage
from drut.tensors import EncodedRow
from property_settings import examples

USAGE: QuestionUsage = {
    "tokens": 0,
    "head_tokens": 0,
    "head_tokens_dropped": 0,
    "state_tokens": 0,
    "state_tokens_kept": 0,
    "state_tokens_dropped": 0,
    "state_cut": None,
    "options": 0,
    "options_distinct": 0,
    "tokens_per_option": None,
}

lengths_and_budget = st.tuples(
    st.lists(st.integers(1, 60), max_size=40), st.integers(min_value=1, max_value=400)
)


def row(
    ids: list[int], markers: list[int], qtype: int = 0, *, parallel: bool = False
) -> EncodedRow:
    return EncodedRow(
        np.asarray(ids, np.int64),
        np.asarray(markers, np.int64),
        qtype,
        USAGE,
        np.arange(len(ids), dtype=np.int64) if parallel else None,
        np.full(len(ids), 7, np.int64) if parallel else None,
    )


@examples(40)
@given(lengths_and_budget)
def test_every_row_is_in_exactly_one_group(case: tuple[list[int], int]):
    lengths, budget = case
    groups = list(plan_batches(lengths, PassPolicy(max_tokens=budget)))
    assert sorted(index for group in groups for index in group) == list(range(len(lengths)))
    assert all(groups)


@examples(40)
@given(lengths_and_budget)
def test_a_group_fits_the_budget_or_is_a_single_long_row(case: tuple[list[int], int]):
    lengths, budget = case
    for group in plan_batches(lengths, PassPolicy(max_tokens=budget)):
        padded = len(group) * max(lengths[index] for index in group)
        assert padded <= budget or len(group) == 1


@examples(40)
@given(lengths_and_budget)
def test_no_group_could_have_taken_the_next_row(case: tuple[list[int], int]):
    lengths, budget = case
    groups = list(plan_batches(lengths, PassPolicy(max_tokens=budget)))
    for group, after in pairwise(groups):
        shortest = min(lengths[index] for index in after)
        assert max(lengths[index] for index in group) <= shortest
        assert (len(group) + 1) * shortest > budget


@examples(40)
@given(lengths_and_budget)
def test_rows_of_a_group_keep_their_order(case: tuple[list[int], int]):
    lengths, budget = case
    for group in plan_batches(lengths, PassPolicy(max_tokens=budget)):
        assert group == sorted(group)


def test_the_plan_is_the_one_expected():
    assert list(plan_batches([4, 1, 2, 9, 1], PassPolicy(max_tokens=6))) == [[1, 2, 4], [0], [3]]
    assert list(plan_batches([], PassPolicy(max_tokens=6))) == []
    assert list(plan_batches([5, 5, 5], PassPolicy(max_tokens=15))) == [[0, 1, 2]]
    assert list(plan_batches([5, 5, 5], PassPolicy(max_tokens=14))) == [[0, 1], [2]]
    assert list(plan_batches([500, 500], PassPolicy(max_tokens=1))) == [[0], [1]]


def test_one_giant_state_does_not_inflate_many_small_ones():
    lengths = [10] * 20_000 + [5000]
    groups = list(plan_batches(lengths, PassPolicy(max_tokens=8192)))
    padded = sum(len(group) * max(lengths[index] for index in group) for group in groups)
    assert padded == sum(lengths)


@st.composite
def plans(draw: st.DrawFn) -> tuple[list[int], PassPolicy]:
    policy = PassPolicy(
        max_tokens=draw(st.integers(1, 400)),
        max_rows=draw(st.one_of(st.none(), st.integers(1, 6))),
        max_padding=draw(st.sampled_from([0.0, 0.1, 0.5, 1.0])),
        bucket_tokens=draw(st.booleans()),
        bucket_rows=draw(st.booleans()),
        spread=draw(st.integers(1, 4)),
    )
    return draw(st.lists(st.integers(1, 60), max_size=40)), policy


@examples(100)
@given(plans())
def test_every_limit_holds_for_every_pass_and_no_row_is_lost(case: tuple[list[int], PassPolicy]):
    lengths, policy = case
    groups = list(plan_batches(lengths, policy))
    assert sorted(index for group in groups for index in group) == list(range(len(lengths)))
    for group in groups:
        longest = max(lengths[index] for index in group)
        padding = sum(longest - lengths[index] for index in group) / (longest * len(group))
        assert padding <= policy.max_padding
        if len(group) > 1:
            area = policy.rows_of(len(group)) * policy.tokens_of(longest)
            assert area <= policy.max_tokens
            assert policy.max_rows is None or len(group) <= policy.max_rows


@examples(40)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=40))
def test_where_neighbours_change_an_answer_every_row_runs_alone(lengths: list[int]):
    groups = list(plan_batches(lengths, PassPolicy(max_rows=1)))
    assert sorted(groups) == [[index] for index in range(len(lengths))]


@examples(60)
@given(st.integers(1, 30), st.integers(1, 4), st.integers(1, 60))
def test_a_call_is_spread_over_the_workers_as_evenly_as_rows_allow(
    rows: int, workers: int, length: int
):
    sizes = [len(group) for group in plan_batches([length] * rows, PassPolicy(spread=workers))]
    assert max(sizes) == -(-rows // workers)
    assert len(sizes) <= workers


@examples(40)
@given(plans())
def test_spreading_takes_no_row_past_the_budget(case: tuple[list[int], PassPolicy]):
    lengths, policy = case
    for group in plan_batches(lengths, policy):
        assert len(group) == 1 or sum(lengths[at] for at in group) <= policy.max_tokens


_rows = st.lists(
    st.tuples(
        st.lists(st.integers(1, 900), min_size=1, max_size=12),
        st.lists(st.integers(0, 11), max_size=5),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=6,
)


@examples(40)
@given(_rows, st.booleans(), st.integers(0, 5))
def test_collating_pads_and_changes_nothing_else(
    cases: list[tuple[list[int], list[int], int]], parallel: bool, pad: int
):
    rows = [row(*case, parallel=parallel) for case in cases]
    batch = collate(rows, pad_id=pad)
    longest = max(len(ids) for ids, _, _ in cases)
    widest = max(1, *(len(markers) for _, markers, _ in cases))
    assert len(batch) == len(rows)
    assert batch.input_ids.shape == batch.attention_mask.shape == (len(rows), longest)
    assert batch.marker_pos.shape == batch.marker_mask.shape == (len(rows), widest)
    assert batch.qtype.tolist() == [qtype for _, _, qtype in cases]
    for index, (ids, markers, _) in enumerate(cases):
        assert batch.input_ids[index].tolist() == ids + [pad] * (longest - len(ids))
        assert batch.attention_mask[index].tolist() == [1] * len(ids) + [0] * (longest - len(ids))
        assert batch.marker_pos[index].tolist() == markers + [0] * (widest - len(markers))
        assert batch.marker_mask[index].tolist() == [at < len(markers) for at in range(widest)]
    assert batch.parallel is parallel
    if parallel:
        assert batch.position_ids is not None
        assert batch.option_ids is not None
        for index, each in enumerate(rows):
            gap = [0] * (longest - len(each.ids))
            assert batch.position_ids[index].tolist() == each.position_ids.tolist() + gap
            assert batch.option_ids[index].tolist() == each.option_ids.tolist() + gap


@pytest.mark.parametrize("parallel", [False, True])
def test_a_batch_has_the_dtypes_of_the_contract(parallel: bool):
    feed = collate([row([1, 2], [0], parallel=parallel)], pad_id=0).feed()
    dtypes = {name: str(array.dtype) for name, array in feed.items()}
    expected = {
        "input_ids": "int64",
        "attention_mask": "int64",
        "marker_pos": "int64",
        "marker_mask": "bool",
        "qtype": "int64",
    }
    if parallel:
        expected |= {"position_ids": "int64", "option_ids": "int64"}
    assert dtypes == expected
    assert all(array.flags.c_contiguous for array in feed.values())


@pytest.mark.parametrize("first", [True, False])
def test_rows_of_both_layouts_are_never_mixed_in_silence(first: bool):
    rows: list[Any] = [row([1], [0], parallel=first), row([2], [0], parallel=not first)]
    with pytest.raises(ValueError, match="layout"):
        collate(rows, pad_id=0)
