import time

import pytest

from drut import deadline
from drut.deadlines import current_deadline, deadline_at, remaining
from drut.errors import DeadlineExceededError, InvalidRequestError, InvalidTypeError


def test_no_deadline_leaves_all_the_time():
    assert current_deadline() is None
    assert remaining("anything") is None


def test_inside_a_block_less_time_remains_than_was_given():
    with deadline(30.0):
        left = remaining("a pass")
    assert left is not None
    assert 0.0 < left <= 30.0
    assert current_deadline() is None


def test_an_inner_deadline_cannot_prolong_an_outer_one():
    with deadline(1.0):
        outer = current_deadline()
        with deadline(60.0):
            assert current_deadline() == outer
        with deadline(0.5):
            inner = current_deadline()
        assert inner is not None
        assert outer is not None
        assert inner < outer


def test_a_passed_deadline_names_the_work_that_was_not_started():
    with (
        deadline_at(time.monotonic() - 1.0),
        pytest.raises(DeadlineExceededError, match="a forward pass"),
    ):
        remaining("a forward pass")


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), float("inf")])
def test_a_deadline_is_a_positive_finite_number(seconds):
    with pytest.raises(InvalidRequestError), deadline(seconds):
        pass


@pytest.mark.parametrize("seconds", ["1", None, True])
def test_a_deadline_is_a_number(seconds):
    with pytest.raises(InvalidTypeError), deadline(seconds):
        pass
