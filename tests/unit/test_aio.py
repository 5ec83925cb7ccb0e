"""Coroutines get the same answers, hooks and errors, and leave nothing behind when they stop."""

import asyncio
import gc
import inspect
import threading
import time
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextvars import ContextVar
from typing import Any

import pytest

import drut
from drut.aio import AsyncAgent, AsyncRouter
from drut.errors import (
    DeadlineExceededError,
    HookTimeoutError,
    InvalidRequestError,
    InvalidTypeError,
    OverloadedError,
    RuntimeClosedError,
)
from drut.settings import shipped_repository
from drut.tensors import Batch
from lifecycle_helpers import (
    NOUL,
    AsyncHook,
    Hook,
    make_fake_agent,
    noting,
    raising,
    together,
    wait_until,
)
from router_helpers import EN, ML, Kit, request

STARTER = str(shipped_repository() / "starter")
VARIABLE: ContextVar[str] = ContextVar("variable", default="nobody's")


def run(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run a coroutine function; a hang is an error after a while."""

    async def limited() -> Any:
        async with asyncio.timeout(30):
            return await work()

    return asyncio.run(limited())


async def until(condition: Callable[[], bool]) -> None:
    """Wait for another thread to get somewhere."""
    for _ in range(4000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not happen")


class Stuck:
    """What a runtime does before its passes: wait until the test lets it go on."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.passes = 0

    def __call__(self, batch: Batch) -> None:
        self.passes += 1
        assert self.go_on.wait(20)


def call_threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name == "drut-call"}


def test_answers_are_those_of_the_agent() -> None:
    plain = make_fake_agent()
    states = ["I was charged twice", {"a": [1, None]}, "third"]

    async def work() -> None:
        async with AsyncAgent(make_fake_agent()) as agent:
            assert await agent.predict_batch(states, NOUL) == plain.predict_batch(states, NOUL)
            assert await agent.predict("a", NOUL) == plain.predict("a", NOUL)
            assert await agent.predict("a", NOUL, max_len=64) == plain.predict(
                "a", NOUL, max_len=64
            )
            long = "the customer was billed twice in march " * 40
            assert await agent.predict_long(long, NOUL) == plain.predict_long(long, NOUL)
            assert await agent.state_capacity(NOUL) == plain.state_capacity(NOUL)
            assert (await agent.logits(["a"], NOUL)).keys() == {"n"}
            assert await agent.warmup([(1, 8, 2)]) >= 0
            assert agent.model_id == plain.model_id
            assert agent.device == plain.device
            assert agent.describe() == plain.describe()
            assert agent.statistics()["queue"]["passes"] > 0

    run(work)


@pytest.mark.parametrize(
    ("plain", "coroutine"), [(drut.Agent, AsyncAgent), (drut.Router, AsyncRouter)]
)
def test_every_method_is_there_with_the_same_signature(plain: type, coroutine: type) -> None:
    quick = {"describe", "statistics", "add_hook", "remove_hook", "hooks_installed", "close"}
    for name, method in inspect.getmembers(plain, callable):
        if name.startswith("_"):
            continue
        found = getattr(coroutine, name)
        if name == "predict_stream":
            parameters = inspect.signature(found).parameters
            assert parameters == inspect.signature(method).parameters
        elif name in quick:
            assert not inspect.iscoroutinefunction(found), name
        else:
            assert inspect.iscoroutinefunction(found), name
            assert inspect.signature(found) == inspect.signature(method), name
            assert found.__doc__ == method.__doc__


