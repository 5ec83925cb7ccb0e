"""The lifecycle page, Ordering rules, as far as an Agent goes: requirements L152 to L158."""

from collections.abc import Callable

import pytest

import drut
from drut.tensors import Batch
from lifecycle_helpers import NOUL, Hook, every_agent, noting, raising

MakeAgent = Callable[..., drut.Agent]
pytestmark = every_agent
BODY = ["tokenise", "forward 1"]


def fail(batch: Batch) -> None:
    raise RuntimeError("boom")


def events(*names: str) -> list[str]:
    """`events("start", "AB")` is `["A.start", "B.start"]`."""
    event, hooks = names
    return [f"{hook}.{event}" for hook in hooks]


def test_L152_L156_installed_hooks_run_before_per_call_hooks_for_every_event(
    make_agent: MakeAgent,
) -> None:
    log: list[str] = []
    agent = make_agent(log, fail, hooks=[Hook(log, "A"), Hook(log, "B")])
    with pytest.raises(RuntimeError):
        agent.predict("a", NOUL, hooks=[Hook(log, "C"), Hook(log, "D")])
    starts, errors, ends = events("start", "ABCD"), events("error", "ABCD"), events("end", "ABCD")
    assert log == [*starts, *BODY, *errors, *ends]


def test_L152_functions_run_behind_hooks_and_installed_functions_before_the_calls_hooks(
    make_agent: MakeAgent,
) -> None:
    log: list[str] = []
    agent = make_agent(
        log,
        hooks=Hook(log, "A"),
        on_predict_start=lambda ctx: log.append("installed function"),
    )
    agent.predict(
        "a", NOUL, hooks=Hook(log, "B"), on_predict_start=lambda ctx: log.append("call function")
    )
    starts = ["A.start", "installed function", "B.start", "call function"]
    assert log == [*starts, *BODY, "A.end", "B.end"]


@pytest.mark.parametrize("order", ["ABCDE", "EDCBA", "CAEBD"])
def test_L153_within_a_list_hooks_run_in_list_order(make_agent: MakeAgent, order: str) -> None:
    log: list[str] = []
    hooks = [Hook(log, name) for name in order]
    make_agent(log, hooks=hooks[:2]).predict("a", NOUL, hooks=hooks[2:])
    assert log == [*events("start", order), *BODY, *events("end", order)]


def test_L153_the_same_hook_twice_runs_twice(make_agent: MakeAgent) -> None:
    log: list[str] = []
    hook = Hook(log)
    make_agent(log, hooks=[hook, hook]).predict("a", NOUL, hooks=hook)
    assert log == ["A.start"] * 3 + BODY + ["A.end"] * 3


def test_L154_a_raising_error_hook_stops_no_other_hook(make_agent: MakeAgent) -> None:
    log: list[str] = []
    hooks = [Hook(log, "A", error=raising(ValueError())), Hook(log, "B"), Hook(log, "C")]
    with pytest.raises(RuntimeError):
        make_agent(log, fail, hooks=hooks).predict("a", NOUL)
    errors_and_ends = [*events("error", "ABC"), *events("end", "ABC")]
    assert log == [*events("start", "ABC"), *BODY, *errors_and_ends]


@pytest.mark.parametrize("exc", [ValueError("A"), KeyboardInterrupt("A")], ids=repr)
def test_L154_a_raising_end_hook_stops_no_other_hook(
    make_agent: MakeAgent, exc: BaseException
) -> None:
    log: list[str] = []
    hooks = [Hook(log, "A", end=raising(exc)), Hook(log, "B", end=raising(OSError("B")))]
    with pytest.raises(type(exc)) as caught:
        make_agent(log, hooks=[*hooks, Hook(log, "C")]).predict("a", NOUL)
    assert caught.value is exc
    assert log == [*events("start", "ABC"), *BODY, *events("end", "ABC")]


def test_L154_a_raising_start_hook_stops_the_later_start_hooks_only(make_agent: MakeAgent) -> None:
    log: list[str] = []
    hooks = [Hook(log, "A"), Hook(log, "B", start=raising(ValueError("B"))), Hook(log, "C")]
    with pytest.raises(ValueError, match="B"):
        make_agent(log, hooks=hooks).predict("a", NOUL)
    assert log == [*events("start", "AB"), *events("error", "ABC"), *events("end", "ABC")]


def test_L154_without_hooks_raise_every_hook_runs_and_each_failure_warns(
    make_agent: MakeAgent,
) -> None:
    log: list[str] = []
    hooks = [
        Hook(log, "A", start=raising(ValueError("first"))),
        Hook(log, "B", end=raising(ValueError("second"))),
        Hook(log, "C"),
    ]
    with pytest.warns(RuntimeWarning) as warned:
        make_agent(log, hooks=hooks, hooks_raise=False).predict("a", NOUL)
    assert [str(each.message) for each in warned] == [
        "hook Hook.on_predict_start failed: ValueError: first",
        "hook Hook.on_predict_end failed: ValueError: second",
    ]
    assert log == [*events("start", "ABC"), *BODY, *events("end", "ABC")]


def test_L154_a_warning_that_is_an_error_stops_no_other_end_hook(make_agent: MakeAgent) -> None:
    log: list[str] = []
    hooks = [Hook(log, "A", end=raising(ValueError("first"))), Hook(log, "B")]
    with pytest.raises(RuntimeWarning, match="first"):  # as the test run's filters ask for
        make_agent(log, hooks=hooks, hooks_raise=False).predict("a", NOUL)
    assert log == [*events("start", "AB"), *BODY, *events("end", "AB")]


def test_L155_hooks_without_a_method_are_passed_over(make_agent: MakeAgent) -> None:
    log: list[str] = []

    class OnlyStart:
        def on_predict_start(self, ctx: drut.PredictContext) -> None:
            log.append("only.start")

    class OnlyError:
        on_predict_start = None

        def on_error(self, ctx: drut.PredictContext) -> None:
            log.append("only.error")

    class OnlyRoute:
        def on_route(self, ctx: drut.PredictContext) -> None:
            log.append("only.route")

    agent = make_agent(log, fail, hooks=[OnlyError(), Hook(log), OnlyRoute(), OnlyStart()])
    with pytest.raises(RuntimeError):
        agent.predict("a", NOUL)
    assert log == ["A.start", "only.start", *BODY, "only.error", "A.error", "A.end"]


def test_L156_no_error_event_on_success_even_if_an_end_hook_raises(make_agent: MakeAgent) -> None:
    log: list[str] = []
    seen: list[object] = []
    hooks = [
        Hook(log, "A", end=raising(ValueError("A"))),
        Hook(log, "B", end=noting(seen, "error")),
    ]
    with pytest.raises(ValueError, match="A"):
        make_agent(log, hooks=hooks).predict("a", NOUL)
    assert log == [*events("start", "AB"), *BODY, *events("end", "AB")]
    assert seen == [(None,)]


def test_L157_an_agent_fires_no_event_of_the_router(make_agent: MakeAgent) -> None:
    log: list[str] = []
    with make_agent(log, hooks=Hook(log)) as agent:
        agent.predict("a", NOUL)
    assert log == ["A.start", *BODY, "A.end"]


def test_L158_end_hooks_run_in_the_same_order_as_start_hooks(make_agent: MakeAgent) -> None:
    log: list[str] = []
    agent = make_agent(log, hooks=[Hook(log, "A"), Hook(log, "B")])
    agent.predict_batch(["a", "b"], NOUL, hooks=[Hook(log, "C")])
    starts, ends = events("start", "ABC"), events("end", "ABC")
    assert log == [*starts, "tokenise", "forward 2", *ends]
