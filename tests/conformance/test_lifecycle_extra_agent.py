"""What follows from the lifecycle page for an Agent: X1, X2, X4 to X7, X12 to X14, and more."""

import _thread
import asyncio
import contextvars
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import drut
from drut.errors import HookTimeoutError, InvalidTypeError
from drut.tensors import Batch
from lifecycle_helpers import (
    NOUL,
    AsyncHook,
    Hook,
    Mode,
    both_agents,
    cached,
    context_chain,
    every_mode,
    noting,
    raising,
    setting,
    skipping,
    together,
    wait_until,
)

MakeAgent = Callable[..., drut.Agent]
pytestmark = both_agents


def failing(exc: BaseException) -> Callable[[Batch], None]:
    def before(batch: Batch) -> None:
        raise exc

    return before


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Lets hanging hooks go, at the latest when the test ends, and waits until they are gone."""
    event = threading.Event()
    yield event
    event.set()
    wait_until(lambda: not [each for each in threading.enumerate() if each.name == "drut-hook"])


@pytest.mark.parametrize("results", [["x"], [None], [7], [["a"]], [{"usage": 5}], [{"usage": "x"}]])
@pytest.mark.parametrize("hooks_raise", [True, False])
@every_mode
def test_X1_a_malformed_skipped_result_is_an_ordinary_failure(
    make_agent: MakeAgent, mode: Mode, results: list[Any], hooks_raise: bool
) -> None:
    log: list[str] = []
    hook = mode.hook(log, start=skipping(results))
    agent = make_agent(log, hooks=hook, hooks_raise=hooks_raise, **mode.options)
    with pytest.raises(InvalidTypeError, match="result 0 must be a dict") as caught:
        mode.run(lambda: agent.predict("a", NOUL))
    assert log == ["A.start", "A.error", "A.end"]
    assert hook.contexts[-1].error is caught.value


@every_mode
def test_X2_when_one_end_hook_raises_the_others_still_get_their_end(
    make_agent: MakeAgent, mode: Mode
) -> None:
    log: list[str] = []
    first, second = ValueError("A"), OSError("C")
    hooks = [
        mode.hook(log, "A", end=raising(first)),
        mode.hook(log, "B"),
        mode.hook(log, "C", end=raising(second)),
        mode.hook(log, "D"),
    ]
    with pytest.raises(ValueError, match="A") as caught:
        mode.run(lambda: make_agent(hooks=hooks, **mode.options).predict("a", NOUL))
    assert caught.value is first
    assert log == [f"{name}.{event}" for event in ("start", "end") for name in "ABCD"]


def test_X4_serial_timed_hooks_that_call_back_do_not_wait_for_themselves(
    make_agent: MakeAgent,
) -> None:
    log: list[str] = []

    def start(ctx: drut.PredictContext) -> None:
        if len(ctx.states) == 2:
            ctx.agent.predict("inner", NOUL)

    agent = make_agent(log, hooks=Hook(log, start=start), hooks_concurrent=False, hooks_timeout=5)
    begin = time.monotonic()
    agent.predict_batch(["a", "b"], NOUL)
    assert time.monotonic() - begin < 4
    inner = ["A.start", "tokenise", "forward 1", "A.end"]
    assert log == ["A.start", *inner, "tokenise", "forward 2", "A.end"]


@pytest.mark.parametrize("concurrent", [True, False], ids=["concurrent", "serial"])
def test_X5_an_async_hook_inside_a_running_loop_may_call_back(
    make_agent: MakeAgent, concurrent: bool
) -> None:
    log: list[str] = []

    async def start(ctx: drut.PredictContext) -> None:
        if len(ctx.states) < 4:
            await asyncio.sleep(0)
            ctx.agent.predict_batch(list("abcd"[: len(ctx.states) + 1]), NOUL)
            await asyncio.sleep(0)

    agent = make_agent(log, hooks=AsyncHook(log, start=start), hooks_concurrent=concurrent)

    async def caller() -> list[str]:
        agent.predict("a", NOUL)
        return log

    [outcome] = together(1, lambda index: asyncio.run(caller()))
    passes = [each for rows in (4, 3, 2, 1) for each in ("tokenise", f"forward {rows}", "A.end")]
    assert outcome == ["A.start"] * 4 + passes


SPAN: contextvars.ContextVar[str] = contextvars.ContextVar("span", default="none")


class Span:
    """Sets a context variable in start and resets it in end, as tracing does."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._tokens: dict[str, contextvars.Token[str]] = {}

    def on_predict_start(self, ctx: drut.PredictContext) -> None:
        self.seen.append(SPAN.get())
        self._tokens[ctx.run_id] = SPAN.set(f"{SPAN.get()}/{ctx.states[0]}")

    def on_error(self, ctx: drut.PredictContext) -> None:
        self.seen.append(f"error in {SPAN.get()}")

    def on_predict_end(self, ctx: drut.PredictContext) -> None:
        self.seen.append(SPAN.get())
        SPAN.reset(self._tokens.pop(ctx.run_id))
        self.seen.append(SPAN.get())