def test_a_stream_is_answered_window_by_window_and_what_was_read_before_it_failed() -> None:
    read: list[int] = []
    sizes: list[int] = []

    def source(fails: bool) -> Iterator[str]:
        for index in range(8):
            read.append(index)
            yield f"state {index}"
        if fails:
            raise OSError("the file ended early")

    async def work() -> None:
        core = make_fake_agent(hooks=Hook([], start=lambda ctx: sizes.append(len(ctx.states))))
        expected = make_fake_agent().predict_batch([f"state {index}" for index in range(8)], NOUL)
        async with AsyncAgent(core) as agent:
            found = [each async for each in agent.predict_stream(source(False), NOUL, window=3)]
            assert (found, sizes) == (expected, [3, 3, 2])
            found.clear()
            with pytest.raises(OSError, match="ended early"):  # noqa: PT012
                async for each in agent.predict_stream(source(True), NOUL, window=3):
                    found.append(each)
            assert found == expected
            read.clear()
            stream = agent.predict_stream(source(False), NOUL, window=4)
            assert read == []
            await anext(stream)
            assert read == [0, 1, 2, 3]
            with pytest.raises(InvalidTypeError):
                agent.predict_stream("one state", NOUL)
        async with AsyncRouter(Kit("fake").router()) as router:
            requests = [request(name, EN) for name in "abc"]
            answers = [each async for each in router.predict_stream(requests, window=2)]
            assert [each["routing"]["model"] for each in answers] == [EN] * 3

    run(work)


def test_predict_is_system_one() -> None:
    assert AsyncAgent.predict is AsyncAgent.system_one
    assert AsyncRouter.predict is AsyncRouter.system_one


@pytest.mark.parametrize("kind", [AsyncAgent, AsyncRouter])
def test_only_an_opened_core_is_taken(kind: Any) -> None:
    with pytest.raises(InvalidTypeError, match="takes a"):
        kind("starter")


@pytest.mark.parametrize(
    "options", [{"max_calls": 0}, {"max_waiting_calls": -1}, {"max_calls": 2.0}]
)
def test_bounds_are_whole_numbers(options: Any) -> None:
    with pytest.raises(InvalidRequestError, match="max_"):
        AsyncAgent(make_fake_agent(), **options)


@pytest.mark.parametrize("limit", [None, 20.0], ids=["no limit", "timed"])
def test_coroutine_hooks_run_on_the_callers_loop_and_others_on_the_calls_thread(
    limit: float | None,
) -> None:
    seen: list[Any] = []

    class Where(drut.BaseHook):
        async def on_predict_start(self, ctx: drut.PredictContext) -> None:
            await asyncio.sleep(0)
            seen.append((asyncio.get_running_loop(), VARIABLE.get()))

        def on_predict_end(self, ctx: drut.PredictContext) -> None:
            seen.append((threading.current_thread().name, VARIABLE.get()))

    async def work() -> Any:
        VARIABLE.set("the caller's")
        async with AsyncAgent(make_fake_agent(hooks=Where(), hooks_timeout=limit)) as agent:
            await agent.predict("a", NOUL)
        return asyncio.get_running_loop()

    loop = run(work)
    name = "drut-call" if limit is None else "drut-hook"
    assert seen == [(loop, "the caller's"), (name, "the caller's")]


def test_what_a_start_hook_sets_is_there_in_its_end_hook() -> None:
    left: list[str] = []

    class Scope(drut.BaseHook):
        async def on_predict_start(self, ctx: drut.PredictContext) -> None:
            self.token = VARIABLE.set("the hook's")

        async def on_predict_end(self, ctx: drut.PredictContext) -> None:
            left.append(VARIABLE.get())
            VARIABLE.reset(self.token)
            left.append(VARIABLE.get())

    run(lambda: AsyncAgent(make_fake_agent(hooks=Scope())).predict("a", NOUL))
    assert left == ["the hook's", "nobody's"]


@pytest.mark.parametrize("concurrent", [True, False], ids=["concurrent", "serial"])
@pytest.mark.parametrize("limit", [None, 20.0], ids=["no limit", "timed"])
def test_a_coroutine_hook_may_await_its_agent_though_no_further_call_is_allowed(
    concurrent: bool, limit: float | None
) -> None:
    log: list[int] = []

    class Nesting(drut.BaseHook):
        async def on_predict_start(self, ctx: drut.PredictContext) -> None:
            log.append(len(ctx.states))
            if len(ctx.states) < 4:
                await agents[0].predict_batch(["a"] * (len(ctx.states) + 1), NOUL)

    agents: list[AsyncAgent] = []
    core = make_fake_agent(hooks=Nesting(), hooks_concurrent=concurrent, hooks_timeout=limit)

    async def work() -> None:
        async with AsyncAgent(core, max_calls=1, max_waiting_calls=0) as agent:
            agents.append(agent)
            await agent.predict("a", NOUL)

    run(work)
    assert log == [1, 2, 3, 4]


