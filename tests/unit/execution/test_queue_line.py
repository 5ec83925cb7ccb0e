"""The line: nobody is lost, answered twice or passed over, whatever happens in which order."""

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from drut.errors import DeadlineExceededError, ForwardError, OverloadedError, RuntimeClosedError
from drut.execution.queue_line import Call, Line, SharedPass
from property_settings import examples
from queue_helpers import logits_of, row, values

MAX_ROWS = 12
MAX_SHARED = 5


def line(max_rows: int = MAX_ROWS) -> Line:
    return Line(max_rows, lambda rows, shortest, longest: rows <= MAX_SHARED)


def call(*sizes: int, deadline: float | None = None, first: int = 0) -> Call:
    """A call with one unit per size, its rows counted up from `first`."""
    rows = [row(first + place) for place in range(sum(sizes))]
    starts = [sum(sizes[:place]) for place in range(len(sizes))]
    groups = [range(start, start + size) for start, size in zip(starts, sizes, strict=True)]
    return Call(rows, groups, deadline, 0.0)


def asked(shared: SharedPass | None) -> list[int]:
    return [] if shared is None else [int(each.ids[0]) for each in shared.rows]


def test_a_call_has_one_turn_at_a_time() -> None:
    waiting = line(max_rows=100)
    for first in (10, 20, 30):
        waiting.add(call(4, 4, first=first))
    turns = [asked(waiting.next_pass(0.0))[0] for _ in range(6)]
    assert turns == [10, 20, 30, 14, 24, 34]
    assert waiting.next_pass(0.0) is None


def test_only_units_that_fit_join_and_the_first_of_those_that_do() -> None:
    waiting = line()
    waiting.add(call(3, first=10))
    waiting.add(call(3, 2, first=20))
    waiting.add(call(1, first=30))
    assert asked(waiting.next_pass(0.0)) == [10, 11, 12, 23, 24]
    assert asked(waiting.next_pass(0.0)) == [20, 21, 22, 30]


def test_a_late_call_fails_and_neither_leads_nor_joins() -> None:
    waiting = line()
    late, joins = call(1, deadline=5.0, first=1), call(1, deadline=5.0, first=3)
    waiting.add(late)
    waiting.add(call(1, first=2))
    waiting.add(joins)
    assert asked(waiting.next_pass(6.0)) == [2]
    assert len(waiting) == waiting.rows == 0
    for each in (late, joins):
        with pytest.raises(DeadlineExceededError, match=r"1\.000 s ago"):
            each.result()


def test_one_call_counts_for_half_of_the_queue_at_most() -> None:
    waiting = line(max_rows=4)
    waiting.add(call(100))
    waiting.add(call(2))
    with pytest.raises(OverloadedError, match="102 rows wait already"):
        waiting.add(call(1))


def test_a_shared_failure_is_tried_once_more_apart_and_first() -> None:
    waiting = line()
    one, two = call(1, first=1), call(1, first=2)
    waiting.add(one)
    waiting.add(two)
    shared = waiting.next_pass(0.0)
    assert shared is not None
    waiting.add(call(1, first=3))
    assert waiting.fail(shared, ForwardError("shared")) == 2
    again = waiting.next_pass(0.0)
    assert again is not None
    assert asked(again) == [1]
    assert waiting.fail(again, ForwardError("alone")) == 0
    with pytest.raises(ForwardError, match="alone"):
        one.result()
    assert asked(waiting.next_pass(0.0)) == [2]
    assert asked(waiting.next_pass(0.0)) == [3]


def test_a_closed_runtime_is_not_tried_again_and_each_call_has_an_error_of_its_own() -> None:
    waiting = line()
    calls = [call(1), call(1)]
    for each in calls:
        waiting.add(each)
    shared = waiting.next_pass(0.0)
    assert shared is not None
    assert waiting.fail(shared, RuntimeClosedError("closed")) == 0
    assert len({id(each.error) for each in calls}) == 2


def test_an_error_does_not_refer_to_its_call() -> None:
    failed = call(1)
    failed.end(ForwardError("broken"))
    with pytest.raises(ForwardError):
        failed.result()
    assert failed.error is None


class Everything(RuleBasedStateMachine):
    """Calls come, go, run late, fail and succeed; a ledger says what must be so."""

    def __init__(self) -> None:
        super().__init__()
        self.line = line()
        self.calls: list[Call] = []
        self.flying: list[SharedPass] = []
        self.tries: dict[Any, int] = {}
        self.now = 0.0

    @rule(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4), limit=st.integers(0, 8))
    def come(self, sizes: list[int], limit: int) -> None:
        deadline = self.now + limit if limit else None
        made = call(*sizes, deadline=deadline, first=100 * len(self.calls))
        counted = sum(min(MAX_ROWS // 2, self.rows_of(each)) for each in self.line)
        try:
            self.line.add(made)
        except OverloadedError:
            assert counted + min(sum(sizes), MAX_ROWS // 2) > MAX_ROWS
        else:
            assert counted == 0 or counted + min(sum(sizes), MAX_ROWS // 2) <= MAX_ROWS
            self.calls.append(made)

    @rule(seconds=st.integers(0, 3))
    def time_goes_by(self, seconds: int) -> None:
        self.now += seconds

    @rule()
    def start(self) -> None:
        shared = self.line.next_pass(self.now)
        if shared is None:
            assert len(self.line) == 0
            return
        assert len(shared.rows) <= MAX_SHARED
        assert len({id(unit.call) for unit in shared.units}) == len(shared.units)
        for unit in shared.units:
            assert unit.call.deadline is None or self.now < unit.call.deadline
            self.tries[unit] = self.tries.get(unit, 0) + 1
            assert self.tries[unit] == 1 or (self.tries[unit] == 2 and len(shared.units) == 1)
        self.flying.append(shared)

    @precondition(lambda self: self.flying)
    @rule(place=st.integers(0, 99), fails=st.booleans())
    def finish(self, place: int, fails: bool) -> None:
        shared = self.flying.pop(place % len(self.flying))
        if fails:
            self.line.fail(shared, ForwardError("planned"))
        else:
            self.line.settle(shared, logits_of(shared.rows))

    @precondition(lambda self: self.calls)
    @rule(place=st.integers(0, 99))
    def leave(self, place: int) -> None:
        gone = self.calls.pop(place % len(self.calls))
        self.line.remove(gone)
        gone.open = 0

    def rows_of(self, each: Call) -> int:
        return sum(len(unit.places) for unit in each.waiting)

    @invariant()
    def the_counts_are_right(self) -> None:
        assert self.line.rows == sum(self.rows_of(each) for each in self.line)
        assert all(each.waiting for each in self.line)

    @invariant()
    def every_open_unit_waits_or_runs(self) -> None:
        flying = [unit for shared in self.flying for unit in shared.units]
        for each in self.calls:
            if each.open:
                mine = [unit for unit in flying if unit.call is each]
                assert each.open == len(each.waiting) + len(mine)
                assert not each.waiting or each in list(self.line)

    def teardown(self) -> None:
        for shared in self.flying:
            self.line.settle(shared, logits_of(shared.rows))
        while (shared := self.line.next_pass(self.now)) is not None:
            self.line.settle(shared, logits_of(shared.rows))
        assert self.line.rows == len(self.line) == 0
        for each in self.calls:
            assert each.open == 0
            try:
                found = values(each.result())
            except (ForwardError, DeadlineExceededError):
                continue
            assert found == [int(row.ids[0]) for row in each.rows]


TestEverything = Everything.TestCase
TestEverything.settings = examples(60)