class AsyncSpan(Span):
    async def on_predict_start(self, ctx: drut.PredictContext) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        super().on_predict_start(ctx)

    async def on_error(self, ctx: drut.PredictContext) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        super().on_error(ctx)

    async def on_predict_end(self, ctx: drut.PredictContext) -> None:  # type: ignore[override]
        super().on_predict_end(ctx)
        await asyncio.sleep(0)


@pytest.mark.parametrize("fails", [False, True], ids=["success", "failure"])
@pytest.mark.parametrize("concurrent", [True, False], ids=["concurrent", "serial"])
@every_mode
def test_X6_a_context_variable_set_in_start_is_there_in_end_and_can_be_reset(
    make_agent: MakeAgent, mode: Mode, concurrent: bool, fails: bool
) -> None:
    span = AsyncSpan() if mode.hook is AsyncHook else Span()
    agent = make_agent(
        before=failing(BufferError()) if fails else lambda batch: None,
        hooks=span,
        hooks_concurrent=concurrent,
        **mode.options,
    )
    found: list[str] = []

    def call() -> None:
        SPAN.set("caller")
        try:
            agent.predict("a", NOUL)
        except BufferError:
            assert fails
        found.append(SPAN.get())

    contextvars.copy_context().run(mode.run, call)
    inside = ["error in caller/a", "caller/a"] if fails else ["caller/a"]
    assert span.seen == ["caller", *inside, "caller"]
    assert found == ["caller"]


@every_mode
def test_X6_a_variable_is_there_in_a_call_that_a_hook_makes(
    make_agent: MakeAgent, mode: Mode
) -> None:
    seen: list[str] = []
    agent = make_agent(**mode.options)

    def start(ctx: drut.PredictContext) -> None:
        SPAN.set("outer")
        agent.predict("b", NOUL, hooks=mode.hook([], start=lambda ctx: seen.append(SPAN.get())))

    call = lambda: agent.predict("a", NOUL, hooks=mode.hook([], start=start))  # noqa: E731
    contextvars.copy_context().run(mode.run, call)
    assert seen == ["outer"]


def test_X6_after_a_late_hook_the_others_still_see_what_start_set(
    make_agent: MakeAgent, release: threading.Event
) -> None:
    seen: list[Any] = []
    hooks = [
        Hook([], start=lambda ctx: SPAN.set("span") and None),
        Hook([], start=lambda ctx: release.wait() and None),
        Hook([], end=lambda ctx: seen.append(SPAN.get())),
    ]
    agent = make_agent(hooks=hooks, hooks_timeout=0.3)
    with pytest.raises(HookTimeoutError, match=r"longer than hooks_timeout=0\.3 seconds"):
        agent.predict("a", NOUL)
    assert seen == ["span"]


