import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.encoding.windows import (
    MIN_WINDOW,
    WindowPlan,
    default_window,
    merge_windows,
    plan_windows,
)
from drut.errors import InvalidRequestError
from property_settings import examples

sizes = st.one_of(st.none(), st.integers(-2, 400))


def plan(**given: Any) -> WindowPlan:
    return plan_windows(**{"window": None, "stride": None, "default": 300, "room": 500, **given})


@pytest.mark.parametrize(
    ("max_len", "head", "window"), [(512, 192, 312), (256, 96, 152), (100, 90, 64), (64, 192, 64)]
)
def test_the_default_window_follows_the_budget(max_len: int, head: int, window: int):
    assert default_window(max_len, head) == window >= MIN_WINDOW


@examples(100)
@given(sizes, sizes, st.integers(64, 400), st.one_of(st.none(), st.integers(0, 400)))
def test_a_plan_fits_the_room_and_skips_nothing_or_is_refused(
    window: int | None, stride: int | None, default: int, room: int | None
):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            made = plan_windows(window=window, stride=stride, default=default, room=room)
        except InvalidRequestError:
            assert room == 0 or (stride is not None and stride > 0)
            return
    assert 1 <= made.step <= made.size
    assert room is None or made.size <= room
    assert window is None or window < 1 or made.size <= window


@examples(40)
@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 500))
def test_windows_cover_every_token(size: int, step: int, tokens: int):
    made = WindowPlan(size, min(size, step), 60)
    spans = made.spans(tokens)
    assert spans[0][0] == 0
    assert spans[-1][1] == tokens
    assert {token for start, end in spans for token in range(start, end)} == set(range(tokens))
    assert all(end - start == size for start, end in spans[:-1])
    assert [start for start, _ in spans] == [index * made.step for index in range(len(spans))]
    assert all(end < tokens for _, end in spans[:-1])


@pytest.mark.parametrize(
    ("given", "size", "step"),
    [
        ({}, 300, 150),
        ({"window": 0}, 300, 150),
        ({"window": -1, "stride": -1}, 300, 150),
        ({"window": 101}, 101, 50),
        ({"window": 101, "stride": 101}, 101, 101),
        ({"window": 1}, 1, 1),
        ({"room": None}, 300, 150),
        ({"room": 200}, 200, 100),
    ],
)
def test_window_and_stride(given: dict[str, Any], size: int, step: int):
    made = plan(**given)
    assert (made.size, made.step) == (size, step)


def test_a_window_that_does_not_fit_is_cut_with_a_warning():
    with pytest.warns(RuntimeWarning, match="window=400 .* 350"):
        assert plan(window=400, room=350).size == 350


def test_a_default_window_cut_to_half_warns():
    with pytest.warns(RuntimeWarning, match="150 tokens instead of 300"):
        assert plan(room=150).size == 150
    assert plan(room=151).size == 151


def test_a_stride_that_skips_tokens_is_refused():
    with pytest.raises(InvalidRequestError, match="stride=301"):
        plan(stride=301)
    with (
        pytest.warns(RuntimeWarning, match="cut"),
        pytest.raises(InvalidRequestError, match="never be read"),
    ):
        plan(window=200, stride=201, room=100)


def test_a_stride_that_fitted_the_window_asked_for_is_cut_with_it():
    with pytest.warns(RuntimeWarning) as caught:
        made = plan(window=200, stride=180, room=100)
    assert (made.size, made.step) == (100, 50)
    assert [("stride=180" in str(each.message)) for each in caught] == [False, True]


def test_no_room_at_all_is_refused():
    with pytest.raises(InvalidRequestError, match="no room"):
        plan(room=0)


@pytest.mark.parametrize(
    ("size", "windows", "batch"),
    [(300, 9, None), (301, 9, None), (100, 30, 10), (100, 2, None), (1, 1000, 7), (1, 3, 1)],
)
def test_shorter_windows_run_in_smaller_batches(size: int, windows: int, batch: int | None):
    assert WindowPlan(size, 1, 300).batch_size(windows) == batch


def noul(yes: float) -> dict[str, Any]:
    return {"type": "noul", "noul": yes, "answer_confidence": max(yes, 1 - yes)}


def choice(label: str, confidence: float) -> dict[str, Any]:
    return {"type": "choice", "choice": label, "answer_confidence": confidence}


def result(usage: dict[str, Any] | None = None, **answers: Any) -> Any:
    return {"model": "m", "answers": answers, "usage": usage or {}}


def test_a_yes_no_question_takes_the_window_that_says_yes_most():
    merged = merge_windows([result(q=noul(0.01)), result(q=noul(0.6)), result(q=noul(0.5))], None)
    assert merged["answers"]["q"]["noul"] == 0.6


def test_other_questions_take_the_most_confident_window():
    windows = [
        result(q=choice("a", 0.4), s=noul(0.9)),
        result(q=choice("b", 0.8), s=noul(0.1)),
        result(q=choice("c", 0.8), s=noul(0.95)),
    ]
    merged = merge_windows(windows, [(0, 4), (2, 6), (4, 7)])
    assert merged["answers"]["q"]["choice"] == "b"  # the first of equals
    assert merged["answers"]["q"]["window"] == {
        "index": 1,
        "token_start": 2,
        "token_end": 6,
        "count": 3,
    }
    assert merged["answers"]["s"]["window"]["index"] == 2


def test_merging_leaves_the_windows_results_alone():
    windows = [result(q=noul(0.5)), result(q=noul(0.6))]
    merge_windows(windows, [(0, 2), (1, 3)])
    assert windows == [result(q=noul(0.5)), result(q=noul(0.6))]
    assert "window" not in merge_windows(windows, None)["answers"]["q"]


def test_usage_is_added_up():
    windows = [
        result(
            {
                "input_tokens": 5,
                "output_tokens": 1,
                "truncated": True,
                "questions": {"q": 1},
                "truncated_questions": ["q"],
            },
            q=noul(0.5),
        ),
        result(
            {
                "input_tokens": 6,
                "output_tokens": 1,
                "truncated": True,
                "questions": {"r": 2},
                "truncated_questions": [],
            },
            q=noul(0.5),
        ),
    ]
    assert merge_windows(windows, None)["usage"] == {
        "input_tokens": 11,
        "output_tokens": 0,
        "truncated": 2,
        "questions": {"q": 1, "r": 2},
        "truncated_questions": [],
        "windows": 2,
    }


def test_windows_without_questions_merge_to_nothing():
    merged = merge_windows([result(), result()], [(0, 1), (1, 2)])
    assert merged["answers"] == {}
    assert merged["usage"] == {"output_tokens": 0, "windows": 2}
