"""Residency: the lock, and everything slow that must not happen under it."""

import ast
import inspect
import threading
from typing import Any

import pytest

from drut.errors import CheckpointError, CheckpointNotFoundError
from drut.routing import residency
from drut.routing.residency import Residency
from lifecycle_helpers import together


def make(build: Any = str.upper, capacity: int = 2) -> tuple[Residency[str], list[Any]]:
    log: list[Any] = []
    made: Residency[str] = Residency(
        build,
        lambda value: log.append(("dispose", value)),
        lambda evicted, loaded: log.append((evicted, loaded)),
        capacity,
    )
    return made, log


def test_every_block_under_the_lock_is_one_call_of_the_table() -> None:
    """Whatever calls back under the lock hangs here, not in production."""
    tree = ast.parse(inspect.getsource(residency))
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.With)]
    assert len(blocks) > 10
    for block in blocks:
        assert ast.unparse(block.items[0].context_expr) == "self._lock"
        (statement,) = block.body
        value = getattr(statement, "value", None)
        assert isinstance(value, ast.Call)
        assert ast.unparse(value.func).startswith("self._table.")


def test_a_value_is_built_once_and_announced() -> None:
    kept, log = make()
    with kept.lease("a") as value:
        assert value == "A"
    with kept.lease("a"):
        pass
    assert log == [((), ("a", "A"))]


def test_the_evicted_is_disposed_of_before_it_is_announced() -> None:
    kept, log = make(capacity=1)
    with kept.lease("a"):
        pass
    with kept.lease("b"):
        pass
    assert log[1:] == [("dispose", "A"), (("a",), ("b", "B"))]


def test_an_evicted_value_in_use_is_disposed_of_at_the_end_of_its_lease() -> None:
    kept, log = make(capacity=1)
    with kept.lease("a"):
        with kept.lease("b"):
            pass
        assert ("dispose", "A") not in log
    assert log[-1] == ("dispose", "A")


def test_a_failing_announcement_ends_the_lease_and_keeps_the_value() -> None:
    def announce(evicted: Any, loaded: Any) -> None:
        raise ValueError("hook")

    disposed: list[str] = []
    kept: Residency[str] = Residency(str.upper, disposed.append, announce, 1)
    with pytest.raises(ValueError, match="hook"):
        kept.lease("a")
    assert kept.names() == ["a"]
    with pytest.raises(ValueError, match="hook"):
        kept.drop("a")
    assert disposed == ["A"]


def test_a_missing_checkpoint_is_missing_for_those_who_waited_too() -> None:
    started, go_on = threading.Event(), threading.Event()

    def build(name: str) -> str:
        started.set()
        go_on.wait(10)
        raise CheckpointNotFoundError("export it")

    kept, _ = make(build)

    def lease(index: int) -> Any:
        if index:
            started.wait(10)
            threading.Timer(0.1, go_on.set).start()
        return kept.lease("a")

    first, second = together(2, lease)
    assert isinstance(first, CheckpointNotFoundError)
    assert isinstance(second, CheckpointNotFoundError)
    assert second.__cause__ is first


def test_after_a_build_of_ones_own_a_drop_waits_for_the_builds_of_others() -> None:
    building, go_on = threading.Event(), threading.Event()

    def build(name: str) -> str:
        if name == "slow":
            building.set()
            go_on.wait(10)
        return name

    kept, log = make(build)
    with kept.lease("a"):
        pass
    other = threading.Thread(target=kept.lease, args=("slow",))
    other.start()
    assert building.wait(10)
    threading.Timer(0.1, go_on.set).start()
    kept.drop("slow")
    other.join(10)
    assert kept.names() == ["a"]
    assert (("slow",), None) in log


def test_the_name_of_a_circle_is_told() -> None:
    kept, _ = make(lambda name: kept.lease(name).value)
    with pytest.raises(CheckpointError, match="'a'"):
        kept.lease("a")
    assert kept.names() == []


def test_closing_twice_is_closing_once() -> None:
    kept, log = make()
    with kept.lease("a"):
        kept.close()
        kept.close()
        assert ("dispose", "A") not in log
    assert log.count(("dispose", "A")) == 1