@pytest.mark.parametrize("event", ["error", "end"])
@pytest.mark.parametrize("hooks_raise", [True, False])
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt("hook"), SystemExit(2)], ids=repr)
@every_mode
def test_X7_an_interrupt_of_a_hook_wins_over_the_calls_error(
    make_agent: MakeAgent, mode: Mode, interrupt: BaseException, hooks_raise: bool, event: str
) -> None:
    log: list[str] = []
    failure = BufferError("forward")
    hooks = [mode.hook(log, "A", **{event: raising(interrupt)}), mode.hook(log, "B")]
    agent = make_agent(
        before=failing(failure), hooks=hooks, hooks_raise=hooks_raise, **mode.options
    )
    with pytest.raises(type(interrupt)) as caught:
        mode.run(lambda: agent.predict("a", NOUL))
    assert caught.value is interrupt
    assert failure in context_chain(interrupt)
    assert log == [f"{name}.{event}" for event in ("start", "error", "end") for name in "AB"]
    assert all(ctx.error is failure for ctx in hooks[1].contexts)


@pytest.mark.parametrize("second", [ValueError("hook"), SystemExit(2), KeyboardInterrupt("again")])
def test_X7_the_interrupt_of_the_call_itself_stays(
    make_agent: MakeAgent, second: BaseException
) -> None:
    first = KeyboardInterrupt("forward")
    agent = make_agent(before=failing(first), hooks=Hook([], error=raising(second)))
    with pytest.raises(KeyboardInterrupt) as caught:
        agent.predict("a", NOUL)
    assert caught.value is first
    assert context_chain(first) == [first, second]


@every_mode
def test_X7_among_end_hooks_an_interrupt_wins_over_an_earlier_error(
    make_agent: MakeAgent, mode: Mode
) -> None:
    interrupt = KeyboardInterrupt("C")
    ends: list[BaseException] = [ValueError("A"), OSError("B"), interrupt, SystemExit("D")]
    agent = make_agent(hooks=[mode.hook([], end=raising(exc)) for exc in ends], **mode.options)
    with pytest.raises(KeyboardInterrupt) as caught:
        mode.run(lambda: agent.predict("a", NOUL))
    assert caught.value is interrupt


def test_X7_an_interrupt_while_waiting_for_a_timed_hook_still_ends_the_call(
    make_agent: MakeAgent, release: threading.Event
) -> None:
    log: list[str] = []

    def interrupted(ctx: drut.PredictContext) -> None:
        _thread.interrupt_main()
        release.wait()

    hooks = [Hook(log, "A"), Hook(log, "B", start=interrupted), Hook(log, "C")]
    with pytest.raises(KeyboardInterrupt) as caught:
        make_agent(hooks=hooks, hooks_timeout=30).predict("a", NOUL)
    failure = ["A.error", "B.error", "C.error", "A.end", "B.end", "C.end"]
    assert log == ["A.start", "B.start", *failure]
    assert context_chain(caught.value) == [caught.value]


def test_X12_a_type_error_that_mentions_lang_is_not_answered_by_a_second_pass(
    make_agent: MakeAgent,
) -> None:
    log: list[str] = []
    failure = TypeError("forward() got an unexpected keyword argument 'lang'")
    agent = make_agent(log, failing(failure), hooks=Hook(log))
    with pytest.raises(TypeError) as caught:
        agent.predict("a", NOUL, lang="en")
    assert caught.value is failure
    assert log == ["A.start", "tokenise", "forward 1", "A.error", "A.end"]


@every_mode
def test_X13_installed_hooks_fire_for_an_independent_call_that_a_hook_makes(
    make_agent: MakeAgent, mode: Mode
) -> None:
    log: list[str] = []
    other = make_agent(hooks=mode.hook(log, "other"), **mode.options)
    call_other = mode.hook(log, start=lambda ctx: other.predict("b", NOUL) and None)
    agent = make_agent(hooks=call_other, **mode.options)
    mode.run(lambda: agent.predict("a", NOUL))
    assert log == ["A.start", "other.start", "other.end", "A.end"]


