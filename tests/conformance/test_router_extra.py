"""What follows from the lifecycle page without being on it: X1 to X15, for the Router."""

import asyncio
import contextvars
import gc
import threading
import weakref
from typing import Any

import pytest

from drut.errors import CheckpointError, HookTimeoutError, InvalidTypeError
from lifecycle_helpers import NOUL, Hook, cached, raising, setting, skipping, together
from router_helpers import EN, KINDS, ML, Kit, ask, failing_on, models_of, per_state, request


@pytest.fixture(params=KINDS)
def kit(request: Any) -> Kit:
    return Kit(request.param)


@pytest.mark.parametrize("payload", ["x", None, 5, {"usage": "x"}], ids=repr)
@pytest.mark.parametrize("batch", [False, True])
def test_X01_a_malformed_skipped_payload_is_an_ordinary_failure(
    kit: Kit, payload: Any, batch: bool
) -> None:
    router = kit.router(hooks=Hook(kit.log, start=skipping([payload])))
    with pytest.raises(InvalidTypeError, match="must be a dict"):
        ask(router, batch)
    assert kit.log[-3:] == ["A.start", "A.error", "A.end"]


@pytest.mark.parametrize("batch", [False, True])
def test_X02_a_raising_end_hook_costs_the_next_hook_nothing(kit: Kit, batch: bool) -> None:
    hooks = [Hook(kit.log, "A", end=raising(ValueError("A"))), Hook(kit.log, "B")]
    router = kit.router(hooks=hooks)
    with pytest.raises(ValueError, match="A"):
        ask(router, batch)
    assert kit.log[-2:] == ["A.end", "B.end"]


def test_X03_after_a_raising_evict_hook_the_load_is_announced_and_stands(kit: Kit) -> None:
    router = kit.router(max_loaded=1, hooks=per_state(kit.log, evict=raising(ValueError("evict"))))
    router.load(EN)
    with pytest.raises(ValueError, match="evict"):
        router.predict("a", NOUL, model=ML)
    assert kit.log[-2:] == ["A.evict english", "A.load multilingual"]
    assert router.loaded == [ML]
    router.predict("a", NOUL, model=ML)
    assert kit.built == [EN, ML]


def test_X04_serial_timed_hooks_that_call_back_do_not_deadlock(kit: Kit) -> None:
    depth: list[int] = []

    class Nested:
        def on_predict_start(self, ctx: Any) -> None:
            if len(depth) < 3:
                depth.append(1)
                ctx.router.predict(f"inner {len(depth)}", NOUL, model=ML)
                ctx.router.unload(EN)

        on_load = on_evict = on_route = on_predict_start

    router = kit.router(max_loaded=1, hooks=Nested(), hooks_concurrent=False, hooks_timeout=20.0)
    results = together(3, lambda i: router.predict("outer", NOUL, model=EN), timeout=30)
    assert models_of(results) == [EN] * 3


@pytest.mark.parametrize("concurrent", [True, False])
def test_X05_async_hooks_in_a_running_loop_may_call_back(kit: Kit, concurrent: bool) -> None:
    depth: list[int] = []

    class Nested:
        async def on_predict_start(self, ctx: Any) -> None:
            await asyncio.sleep(0)
            if len(depth) < 3:
                depth.append(1)
                ctx.router.predict("inner", NOUL, model=ML)

    router = kit.router(hooks=Nested(), hooks_concurrent=concurrent)

    async def main() -> Any:
        return router.predict("outer", NOUL, model=EN)

    (result,) = together(1, lambda i: asyncio.run(main()), timeout=20)
    assert result["routing"]["model"] == EN
    assert len(depth) == 3


def test_X06_a_context_variable_of_a_timed_hook_is_there_at_the_end(kit: Kit) -> None:
    value = contextvars.ContextVar("value", default="outside")
    seen: list[Any] = []

    class Tracer:
        def on_predict_start(self, ctx: Any) -> None:
            self.token = value.set("inside")

        def on_predict_end(self, ctx: Any) -> None:
            seen.append(value.get())
            value.reset(self.token)
            seen.append(value.get())

    kit.router(hooks=Tracer(), hooks_timeout=20.0).predict("a", NOUL, model=EN)
    assert seen == ["inside", "outside"]


@pytest.mark.parametrize("event", ["error", "end"])
@pytest.mark.parametrize("batch", [False, True])
def test_X07_an_interrupt_on_the_way_out_gets_out(kit: Kit, event: str, batch: bool) -> None:
    interrupt, boom = KeyboardInterrupt("stop"), ValueError("boom")
    kit.calling = failing_on(EN, boom)
    hooks = [Hook(kit.log, "A", **{event: raising(interrupt)}), Hook(kit.log, "B")]
    router = kit.router(hooks=hooks)
    with pytest.raises(KeyboardInterrupt) as caught:
        ask(router, batch)
    assert caught.value is interrupt
    assert caught.value.__context__ is boom
    assert kit.log[-4:] == ["A.error", "B.error", "A.end", "B.end"]


def test_X08_an_interrupted_build_is_not_the_interrupt_of_those_who_wait(kit: Kit) -> None:
    building = threading.Event()

    def interrupted(name: str) -> None:
        if len(kit.built) == 1:
            building.set()
            threading.Event().wait(0.2)
            raise KeyboardInterrupt

    kit.building = interrupted
    router = kit.router(hooks=Hook(kit.log))

    def load(index: int) -> Any:
        if index:
            building.wait(10)
        return router.load(EN)

    first, *others = together(4, load)
    assert isinstance(first, KeyboardInterrupt)
    assert others == [kit.agents[EN]] * 3
    assert kit.built == [EN, EN]
    assert kit.log.count("A.load") == 1