@pytest.mark.parametrize("way", ["on the loop", "on a thread"])
@pytest.mark.parametrize("limit", [None, 20.0], ids=["no limit", "timed"])
def test_a_coroutine_hook_may_call_its_agent_without_awaiting(way: str, limit: Any) -> None:
    log: list[int] = []

    class Calling(drut.BaseHook):
        async def on_predict_start(self, ctx: drut.PredictContext) -> None:
            log.append(len(ctx.states))
            again = ["a"] * (len(ctx.states) + 1)
            if len(ctx.states) > 2:
                return
            if way == "on the loop":
                ctx.agent.predict_batch(again, NOUL)
            else:
                await asyncio.to_thread(ctx.agent.predict_batch, again, NOUL)

    core = make_fake_agent(hooks=Calling(), hooks_concurrent=False, hooks_timeout=limit)
    run(lambda: AsyncAgent(core).predict("a", NOUL))
    assert log == [1, 2, 3]


@pytest.mark.parametrize("hook_class", [Hook, AsyncHook])
def test_errors_and_interrupts_reach_the_coroutine(hook_class: type[Hook]) -> None:
    mistake = ZeroDivisionError("hook")

    async def work() -> None:
        agent = AsyncAgent(make_fake_agent())
        with pytest.raises(ZeroDivisionError) as caught:
            await agent.predict("a", NOUL, hooks=hook_class([], start=raising(mistake)))
        assert caught.value is mistake
        with pytest.raises(InvalidTypeError):
            await agent.predict_batch("a", NOUL)
        with pytest.raises(InvalidRequestError):
            await agent.predict("a", NOUL, max_len=1)

    run(work)


def test_a_cancelled_call_ends_like_a_failed_one() -> None:
    log: list[str] = []
    errors: list[Any] = []
    stuck = Stuck()
    hooks = [Hook(log, "A", end=noting(errors, "error")), AsyncHook(log, "B")]
    core = make_fake_agent(before=stuck, hooks=hooks)

    async def work() -> None:
        agent = AsyncAgent(core)
        first = asyncio.create_task(agent.predict("first", NOUL))
        await until(lambda: stuck.passes == 1)
        second = asyncio.create_task(agent.predict("second", NOUL))
        await until(lambda: log == ["A.start", "B.start"] * 2)
        await until(lambda: core.queue is None or core.queue.stats().waiting_rows == 1)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert log[4:] == ["A.error", "B.error", "A.end", "B.end"]
        stuck.go_on.set()
        await first
        await agent.aclose()

    run(work)
    assert isinstance(errors[0][0], asyncio.CancelledError)
    assert errors[1][0] is None
    assert stuck.passes == 1


def test_a_timeout_of_asyncio_holds_where_a_pass_hangs_and_the_hooks_run_behind_it() -> None:
    log: list[str] = []
    errors: list[Any] = []
    stuck = Stuck()
    core = make_fake_agent(before=stuck, hooks=Hook(log, end=noting(errors, "error")))

    async def work() -> None:
        agent = AsyncAgent(core)
        task = asyncio.create_task(agent.predict("a", NOUL))
        await until(lambda: stuck.passes == 1)
        begin = time.monotonic()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await task
        assert time.monotonic() - begin < 5
        assert log == ["A.start"]
        stuck.go_on.set()
        await agent.aclose()

    run(work)
    assert log == ["A.start", "A.error", "A.end"]
    assert isinstance(errors[0][0], asyncio.CancelledError)