def test_X14_an_error_that_a_start_hook_writes_is_no_failure(make_agent: MakeAgent) -> None:
    log: list[str] = []
    seen: list[Any] = []
    hook = Hook(log, start=setting(error=ValueError("mine")), end=noting(seen, "error"))
    make_agent(log, hooks=hook).predict("a", NOUL)
    assert log == ["A.start", "tokenise", "forward 1", "A.end"]
    assert seen == [(None,)]


@pytest.mark.parametrize("hook_class", [Hook, AsyncHook])
def test_a_hook_that_overruns_its_limit_fails_the_call_in_time(
    make_agent: MakeAgent, release: threading.Event, hook_class: type[Hook]
) -> None:
    log: list[str] = []

    async def hang(ctx: drut.PredictContext) -> None:
        while not release.is_set():
            await asyncio.sleep(0.01)

    slow = hang if hook_class is AsyncHook else lambda ctx: release.wait() and None
    hooks = [hook_class(log, "A", start=slow), Hook(log, "B")]
    begin = time.monotonic()
    with pytest.raises(HookTimeoutError, match=r"longer than hooks_timeout=0\.3 seconds") as caught:
        make_agent(log, hooks=hooks, hooks_timeout=0.3).predict("a", NOUL)
    assert isinstance(caught.value, TimeoutError)
    assert time.monotonic() - begin < 5
    assert log == ["A.start", "A.error", "B.error", "A.end", "B.end"]


def test_without_hooks_raise_an_overrunning_hook_only_warns(
    make_agent: MakeAgent, release: threading.Event
) -> None:
    log: list[str] = []
    hooks = [Hook(log, "A", start=lambda ctx: release.wait() and None), Hook(log, "B")]
    agent = make_agent(log, hooks=hooks, hooks_timeout=0.3, hooks_raise=False)
    with pytest.warns(RuntimeWarning, match="on_predict_start failed: HookTimeoutError"):
        agent.predict("a", NOUL)
    assert log == ["A.start", "B.start", "tokenise", "forward 1", "A.end", "B.end"]


def test_the_limit_of_a_call_goes_before_the_installed_one(
    make_agent: MakeAgent, release: threading.Event
) -> None:
    agent = make_agent(hooks=Hook([], start=lambda ctx: release.wait(0.3) and None))
    agent.predict("a", NOUL)
    with pytest.raises(HookTimeoutError):
        agent.predict("a", NOUL, hooks_timeout=0.05)
    timed = make_agent(
        hooks=Hook([], start=lambda ctx: release.wait(0.3) and None), hooks_timeout=0.05
    )
    timed.predict("a", NOUL, hooks_timeout=20)
    with pytest.raises(HookTimeoutError):
        timed.predict("a", NOUL, hooks_timeout=None)


def test_hooks_that_never_return_hold_at_most_eight_threads(
    make_agent: MakeAgent, release: threading.Event
) -> None:
    class Hanging:
        def on_predict_start(self, ctx: drut.PredictContext) -> None:
            release.wait()

    agent = make_agent()
    before = threading.active_count()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(50):
            agent.predict("a", NOUL, hooks=Hanging(), hooks_timeout=0.01, hooks_raise=False)
    assert threading.active_count() - before <= 8
    messages = [str(each.message) for each in warned]
    assert len(messages) == 50
    assert sum("took longer than hooks_timeout=0.01" in message for message in messages) == 8
    assert sum("8 hooks still run past their hooks_timeout" in each for each in messages) == 42
    log: list[str] = []
    agent.predict("a", NOUL, hooks=Hook(log))  # without a limit nothing is refused
    release.set()
    wait_until(lambda: threading.active_count() <= before)
    agent.predict("a", NOUL, hooks=Hook(log), hooks_timeout=20)
    assert log == ["A.start", "A.end"] * 2