def test_X09_a_build_may_load_another_checkpoint(kit: Kit) -> None:
    router = kit.router(hooks=per_state(kit.log))
    kit.building = lambda name: router.load(ML) if name == EN else None
    (agent,) = together(1, lambda i: router.load(EN), timeout=10)
    assert agent is kit.agents[EN]
    assert kit.log == [
        "build english",
        "build multilingual",
        "A.load multilingual",
        "A.load english",
    ]


def test_X09_a_build_that_loads_itself_is_told_instead_of_waiting(kit: Kit) -> None:
    router = kit.router()
    kit.building = lambda name: router.load(ML if name == EN else EN)
    (error,) = together(1, lambda i: router.load(EN), timeout=10)
    assert isinstance(error, CheckpointError)
    assert "needs 'english', whose own build waits for 'english'" in str(error)
    assert router.loaded == []


def test_X09_builds_of_two_threads_that_need_each_other_do_not_deadlock(kit: Kit) -> None:
    meeting = threading.Barrier(2)
    router = kit.router()

    def building(name: str) -> None:
        meeting.wait(10)
        router.load(ML if name == EN else EN)

    kit.building = building
    outcomes = together(2, lambda i: router.load((EN, ML)[i]), timeout=10)
    assert all(isinstance(outcome, CheckpointError) for outcome in outcomes)
    assert any("own build waits for" in str(outcome) for outcome in outcomes)


def test_X09_a_build_may_unload_without_waiting_for_itself(kit: Kit) -> None:
    router = kit.router()
    kit.building = lambda name: router.unload()
    (agent,) = together(1, lambda i: router.load(EN), timeout=10)
    assert agent is kit.agents[EN]


def test_X10_no_reference_to_the_first_agent_is_held_between_groups(kit: Kit) -> None:
    alive: list[Any] = []
    router = kit.router()

    def building(name: str) -> None:
        if name == ML:
            first = weakref.ref(kit.agents.pop(EN))
            router.unload(EN)
            gc.collect()
            alive.append(first())

    kit.building = building
    router.predict_batch([request("1", EN), request("2", ML)])
    assert alive == [None]


def test_X11_route_and_predict_contexts_of_a_request_share_a_run_id(kit: Kit) -> None:
    hook = Hook([])
    router = kit.router(hooks=hook)
    router.load(EN)
    hook.contexts.clear()
    router.predict("a", NOUL, model=EN)
    assert len({ctx.run_id for ctx in hook.contexts}) == 1
    assert len(hook.contexts) == 3
    hook.contexts.clear()
    router.predict_batch([request("1"), request("2")])
    ids = [ctx.run_id for ctx in hook.contexts]
    assert ids == [ids[0], ids[1], ids[0], ids[1], ids[1], ids[0]]
    assert ids[0] != ids[1]


@pytest.mark.parametrize("batch", [False, True])
def test_X12_an_inner_type_error_about_lang_is_not_answered_by_a_second_inference(
    kit: Kit, batch: bool
) -> None:
    exc = TypeError("predict() got an unexpected keyword argument 'lang'")
    kit.calling = failing_on(EN, exc)
    router = kit.router()
    with pytest.raises(TypeError) as caught:
        ask(router, batch, lang="en")
    assert caught.value is exc
    assert len(kit.calls) == 1


def test_X13_a_call_made_inside_an_agent_call_fires_all_its_hooks(kit: Kit) -> None:
    nested: list[Any] = []
    router = kit.router(hooks=per_state(kit.log))

    def calling(call: Any) -> None:
        if call.states == ["outer"]:
            nested.append(router.predict("inner", NOUL, model=EN))

    kit.calling = calling
    router.predict("outer", NOUL, model=EN)
    assert nested
    assert [entry for entry in kit.log if "inner" in entry] == [
        "A.route inner",
        "A.start inner",
        "A.end inner",
    ]


@pytest.mark.parametrize("batch", [False, True])
def test_X14_an_error_set_by_a_start_hook_is_no_failure(kit: Kit, batch: bool) -> None:
    router = kit.router(hooks=Hook(kit.log, start=setting(error=ValueError("mine"))))
    ask(router, batch)
    assert "A.error" not in kit.log


def test_X15_question_ids_of_different_types_are_not_merged(kit: Kit) -> None:
    definition = NOUL["n"]
    one, other = {1: definition}, {"1": definition}
    results = kit.router().predict_batch(
        [request("a", questions=one), request("a", questions=other)]
    )
    assert [call.questions for call in kit.calls] == [one, other]
    if kit.kind != "stub":
        assert [list(result["answers"]) for result in results] == [[1], ["1"]]


def test_a_hook_that_hangs_costs_its_limit_and_not_the_end_events(kit: Kit) -> None:
    go_on = threading.Event()

    def hang(ctx: Any) -> None:
        go_on.wait(20)

    hooks = [Hook(kit.log, "A", start=hang), Hook(kit.log, "B")]
    router = kit.router(hooks=hooks, hooks_timeout=0.2)
    try:
        with pytest.raises(HookTimeoutError):
            router.predict("a", NOUL, model=EN)
    finally:
        go_on.set()
    assert kit.log[-5:] == ["A.start", "A.error", "B.error", "A.end", "B.end"]


def test_a_cached_result_is_not_shared_between_the_requests_of_a_batch(kit: Kit) -> None:
    one = cached()
    results = kit.router().predict_batch(
        [request("1"), request("2")], on_predict_start=skipping([one])
    )
    results[0]["routing"]["model"] = "edited"
    assert results[1]["routing"]["model"] == EN
    assert "routing" not in one
