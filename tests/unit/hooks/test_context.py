"""What a hook is handed."""

from contextvars import ContextVar, copy_context
from typing import Any

import pytest

from drut.errors import InvalidRequestError, InvalidTypeError
from drut.hooks.context import CallVariables, PredictContext

RESULT: Any = {"answers": {}}


def test_contexts_are_equal_by_identity_and_hashable() -> None:
    first, second = PredictContext(["x"], {}), PredictContext(["x"], {})
    assert first != second
    assert len({first, second, first}) == 2
    assert first.run_id != second.run_id


def test_a_misspelt_field_is_an_error() -> None:
    ctx = PredictContext(["x"], {})
    with pytest.raises(AttributeError):
        ctx.result = []  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("states", "count"),
    [
        (["a"], 1),
        (["a", "b"], 2),
        (("a", "b"), 2),
        ([], 0),
        ("a bare string", 1),
        (b"bytes", 1),
        (bytearray(b"bytes"), 1),
        ({"a": 1, "b": 2}, 1),
        (None, 1),
        (7, 1),
    ],
)
def test_skip_takes_as_many_results_as_there_are_states(states: Any, count: int) -> None:
    ctx = PredictContext(states, {})
    results = [RESULT] * count
    ctx.skip(results)
    assert ctx.results is results
    for wrong in {0, 1, 2, 3} - {count}:
        with pytest.raises(InvalidRequestError, match=f"{wrong} results for {count} states"):
            ctx.skip([RESULT] * wrong)
    assert ctx.results is results


@pytest.mark.parametrize("count", [0, 1, 5])
def test_skip_does_not_count_what_only_reading_would_tell(count: int) -> None:
    states = iter("ab")
    ctx = PredictContext(states, {})
    ctx.skip([RESULT] * count)
    assert ctx.results == [RESULT] * count
    assert next(states) == "a"


def test_one_result_is_enough_for_a_document() -> None:
    ctx = PredictContext(["window 1", "window 2", "window 3"], {}, document=True)
    ctx.skip([RESULT])
    ctx.skip([RESULT] * 3)
    with pytest.raises(InvalidRequestError, match="2 results for 3 states"):
        ctx.skip([RESULT] * 2)


@pytest.mark.parametrize("results", [None, RESULT, (RESULT,), "x", iter([RESULT])])
def test_skip_takes_nothing_but_a_list(results: Any) -> None:
    with pytest.raises(InvalidTypeError, match=r"skip takes a list .* got"):
        PredictContext(["x"], {}).skip(results)


def test_variables_are_copied_at_first_use_and_then_shared() -> None:
    name: ContextVar[str] = ContextVar("name")
    variables = CallVariables()

    def use() -> None:
        name.set("at first use")
        assert variables.context()[name] == "at first use"
        name.set("later")
        assert variables.context()[name] == "at first use"

    copy_context().run(use)
    shared = variables.context()
    assert variables.context() is shared
    variables.leave_to_late_hook()
    assert variables.context() is not shared
    assert variables.context()[name] == "at first use"