def test_a_cancelled_call_cancels_the_hook_it_waits_for() -> None:
    log: list[str] = []

    class Patient(Hook):
        async def on_predict_start(self, ctx: drut.PredictContext) -> None:
            log.append("waiting")
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                log.append("cancelled")
                raise

        async def on_predict_end(self, ctx: drut.PredictContext) -> None:
            await asyncio.sleep(0)
            log.append(f"end {type(ctx.error).__name__}")

    async def work() -> None:
        agent = AsyncAgent(make_fake_agent(hooks=Patient([])))
        task = asyncio.create_task(agent.predict("a", NOUL))
        await until(lambda: log == ["waiting"])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await agent.aclose()

    run(work)
    assert log == ["waiting", "cancelled", "end CancelledError"]


def test_a_hook_that_hangs_does_not_keep_a_cancelled_coroutine() -> None:
    release, entered = threading.Event(), threading.Event()

    def hang(ctx: drut.PredictContext) -> None:
        entered.set()
        release.wait(20)

    async def work() -> None:
        agent = AsyncAgent(make_fake_agent(hooks=Hook([], start=hang)))
        task = asyncio.create_task(agent.predict("a", NOUL))
        await until(entered.is_set)
        begin = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - begin < 5
        release.set()
        await agent.aclose()

    run(work)


def test_a_call_that_is_cancelled_before_it_begins_fires_no_hook() -> None:
    log: list[str] = []
    stuck = Stuck()

    async def work() -> None:
        agent = AsyncAgent(make_fake_agent(before=stuck), max_calls=1)
        first = asyncio.create_task(agent.predict("first", NOUL))
        await until(lambda: stuck.passes == 1)
        second = asyncio.create_task(agent.predict("second", NOUL, hooks=Hook(log)))
        await asyncio.sleep(0.01)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        stuck.go_on.set()
        await first
        await agent.aclose()

    run(work)
    assert (log, stuck.passes) == ([], 1)


def test_a_deadline_holds_where_a_call_waits_for_a_thread() -> None:
    log: list[str] = []
    stuck = Stuck()

    async def work() -> None:
        agent = AsyncAgent(make_fake_agent(before=stuck), max_calls=1)
        first = asyncio.create_task(agent.predict("first", NOUL))
        await until(lambda: stuck.passes == 1)
        with drut.deadline(0.02), pytest.raises(DeadlineExceededError, match="for a thread"):
            await agent.predict("second", NOUL, hooks=Hook(log))
        stuck.go_on.set()
        await first
        with drut.deadline(20):
            await agent.predict("third", NOUL, hooks=Hook(log))
        await agent.aclose()

    run(work)
    assert log == ["A.start", "A.end"]


def test_a_deadline_that_has_passed_fails_at_once() -> None:
    async def work() -> None:
        with drut.deadline(1e-9):
            await asyncio.sleep(0.001)
            with pytest.raises(DeadlineExceededError):
                await AsyncAgent(make_fake_agent()).predict("a", NOUL)

    run(work)


def test_calls_beyond_the_bounds_wait_in_order_or_are_refused() -> None:
    order: list[str] = []
    stuck = Stuck()

    async def work() -> None:
        agent = AsyncAgent(make_fake_agent(before=stuck), max_calls=1, max_waiting_calls=2)
        hook = Hook([], start=lambda ctx: order.append(ctx.states[0]))
        tasks = []
        for name in ("a", "b", "c"):
            tasks.append(asyncio.create_task(agent.predict(name, NOUL, hooks=hook)))
            await asyncio.sleep(0)
            await until(lambda: stuck.passes == 1)
        with pytest.raises(OverloadedError, match=r"max_calls or max_waiting_calls"):
            await agent.predict("d", NOUL, hooks=hook)
        stuck.go_on.set()
        await asyncio.gather(*tasks)
        await agent.aclose()

    run(work)
    assert order == ["a", "b", "c"]