class OwnMistake(Exception):
    pass


def raise_from_error(ctx: drut.PredictContext) -> None:
    raise OwnMistake("from") from ctx.error


def raise_error_again(ctx: drut.PredictContext) -> None:
    assert ctx.error is not None
    raise ctx.error


def raise_while_handling(ctx: drut.PredictContext) -> None:
    try:
        raise ZeroDivisionError("inner")
    except ZeroDivisionError:
        raise OwnMistake("outer") from None


def raise_with_cause(ctx: drut.PredictContext) -> None:
    raise OwnMistake("outer") from ZeroDivisionError("cause")


@pytest.mark.parametrize("event", ["error", "end"])
@pytest.mark.parametrize(
    "mistake", [raise_from_error, raise_error_again, raise_while_handling, raise_with_cause]
)
@every_mode
def test_an_error_of_a_hook_is_linked_without_a_circle(
    make_agent: MakeAgent, mode: Mode, mistake: Callable[[Any], None], event: str
) -> None:
    earlier, failure = LookupError("earlier"), BufferError("forward")

    def before(batch: Batch) -> None:
        try:
            raise earlier
        except LookupError:
            raise failure  # noqa: B904 - its context is the point

    agent = make_agent(before=before, hooks=mode.hook([], **{event: mistake}), **mode.options)
    for _ in range(2):
        with pytest.raises(BufferError) as caught:
            mode.run(lambda: agent.predict("a", NOUL))
        assert caught.value is failure
        assert_no_circle(failure)
        types = [type(exc) for exc in context_chain(failure)]
        if mistake is raise_error_again:
            assert types == [BufferError, LookupError]
        elif mistake is raise_from_error:
            assert types == [BufferError, LookupError]
            assert failure.__notes__[-1] == "a hook failed too: OwnMistake: from"
        else:
            assert types[:2] == [BufferError, OwnMistake]
            assert types[-1] is LookupError
        if mistake is raise_while_handling and mode.hook is Hook:
            assert ZeroDivisionError in types


def test_one_exception_object_raised_in_every_call_makes_no_circle(make_agent: MakeAgent) -> None:
    failure, mistake = BufferError("forward"), OwnMistake("always the same")
    hooks = [Hook([], error=raising(mistake), end=raising(mistake)), Hook([], end=raising(mistake))]
    agent = make_agent(before=failing(failure), hooks=hooks)
    for _ in range(3):
        with pytest.raises(BufferError):
            agent.predict("a", NOUL)
        assert context_chain(failure) == [failure, mistake]


def test_a_failing_call_inside_an_error_hook_makes_no_circle(make_agent: MakeAgent) -> None:
    failure = BufferError("forward")
    agent = make_agent(before=failing(failure))

    def again(ctx: drut.PredictContext) -> None:
        agent.predict("inner", NOUL, hooks=Hook([], end=raising(OwnMistake("inner"))))

    with pytest.raises(BufferError) as caught:
        agent.predict("outer", NOUL, hooks=Hook([], error=again))
    assert caught.value is failure
    assert [type(exc) for exc in context_chain(failure)] == [BufferError, OwnMistake]


@every_mode
def test_an_end_hooks_error_keeps_the_context_it_had(make_agent: MakeAgent, mode: Mode) -> None:
    agent = make_agent(hooks=mode.hook([], end=raise_while_handling), **mode.options)
    with pytest.raises(OwnMistake) as caught:
        mode.run(lambda: agent.predict("a", NOUL))
    assert [type(exc) for exc in context_chain(caught.value)] == [OwnMistake, ZeroDivisionError]


def assert_no_circle(exc: BaseException | None, above: tuple[BaseException, ...] = ()) -> None:
    """Fail where causes and contexts lead back to an exception."""
    if exc is not None:
        assert all(exc is not each for each in above), f"{exc!r} leads back to itself"
        assert_no_circle(exc.__cause__, (*above, exc))
        assert_no_circle(exc.__context__, (*above, exc))


