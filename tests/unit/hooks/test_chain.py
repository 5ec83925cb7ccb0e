"""The chain: which hook is told what, for one context and for several that share one body."""

import re
import threading
import time
from contextvars import ContextVar, Token
from typing import Any

import pytest

from drut.hooks.chain import NO_HOOKS, HookChain
from drut.hooks.context import PredictContext
from drut.hooks.invoke import HookPolicy
from drut.hooks.protocol import EVENTS
from lifecycle_helpers import Action, Hook, context_chain, raising

SPAN: ContextVar[str] = ContextVar("span", default="root")
WARN_ONLY = HookPolicy(raise_errors=False)


class PerState:
    """Notes `name.event state` and raises where it was told to."""

    def __init__(self, log: list[str], name: str = "A", **failures: BaseException) -> None:
        self._log, self._name, self._failures = log, name, failures
        self.errors: list[BaseException | None] = []

    def _note(self, event: str, ctx: PredictContext) -> None:
        entry = f"{event}_{ctx.states[0]}"
        self._log.append(f"{self._name}.{event} {ctx.states[0]}")
        self.errors.append(ctx.error)
        if entry in self._failures:
            raise self._failures[entry]

    def on_predict_start(self, ctx: PredictContext) -> None:
        self._note("start", ctx)

    def on_error(self, ctx: PredictContext) -> None:
        self._note("error", ctx)

    def on_predict_end(self, ctx: PredictContext) -> None:
        self._note("end", ctx)


def contexts(*names: str) -> list[PredictContext]:
    return [PredictContext([name], {}) for name in names]


def test_without_hooks_a_call_is_nothing_but_its_body() -> None:
    [ctx] = contexts("x")
    with NO_HOOKS.call(ctx):
        assert ctx.elapsed_ms is None
    assert ctx.elapsed_ms is not None
    assert ctx.error is None


def test_then_appends_and_leaves_the_chain_as_it_was() -> None:
    log: list[str] = []
    first = HookChain((Hook(log, "A"),), WARN_ONLY)
    both = first.then(Hook(log, name) for name in "BC")
    [ctx] = contexts("x")
    both.fire("on_predict_end", ctx)
    first.fire("on_predict_end", ctx)
    assert log == ["A.end", "B.end", "C.end", "A.end"]
    assert both.policy is WARN_ONLY


@pytest.mark.parametrize("event", EVENTS)
def test_fire_calls_one_event_of_every_hook_in_order(event: Any) -> None:
    log: list[str] = []
    HookChain((Hook(log, "A"), object(), Hook(log, "B"))).fire(event, contexts("x")[0])
    name = event.removeprefix("on_").removeprefix("predict_")
    assert log == [f"A.{name}", f"B.{name}"]


@pytest.mark.parametrize("event", ["on_predict_start", "on_route"])
@pytest.mark.parametrize("exc", [ValueError("no"), KeyboardInterrupt()], ids=repr)
def test_a_veto_event_stops_at_the_first_hook_that_raises(event: Any, exc: BaseException) -> None:
    log: list[str] = []

    class Veto:
        def __getattr__(self, name: str) -> Action:
            if name != event:
                raise AttributeError(name)
            log.append("asked")
            return raising(exc)

    with pytest.raises(type(exc)) as caught:
        HookChain((Hook(log), Veto(), Hook(log))).fire(event, contexts("x")[0])
    assert caught.value is exc
    assert len(log) == 2


def test_fire_all_goes_on_after_an_error_and_raises_the_first() -> None:
    log: list[str] = []
    first, second = ValueError("first"), ValueError("second")
    chain = HookChain((PerState(log, "A", error_x=first, end_y=second), PerState(log, "B")))
    x, y = contexts("x", "y")
    with pytest.raises(ValueError, match="first") as caught:
        chain.fire_all([("on_error", x), ("on_predict_end", y)])
    assert caught.value is first
    assert log == ["A.error x", "B.error x", "A.end y", "B.end y"]


def test_several_contexts_start_in_order_and_end_in_reverse() -> None:
    log: list[str] = []
    with HookChain((PerState(log, "A"), PerState(log, "B"))).call(*contexts("1", "2", "3")):
        log.append("body")
    starts = [f"{hook}.start {state}" for state in "123" for hook in "AB"]
    ends = [f"{hook}.end {state}" for state in "321" for hook in "AB"]
    assert log == [*starts, "body", *ends]


@pytest.mark.parametrize("limit", [None, 20.0], ids=["no limit", "timed"])
def test_context_variables_nest_over_the_contexts_of_one_call(limit: float | None) -> None:
    seen: list[str] = []
    tokens: list[Token[str]] = []

    class Span:
        def on_predict_start(self, ctx: PredictContext) -> None:
            tokens.append(SPAN.set(SPAN.get() + ctx.states[0]))

        def on_predict_end(self, ctx: PredictContext) -> None:
            seen.append(SPAN.get())
            SPAN.reset(tokens.pop())

    with HookChain((Span(),), HookPolicy(timeout=limit)).call(*contexts("1", "2", "3")):
        pass
    assert seen == ["root123", "root12", "root1"]


def test_a_failing_body_gives_every_context_its_error_and_at_once_its_end() -> None:
    log: list[str] = []
    failure = RuntimeError("body")
    hook = PerState(log)
    with pytest.raises(RuntimeError) as caught:
        with HookChain((hook,)).call(*contexts("1", "2")):
            raise failure
    assert caught.value is failure
    assert log[2:] == ["A.error 2", "A.end 2", "A.error 1", "A.end 1"]
    assert hook.errors == [None, None, *[failure] * 4]


