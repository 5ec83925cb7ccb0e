from collections.abc import Iterator
from typing import Any

import pytest

import drut
from drut.errors import InvalidRequestError, InvalidTypeError
from lifecycle_helpers import NOUL, make_fake_agent


class Counting(drut.BaseHook):
    def __init__(self) -> None:
        self.sizes: list[int] = []

    def on_predict_start(self, ctx: drut.PredictContext) -> None:
        self.sizes.append(len(ctx.states))


def agent(*hooks: drut.BaseHook) -> drut.Agent:
    return make_fake_agent(hooks=list(hooks))


def numbered(count: int, read: list[int]) -> Iterator[str]:
    for index in range(count):
        read.append(index)
        yield f"state {index}"


@pytest.mark.parametrize("count", [0, 1, 5, 6, 11])
def test_a_stream_is_answered_like_a_batch(count: int):
    states = [f"state {'a ' * index}" for index in range(count)]
    asked = agent()
    assert list(asked.predict_stream(iter(states), NOUL, window=3)) == (
        asked.predict_batch(states, NOUL)
    )


def test_every_window_is_one_call():
    hook = Counting()
    assert len(list(agent(hook).predict_stream(numbered(8, []), NOUL, window=3))) == 8
    assert hook.sizes == [3, 3, 2]


def test_nothing_is_read_ahead_of_the_window():
    read: list[int] = []
    stream = agent().predict_stream(numbered(100, read), NOUL, window=4)
    assert read == []
    next(stream)
    assert read == [0, 1, 2, 3]
    for _ in range(3):
        next(stream)
    assert len(read) == 4
    next(stream)
    assert len(read) == 8


def test_what_was_read_before_the_source_failed_is_answered_first():
    def source() -> Iterator[str]:
        yield from ["one", "two", "three", "four", "five"]
        raise OSError("the file ended early")

    stream = agent().predict_stream(source(), NOUL, window=3)
    assert len([next(stream) for _ in range(5)]) == 5
    with pytest.raises(OSError, match="ended early"):
        next(stream)


def test_a_window_that_cannot_be_answered_stops_the_stream_there():
    stream = agent().predict_stream(["a", "b", None, "c"], NOUL, window=2)
    assert next(stream)
    assert next(stream)
    with pytest.raises(InvalidTypeError, match="None"):
        next(stream)


@pytest.mark.parametrize("items", ["one text", b"x", {"a": 1}, 7])
def test_one_state_is_not_a_stream(items: Any):
    with pytest.raises(InvalidTypeError, match="iterable of states"):
        agent().predict_stream(items, NOUL)


@pytest.mark.parametrize("window", [0, -1])
def test_the_window_is_checked_before_anything_is_read(window: int):
    with pytest.raises(InvalidRequestError, match="window"):
        agent().predict_stream(["a"], NOUL, window=window)


def test_a_router_streams_requests():
    router = drut.Router(factory=lambda name: agent())
    named = {"questions": NOUL, "model": "english"}
    requests = [{"state": f"s {index}", **named} for index in range(5)]
    assert list(router.predict_stream(iter(requests), window=2)) == router.predict_batch(requests)