def test_a_hook_added_or_removed_during_a_call_acts_from_the_next_call(
    make_agent: MakeAgent,
) -> None:
    log: list[str] = []
    late = Hook(log, "late")
    leaving = Hook(log, "leaving")
    agent = make_agent()

    def change(ctx: drut.PredictContext) -> None:
        if late not in agent.hooks:
            agent.add_hook(late)
            assert agent.remove_hook(leaving)

    agent.add_hook([Hook(log, "first", start=change), leaving])
    agent.predict("a", NOUL)
    assert log == ["first.start", "leaving.start", "first.end", "leaving.end"]
    agent.predict("a", NOUL)
    assert log[4:] == ["first.start", "late.start", "first.end", "late.end"]


def test_hooks_installed_for_a_block_are_gone_after_it_even_if_it_fails(
    make_agent: MakeAgent,
) -> None:
    log: list[str] = []
    agent = make_agent(hooks=Hook(log, "always"))

    def fail_inside() -> None:
        with agent.hooks_installed(Hook(log, "A"), Hook(log, "B")) as same:
            assert same is agent
            agent.predict("a", NOUL)
            raise LookupError

    with pytest.raises(LookupError):
        fail_inside()
    agent.predict("a", NOUL)
    inside = [f"{name}.{event}" for event in ("start", "end") for name in ("always", "A", "B")]
    assert log == [*inside, "always.start", "always.end"]


def test_per_call_hooks_leave_nothing_behind(make_agent: MakeAgent) -> None:
    log: list[str] = []
    agent = make_agent(hooks=Hook(log, "A"))
    agent.predict("a", NOUL, hooks=Hook(log, "B"), on_predict_start=lambda ctx: None)
    agent.predict("a", NOUL)
    assert log == ["A.start", "B.start", "A.end", "B.end", "A.start", "A.end"]
    assert len(agent.hooks) == 1


def test_the_constructor_and_the_call_accept_any_ordered_iterable_of_hooks(
    make_agent: MakeAgent,
) -> None:
    log: list[str] = []
    agent = make_agent(hooks=(Hook(log, name) for name in "AB"))
    for _ in range(2):
        agent.predict("a", NOUL, hooks=(Hook(log, name) for name in "CD"))
    once = [f"{name}.{event}" for event in ("start", "end") for name in "ABCD"]
    assert log == once * 2


@pytest.mark.parametrize(
    ("hooks", "message"),
    [
        ({Hook([])}, "hooks is a set, but hooks run in order: pass a list"),
        (Hook, "hooks is the class Hook; pass an instance of it"),
        ([Hook([]), Hook], r"hooks\[1\] is the class Hook; pass an instance of it"),
        (print, "hooks is a plain function; pass it as on_predict_start= or on_predict_end="),
        ([lambda ctx: None], r"hooks\[0\] is a plain function; pass it as on_predict_start="),
        (object(), "hooks is a object without any of the methods on_predict_start"),
    ],
)
def test_what_cannot_be_a_hook_is_refused_before_anything_runs(
    make_agent: MakeAgent, hooks: Any, message: str
) -> None:
    log: list[str] = []
    with pytest.raises(TypeError, match=message):
        make_agent(hooks=hooks)
    agent = make_agent(log, hooks=Hook(log))
    with pytest.raises(TypeError, match=message):
        agent.predict("a", NOUL, hooks=hooks)
    assert log == []


def test_a_bad_min_confidence_is_refused_before_any_hook(make_agent: MakeAgent) -> None:
    log: list[str] = []
    with pytest.raises(ValueError, match="min_confidence"):
        make_agent(log, hooks=Hook(log, start=skipping([cached()]))).predict(
            "a", NOUL, min_confidence=2
        )
    assert log == []