def test_only_started_contexts_get_error_and_end() -> None:
    log: list[str] = []
    hooks = (PerState(log, "A", start_2=ValueError("2")), PerState(log, "B"))
    started = contexts("1", "2", "3")
    with pytest.raises(ValueError, match="2"):
        with HookChain(hooks).call(*started):
            log.append("body")
    ends = [
        f"{hook}.{event} {state}" for state in "21" for event in ("error", "end") for hook in "AB"
    ]
    assert log == ["A.start 1", "B.start 1", "A.start 2", *ends]
    assert [ctx.elapsed_ms is None for ctx in started] == [False, False, True]


def test_every_context_ends_even_where_the_ends_of_others_raise() -> None:
    log: list[str] = []
    first, later = ValueError("of 2"), ValueError("of 1")
    hooks = (PerState(log, "A", end_2=first, end_1=later), PerState(log, "B"))
    with pytest.raises(ValueError, match="of 2"):
        with HookChain(hooks).call(*contexts("1", "2")):
            pass
    assert log[4:] == ["A.end 2", "B.end 2", "A.end 1", "B.end 1"]


def test_elapsed_time_is_counted_per_context_up_to_one_instant() -> None:
    first, second = contexts("1", "2")

    class Slow:
        def on_predict_start(self, ctx: PredictContext) -> None:
            time.sleep(0.02)

        def on_predict_end(self, ctx: PredictContext) -> None:
            time.sleep(0.02)

    with HookChain((Slow(),)).call(first, second):
        pass
    assert first.elapsed_ms is not None
    assert second.elapsed_ms is not None
    assert first.elapsed_ms >= 40
    assert second.elapsed_ms >= 20
    between = (second.started_at - first.started_at) * 1000
    assert first.elapsed_ms - second.elapsed_ms == pytest.approx(between, abs=0.001)


def test_an_interrupt_of_any_context_wins_over_the_bodys_error() -> None:
    log: list[str] = []
    interrupt, failure = KeyboardInterrupt("hook"), RuntimeError("body")
    hook = PerState(log, "A", error_2=ValueError("earlier"), end_1=interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        with HookChain((hook,)).call(*contexts("1", "2")):
            raise failure
    assert caught.value is interrupt
    assert context_chain(interrupt) == [interrupt, failure]
    assert log[-4:] == ["A.error 2", "A.end 2", "A.error 1", "A.end 1"]


@pytest.mark.parametrize("exc", [StopIteration("x"), GeneratorExit(), StopAsyncIteration()])
@pytest.mark.parametrize("stage", ["start", "body", "end"])
def test_exceptions_that_steer_generators_pass_like_any_other(
    exc: BaseException, stage: str
) -> None:
    def call() -> None:
        with HookChain((PerState([], **{f"{stage}_x": exc}),)).call(*contexts("x")):
            if stage == "body":
                raise exc

    with pytest.raises(type(exc)) as caught:
        call()
    assert caught.value is exc


def test_a_warning_says_hook_event_and_error() -> None:
    chain = HookChain((PerState([], start_x=ValueError("why")),), WARN_ONLY)
    with pytest.warns(RuntimeWarning) as warned:
        with chain.call(*contexts("x")):
            pass
    message = "hook PerState.on_predict_start failed: ValueError: why"
    assert [str(each.message) for each in warned] == [message]


def test_a_property_that_raises_is_a_failure_of_that_hook() -> None:
    log: list[str] = []

    class Odd:
        @property
        def on_predict_end(self) -> Any:
            raise LookupError("property")

    with pytest.raises(LookupError, match="property"):
        with HookChain((Odd(), PerState(log))).call(*contexts("x")):
            pass
    assert log == ["A.start x", "A.end x"]


@pytest.mark.parametrize("linked", ["nothing", "cause", "context", "wrapped cause"])
def test_linking_never_closes_a_circle_and_keeps_what_was_there(linked: str) -> None:
    earlier, failure, mistake = LookupError("earlier"), RuntimeError("body"), ValueError("hook")
    failure.__context__ = earlier

    def action(ctx: PredictContext) -> None:
        try:
            if linked == "cause":
                raise mistake from failure
            if linked == "wrapped cause":
                inner = OSError("inner")
                inner.__cause__ = failure
                raise mistake from inner
            if linked == "context":
                raise OSError("inner")
            raise mistake
        except OSError:
            raise mistake  # noqa: B904 - an implicit context is the point

    def call() -> list[str]:
        with pytest.raises(RuntimeError) as caught:
            with HookChain((Hook([], end=action),)).call(*contexts("x")):
                raise failure
        assert caught.value is failure
        return [str(exc) for exc in context_chain(failure)]

    chain = call()
    if "cause" in linked:
        assert chain == ["body", "earlier"]
        assert failure.__notes__ == ["a hook failed too: ValueError: hook"]
    else:
        middle = ["inner"] if linked == "context" else []
        assert chain == ["body", "hook", *middle, "earlier"]
    assert call()[0] == "body"  # the same objects again


def test_the_chain_of_a_call_in_many_threads_is_shared_safely() -> None:
    log: list[str] = []
    chain = HookChain((PerState(log),))

    def work(name: str) -> None:
        with chain.call(*contexts(name, name)):
            pass

    threads = [threading.Thread(target=work, args=(str(index),)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index in range(8):
        own = [entry for entry in log if re.search(rf" {index}$", entry)]
        assert own == [f"A.start {index}"] * 2 + [f"A.end {index}"] * 2