def test_hundreds_of_tasks_share_a_few_threads() -> None:
    others = call_threads()
    most = 0
    core = make_fake_agent()
    expected = [core.predict(f"state {index}", NOUL) for index in range(300)]

    async def work() -> Any:
        nonlocal most
        async with AsyncAgent(core, max_calls=8) as agent:
            tasks = [
                asyncio.create_task(agent.predict(f"state {index}", NOUL)) for index in range(300)
            ]
            while not all(task.done() for task in tasks):
                most = max(most, len(call_threads() - others))
                await asyncio.sleep(0.001)
            return [task.result() for task in tasks]

    assert run(work) == expected
    assert 1 <= most <= 8


def test_several_loops_share_an_agent() -> None:
    seen: list[Any] = []

    async def hook(ctx: drut.PredictContext) -> None:
        seen.append((ctx.states[0], asyncio.get_running_loop()))

    agent = AsyncAgent(make_fake_agent(on_predict_start=hook), max_calls=2)
    loops: dict[str, Any] = {}

    def work(index: int) -> Any:
        async def calls() -> Any:
            loops[f"loop {index}"] = asyncio.get_running_loop()
            return await asyncio.gather(*(agent.predict(f"loop {index}", NOUL) for _ in range(5)))

        return run(calls)

    outcomes = together(4, work)
    agent.close()
    assert [len(outcome) for outcome in outcomes] == [5] * 4
    assert len(seen) == 20
    assert all(loops[name] is loop for name, loop in seen)


def test_closing_waits_for_what_was_accepted() -> None:
    stuck = Stuck()
    core = make_fake_agent(before=stuck)

    async def work() -> None:
        agent = AsyncAgent(core, max_calls=1)
        tasks = [asyncio.create_task(agent.predict(name, NOUL)) for name in "ab"]
        await until(lambda: stuck.passes == 1)
        closing = asyncio.create_task(agent.aclose())
        await asyncio.sleep(0.01)
        assert not closing.done()
        with pytest.raises(RuntimeClosedError):
            await agent.predict("c", NOUL)
        stuck.go_on.set()
        await closing
        assert await asyncio.gather(*tasks) == [make_fake_agent().predict(n, NOUL) for n in "ab"]
        with pytest.raises(RuntimeClosedError):
            core.predict("d", NOUL)

    run(work)


def test_closing_at_once_fails_what_waits() -> None:
    stuck = Stuck()
    core = make_fake_agent(before=stuck)

    async def work() -> None:
        agent = AsyncAgent(core)
        first = asyncio.create_task(agent.predict("a", NOUL))
        await until(lambda: stuck.passes == 1)
        second = asyncio.create_task(agent.predict("b", NOUL))
        await until(lambda: core.queue is not None and core.queue.stats().waiting_rows == 1)
        agent.close()
        with pytest.raises(RuntimeClosedError):
            await second
        stuck.go_on.set()
        assert await first == make_fake_agent().predict("a", NOUL)

    run(work)


@pytest.mark.parametrize("way", ["close", "aclose", "forget"])
def test_no_thread_outlives_the_agent(way: str) -> None:
    others = set(threading.enumerate())

    async def work() -> Any:
        agent = AsyncAgent(make_fake_agent())
        await asyncio.gather(*(agent.predict(f"{index}", NOUL) for index in range(20)))
        if way == "close":
            agent.close()
        elif way == "aclose":
            await agent.aclose()

    run(work)
    gc.collect()
    wait_until(lambda: not set(threading.enumerate()) - others)


def test_a_hook_may_close_the_agent() -> None:
    async def work() -> None:
        agent = AsyncAgent(make_fake_agent())
        hook = Hook([], end=lambda ctx: agent.close())
        await agent.predict("a", NOUL, hooks=hook)
        with pytest.raises(RuntimeClosedError):
            await agent.predict("a", NOUL)

    run(work)


