"""Residency bookkeeping: transitions, one thread, no input or output."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.errors import CheckpointError, RuntimeClosedError
from drut.routing.table import THRASH_RELOADS, THRASH_SECONDS, LruTable
from property_settings import examples


def fill(table: LruTable[str], *names: str) -> None:
    """Build and release each name."""
    for name in names:
        claim = table.claim(name)
        if claim.mine:
            table.settle(claim.slot, name.upper(), 0.0)
        table.release(claim.slot)


def test_the_first_claim_builds_and_later_ones_share() -> None:
    table: LruTable[str] = LruTable(1)
    first, second = table.claim("a"), table.claim("a")
    assert (first.mine, second.mine) == (True, False)
    assert first.slot is second.slot
    assert table.names() == []
    table.settle(first.slot, "A", 0.0)
    assert table.names() == ["a"]
    assert table.values() == [("a", "A")]


def test_what_was_used_last_stays() -> None:
    table: LruTable[str] = LruTable(2)
    fill(table, "a", "b", "a", "c")
    assert table.names() == ["a", "c"]


def test_the_newest_is_never_its_own_victim() -> None:
    table: LruTable[str] = LruTable(1)
    table.pin("a")
    fill(table, "a", "b")
    assert table.names() == ["a", "b"]


def test_an_evicted_slot_in_use_is_disposed_of_at_its_last_release() -> None:
    table: LruTable[str] = LruTable(1)
    one = table.claim("a")
    table.settle(one.slot, "A", 0.0)
    two = table.claim("a")
    other = table.claim("b")
    change = table.settle(other.slot, "B", 0.0)
    assert change.evicted == ("a",)
    assert change.dispose == ()
    assert table.release(one.slot) is False
    assert table.release(two.slot) is True


def test_an_evicted_slot_that_nobody_uses_is_disposed_of_at_once() -> None:
    table: LruTable[str] = LruTable(1)
    fill(table, "a")
    claim = table.claim("b")
    change = table.settle(claim.slot, "B", 0.0)
    assert [slot.value for slot in change.dispose] == ["A"]


def test_what_was_attached_or_handed_out_is_never_disposed_of() -> None:
    table: LruTable[str] = LruTable(1)
    table.put("a", "mine")
    assert table.drop("a").dispose == ()
    claim = table.claim("b")
    table.settle(claim.slot, "B", 0.0)
    table.hand_out(claim.slot)
    table.release(claim.slot)
    assert table.drop("b").dispose == ()


def test_a_failed_build_leaves_no_trace() -> None:
    table: LruTable[str] = LruTable(1)
    claim, waiting = table.claim("a"), table.claim("a")
    error = OSError()
    table.abandon(claim.slot, error)
    assert waiting.slot.error is error
    assert waiting.slot.settled.is_set()
    assert table.names() == table.building() == []
    assert table.claim("a").mine


def test_an_error_nobody_waits_for_is_not_kept() -> None:
    table: LruTable[str] = LruTable(1)
    claim = table.claim("a")
    table.abandon(claim.slot, OSError())
    assert claim.slot.error is None


def test_put_during_a_build_wins() -> None:
    table: LruTable[str] = LruTable(1)
    claim = table.claim("a")
    table.put("a", "mine")
    assert table.settle(claim.slot, "built", 0.0).kept is False
    assert table.values() == [("a", "mine")]
    assert table.release(claim.slot) is True


def test_put_raises_the_capacity_to_fit() -> None:
    table: LruTable[str] = LruTable(1)
    table.put("a", "A")
    table.put("b", "B")
    assert table.capacity == 2


def test_a_circle_of_builds_is_refused_before_anybody_waits() -> None:
    table: LruTable[str] = LruTable(3)
    a, b, c = (table.claim(name).slot for name in "abc")
    table.claim("b", (a,))
    table.claim("c", (b,))
    with pytest.raises(CheckpointError, match="the build of 'c' needs 'a'"):
        table.claim("a", (c,))
    table.arrived((b,))
    assert table.claim("a", (c,)).slot is a


def test_a_build_may_not_need_itself() -> None:
    table: LruTable[str] = LruTable(1)
    slot = table.claim("a").slot
    with pytest.raises(CheckpointError, match="'a'"):
        table.claim("a", (slot,))


def test_close_forgets_everything_for_good() -> None:
    table: LruTable[str] = LruTable(2)
    fill(table, "a")
    building = table.claim("b")
    change = table.close()
    assert change.evicted == ("a",)
    assert len(change.dispose) == 1
    assert table.settle(building.slot, "B", 0.0).kept is False
    for refused in (lambda: table.claim("a"), lambda: table.put("a", "A")):
        with pytest.raises(RuntimeClosedError):
            refused()


@pytest.mark.parametrize(
    ("apart", "told"),
    [
        (1.0, [THRASH_RELOADS]),
        (THRASH_SECONDS / 3, [THRASH_RELOADS, THRASH_RELOADS + 3]),
        (THRASH_SECONDS, []),
    ],
)
def test_thrashing_is_several_rebuilds_within_minutes_and_told_once_in_them(
    apart: float, told: list[int]
) -> None:
    table: LruTable[str] = LruTable(1)
    reports = []
    for turn in range(THRASH_RELOADS + 5):
        claim = table.claim("a")
        if table.settle(claim.slot, "A", turn * apart).thrashing:
            reports.append(turn)
        table.release(claim.slot)
        fill(table, "b")
    assert reports == told


operations = st.lists(
    st.tuples(st.sampled_from(["use", "put", "drop", "pin", "unpin"]), st.sampled_from("abcd")),
    max_size=40,
)


@examples(100)
@given(capacity=st.integers(1, 3), steps=operations)
def test_every_value_is_disposed_of_once_or_resident(capacity: int, steps: list[Any]) -> None:
    table: LruTable[int] = LruTable(capacity)
    built, disposed = 0, []
    for kind, name in steps:
        if kind == "use":
            claim = table.claim(name)
            if claim.mine:
                built += 1
                disposed += table.settle(claim.slot, built, 0.0).dispose
            if table.release(claim.slot):
                disposed.append(claim.slot)
        elif kind in ("put", "drop"):
            arguments = (name, -1) if kind == "put" else (name,)
            disposed += getattr(table, kind)(*arguments).dispose
        else:
            getattr(table, kind)(name)
        assert len(table.names()) <= max(table.capacity, len(table.pinned()) + 1)
    resident = [value for _, value in table.values() if value > 0]
    gone = [slot.value for slot in disposed]
    assert sorted([*resident, *gone]) == list(range(1, built + 1))