def test_an_abandoned_coroutine_is_no_error_when_its_loop_is_gone() -> None:
    stuck = Stuck()
    agent = AsyncAgent(make_fake_agent(before=stuck))

    async def work() -> None:
        task = asyncio.create_task(agent.predict("a", NOUL))
        await until(lambda: stuck.passes == 1)
        task.cancel()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(work())
        stuck.go_on.set()
        agent.close()
        wait_until(lambda: not agent._threads._threads)


def test_a_timed_coroutine_hook_fails_the_call_in_time() -> None:
    async def work() -> None:
        agent = AsyncAgent(make_fake_agent())

        async def slow(ctx: drut.PredictContext) -> None:
            await asyncio.sleep(1.0)

        with pytest.raises(HookTimeoutError):
            await agent.predict("a", NOUL, on_predict_start=slow, hooks_timeout=0.02)
        await agent.aclose()
        await asyncio.sleep(1.0)

    run(work)


def test_hooks_are_those_of_the_core() -> None:
    log: list[str] = []
    core = make_fake_agent()
    agent = AsyncAgent(core)
    hook = Hook(log)
    assert agent.add_hook(hook) is agent
    assert agent.hooks == core.hooks == (hook,)
    with agent.hooks_installed(Hook(log, "B")) as same:
        assert same is agent
        run(lambda: agent.predict("a", NOUL))
    assert log == ["A.start", "B.start", "A.end", "B.end"]
    assert agent.remove_hook(hook)
    assert core.hooks == ()


def test_a_router_answers_coroutines() -> None:
    kit = Kit("fake")
    log: list[str] = []

    class Routing(drut.BaseHook):
        async def on_route(self, ctx: drut.PredictContext) -> None:
            await asyncio.sleep(0)
            log.append("route")

        async def on_load(self, ctx: drut.PredictContext) -> None:
            log.append(f"load {ctx.model}")

        async def on_evict(self, ctx: drut.PredictContext) -> None:
            log.append(f"evict {ctx.model}")

    async def work() -> None:
        async with AsyncRouter(kit.router(hooks=Routing(), max_loaded=1)) as router:
            assert (await router.route("hello", model=EN)).model == EN
            result = await router.predict("a", NOUL, model=EN)
            assert result["routing"]["model"] == EN
            results = await router.predict_batch([request("a", EN), request("b", ML)])
            assert [each["routing"]["model"] for each in results] == [EN, ML]
            assert router.loaded == [ML]
            assert await router.preload([EN, ML]) is router
            assert await router.pin(EN) is router
            assert await router.unpin(EN) is router
            await router.unload()
            own = kit.agent("own")
            assert await router.attach("own", own) is own
            assert await router.load("own") is own
        with pytest.raises(RuntimeClosedError):
            await router.predict("a", NOUL, model=EN)

    run(work)
    assert log[:4] == ["route", "route", f"load {EN}", "route"]
    assert f"evict {EN}" in log


def test_a_router_holds_its_lease_while_a_call_waits_and_gives_it_back_when_cancelled() -> None:
    stuck = Stuck()
    core = make_fake_agent(before=stuck)
    router = drut.Router(factory=lambda name: core, max_loaded=1)

    async def work() -> None:
        caller = AsyncRouter(router)
        first = asyncio.create_task(caller.predict("a", NOUL, model=EN))
        await until(lambda: stuck.passes == 1)
        second = asyncio.create_task(caller.predict("b", NOUL, model=EN))
        await until(lambda: core.queue is not None and core.queue.stats().waiting_rows == 1)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        stuck.go_on.set()
        await first
        [slot] = router._residency._table._slots.values()
        assert slot.leases == 0
        await caller.aclose()

    run(work)


def test_agents_and_routers_are_opened_off_the_loop() -> None:
    async def work() -> None:
        agent = await AsyncAgent.load("starter", device="cpu", threads=1, max_calls=3)
        assert agent.model_id == "starter"
        async with agent:
            assert (await agent.predict("It crashes", NOUL))["answers"].keys() == {"n"}
        async with await AsyncRouter.create({"mine": STARTER}, device="cpu") as router:
            assert (await router.predict("It crashes", NOUL, model="mine"))["answers"]

    run(work)
