"""The lifecycle page, Model lifecycle: requirements L127 to L140."""

import gc
import threading
import weakref
from typing import Any

import pytest

import drut
from drut.errors import CheckpointError
from lifecycle_helpers import NOUL, Hook, raising, together
from router_helpers import EN, KINDS, ML, TD, Kit, per_state


@pytest.fixture(params=KINDS)
def kit(request: Any) -> Kit:
    return Kit(request.param)


def loads_and_evictions(kit: Kit) -> list[str]:
    return [entry for entry in kit.log if entry.startswith(("A.load", "A.evict", "build"))]


def test_L127_on_load_fires_once_per_build(kit: Kit) -> None:
    router = kit.router(hooks=per_state(kit.log))
    for _ in range(3):
        router.load("EN")
    assert kit.log == ["build english", "A.load english"]


def test_L128_on_evict_fires_for_making_room_and_for_unload(kit: Kit) -> None:
    router = kit.router(max_loaded=1, hooks=per_state(kit.log))
    router.load(EN)
    router.load(ML)
    router.unload(ML)
    assert loads_and_evictions(kit) == [
        "build english",
        "A.load english",
        "build multilingual",
        "A.evict english",
        "A.load multilingual",
        "A.evict multilingual",
    ]


@pytest.mark.parametrize("event", ["load", "evict"])
def test_L129_a_hook_may_call_back_into_the_router(kit: Kit, event: str) -> None:
    seen: list[Any] = []

    def call_back(ctx: Any) -> None:
        if len(seen) < 3:
            seen.append(ctx.model)
            router = ctx.router
            router.predict("a", NOUL, model=TD)
            router.load(EN)
            together(1, lambda i: router.load(EN), timeout=5)
            router.unload(EN)
            seen.append(router.loaded)

    router = kit.router(max_loaded=3, hooks=per_state([], **{event: call_back}))
    together(1, lambda i: (router.load(ML), router.unload(ML)), timeout=20)
    assert seen
    assert router.loaded == [TD]


def test_L130_build_then_register_then_evict(kit: Kit) -> None:
    during: list[Any] = []
    router = kit.router(max_loaded=1)
    kit.building = lambda name: during.append((name, router.loaded))
    router.load(EN)
    router.load(ML)
    assert during == [(EN, []), (ML, [EN])]
    assert router.loaded == [ML]


def test_L130_the_least_recently_used_goes(kit: Kit) -> None:
    router = kit.router(max_loaded=2)
    router.load(EN)
    router.load(ML)
    router.predict("a", NOUL, model=EN)
    assert router.loaded == [ML, EN]
    router.load(TD)
    assert router.loaded == [EN, TD]


def test_L131_concurrent_first_calls_build_once(kit: Kit) -> None:
    kit.building = lambda name: threading.Event().wait(0.1)
    router = kit.router(hooks=Hook(kit.log))
    agents = together(8, lambda i: router.load(EN))
    assert kit.built == [EN]
    assert len(set(map(id, agents))) == 1
    assert kit.log.count("A.load") == 1


def test_L131_builds_of_different_checkpoints_do_not_wait_for_each_other(kit: Kit) -> None:
    meeting = threading.Barrier(2)
    kit.building = lambda name: meeting.wait(timeout=10)
    router = kit.router()
    agents = together(2, lambda i: router.load((EN, ML)[i]))
    assert agents == [kit.agents[EN], kit.agents[ML]]


def test_L131_resident_checkpoints_stay_usable_during_a_build(kit: Kit) -> None:
    building, go_on = threading.Event(), threading.Event()
    router = kit.router()
    router.load(EN)
    kit.building = lambda name: (building.set(), go_on.wait(10))
    thread = threading.Thread(target=router.load, args=(ML,))
    thread.start()
    try:
        assert building.wait(10)
        assert router.predict("a", NOUL, model=EN)["routing"]["model"] == EN
    finally:
        go_on.set()
        thread.join(10)
    assert sorted(router.loaded) == [EN, ML]


def test_L131_those_who_wait_for_a_failed_build_get_an_error_each(kit: Kit) -> None:
    waiting = threading.Barrier(4)
    cause = OSError("disk full")

    def fail(name: str) -> None:
        waiting.wait(10)
        threading.Event().wait(0.2)
        raise cause

    kit.building = fail
    router = kit.router()

    def load(index: int) -> Any:
        if index:
            waiting.wait(10)
        return router.load(EN)

    errors = together(4, load)
    others = [error for error in errors if error is not cause]
    assert len(others) == len(set(map(id, others))) == 3
    for error in others:
        assert isinstance(error, CheckpointError)
        assert error.__cause__ is cause
        assert "disk full" in str(error)
    kit.building = lambda name: None
    assert router.load(EN) is kit.agents[EN]


def test_L132_the_state_is_final_when_the_events_fire(kit: Kit) -> None:
    seen: list[Any] = []

    def note(ctx: Any) -> None:
        seen.append((ctx.model, ctx.router.loaded))

    router = kit.router(max_loaded=1, hooks=per_state([], load=note, evict=note))
    router.load(EN)
    router.load(ML)
    router.unload(ML)
    assert seen == [(EN, [EN]), (EN, [ML]), (ML, [ML]), (ML, [])]


def test_L133_every_evict_comes_before_the_load(kit: Kit) -> None:
    router = kit.router(max_loaded=3, hooks=per_state(kit.log))
    for name in (EN, ML, TD):
        router.load(name)
    router.max_loaded = 1
    kit.log.clear()
    router.load("starter")
    assert kit.log == [
        "build starter",
        "A.evict english",
        "A.evict multilingual",
        "A.evict typed-decisions",
        "A.load starter",
    ]


def test_L134_load_returns_the_agent(kit: Kit) -> None:
    router = kit.router()
    assert router.load(EN) is kit.agents[EN]
    assert router.load("en") is kit.agents[EN]


def test_L135_unload_fires_after_removing_and_outside_the_lock(kit: Kit) -> None:
    seen: list[Any] = []

    def look(ctx: Any) -> None:
        seen.extend(together(1, lambda i: ctx.router.loaded, timeout=5))

    router = kit.router(hooks=per_state(kit.log, evict=look))
    router.load(EN)
    router.unload("en")
    assert kit.log[-1] == "A.evict english"
    assert seen == [[]]


def test_L135_unload_of_all_fires_once_each_least_recently_used_first(kit: Kit) -> None:
    hook = per_state(kit.log, evict=raising(ValueError("evict")))
    router = kit.router(max_loaded=3, hooks=hook)
    for name in (ML, TD, EN):
        router.load(name)
    kit.log.clear()
    with pytest.raises(ValueError, match="evict"):
        router.unload()
    assert kit.log == ["A.evict multilingual", "A.evict typed-decisions", "A.evict english"]
    assert router.loaded == []


def test_L136_unload_of_what_is_not_resident_fires_nothing(kit: Kit) -> None:
    router = kit.router(hooks=Hook(kit.log))
    router.unload(EN)
    router.unload()
    assert kit.log == []
    with pytest.raises(ValueError, match="unknown checkpoint"):
        router.unload("nope")


def test_L135_unload_waits_for_a_build_in_flight(kit: Kit) -> None:
    building, go_on = threading.Event(), threading.Event()
    kit.building = lambda name: (building.set(), go_on.wait(10))
    router = kit.router(hooks=per_state(kit.log))
    threads = [threading.Thread(target=router.load, args=(EN,))]
    threads[0].start()
    assert building.wait(10)
    threads.append(threading.Thread(target=router.unload, args=(EN,)))
    threads[1].start()
    threads[1].join(0.2)
    assert threads[1].is_alive()
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert router.loaded == []
    assert sorted(kit.log) == ["A.evict english", "A.load english", "build english"]


def test_L137_L138_attach_makes_resident_and_fires_nothing(kit: Kit) -> None:
    router = kit.router(max_loaded=1, hooks=Hook(kit.log))
    mine, other = kit.agent(EN), kit.agent("mine")
    assert router.attach("EN", mine) is mine
    router.attach("Mine", other)
    assert router.loaded == [EN, "mine"]
    assert router.max_loaded == 2
    assert router.registered == {"mine": {"source": None, "description": None}}
    router.predict("a", NOUL, model="mine")
    assert [entry for entry in kit.log if not entry.startswith("A.")] == ["mine.one 1"]
    assert "A.load" not in kit.log


def test_L138_attach_in_place_of_a_resident_agent_fires_nothing(kit: Kit) -> None:
    router = kit.router(hooks=Hook(kit.log))
    built = router.load(EN)
    kit.log.clear()
    mine = router.attach(EN, kit.agent(EN))
    assert kit.log == []
    assert router.load(EN) is mine is not built


def test_L138_attach_during_a_build_wins(kit: Kit) -> None:
    building, go_on = threading.Event(), threading.Event()
    kit.building = lambda name: (building.set(), go_on.wait(10))
    router = kit.router(hooks=per_state(kit.log))
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(router.load(EN))) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert building.wait(10)
    mine = router.attach(EN, kit.agent(EN))
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert found == [mine, mine]
    assert kit.log == ["build english"]
    assert (kit.agents[EN].closed, mine.closed) == (1, 0)


def test_L139_L140_the_contexts_of_load_and_evict(kit: Kit) -> None:
    hook = Hook(kit.log)
    router = kit.router(hooks=hook)
    agent = router.load(EN)
    router.unload(EN)
    load, evict = hook.contexts
    assert (load.model, load.agent, load.router) == (EN, agent, router)
    assert (evict.model, evict.agent, evict.router) == (EN, None, router)
    assert (load.states, load.questions) == (evict.states, evict.questions) == ([], {})
    assert load.decision is load.results is load.error is None


def test_an_evicted_agent_is_closed_when_the_last_call_that_uses_it_ends(kit: Kit) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def calling(call: Any) -> None:
        if call.agent == EN:
            inside.set()
            go_on.wait(10)
            assert kit.agents[EN].closed == 0

    kit.calling = calling
    router = kit.router(max_loaded=1)
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(router.predict("a", NOUL, model=EN)))
    thread.start()
    assert inside.wait(10)
    router.predict("a", NOUL, model=ML)
    assert router.loaded == [ML]
    assert kit.agents[EN].closed == 0
    go_on.set()
    thread.join(10)
    assert results
    assert kit.agents[EN].closed == 1


def test_an_agent_that_load_returned_is_not_closed_by_an_eviction(kit: Kit) -> None:
    router = kit.router(max_loaded=1)
    agent = router.load(EN)
    router.predict("a", NOUL, model=ML)
    assert agent.closed == 0
    assert agent.system_one("a", NOUL)


def test_attached_agents_are_never_closed(kit: Kit) -> None:
    with kit.router(max_loaded=1) as router:
        mine = router.attach(EN, kit.agent(EN))
        router.max_loaded = 1
        router.predict("a", NOUL, model=ML)
        assert router.loaded == [ML]
        router.attach(EN, mine)
    assert mine.closed == 0
    assert kit.agents[ML].closed == 1


def test_close_closes_what_was_built_and_refuses_what_comes_later(kit: Kit) -> None:
    router = kit.router(hooks=per_state(kit.log))
    agent = router.load(EN)
    router.close()
    router.close()
    assert agent.closed == 1
    assert kit.log[-1] == "A.evict english"
    for call in (
        lambda: router.predict("a", NOUL, model=EN),
        lambda: router.load(EN),
        lambda: router.attach(EN, agent),
    ):
        with pytest.raises(drut.errors.RuntimeClosedError, match="the router is closed"):
            call()
    assert kit.built == [EN]


def test_a_build_in_flight_is_dropped_when_the_router_closes(kit: Kit) -> None:
    building, go_on = threading.Event(), threading.Event()
    kit.building = lambda name: (building.set(), go_on.wait(10))
    router = kit.router(hooks=Hook(kit.log))
    outcome: list[Any] = []
    thread = threading.Thread(target=lambda: outcome.extend(together(1, lambda i: router.load(EN))))
    thread.start()
    assert building.wait(10)
    router.close()
    go_on.set()
    thread.join(10)
    assert isinstance(outcome[0], drut.errors.RuntimeClosedError)
    assert kit.agents[EN].closed == 1
    assert kit.log == ["build english"]


def test_close_does_not_hide_an_exception_of_the_block(kit: Kit) -> None:
    router = kit.router(preload=[EN])
    with pytest.raises(ValueError, match="block"), router:
        raise ValueError("block")
    assert kit.agents[EN].closed == 1


def test_an_agent_that_fails_to_close_costs_no_call_its_answer(
    kit: Kit, caplog: pytest.LogCaptureFixture
) -> None:
    router = kit.router(max_loaded=1)
    router.predict("a", NOUL, model=EN)
    kit.agents[EN].close = raising(OSError("close"))
    assert router.predict("a", NOUL, model=ML)["routing"]["model"] == ML
    assert "closing" in caplog.text


def test_preload_builds_in_order_and_raises_the_cap(kit: Kit) -> None:
    router = kit.router(max_loaded=1)
    router.load(EN)
    assert router.preload(["ml", TD]) is router
    assert kit.built == [EN, ML, TD]
    assert router.loaded == [EN, ML, TD]
    assert router.max_loaded == 3


def test_preload_keeps_what_it_built_before_a_failure(kit: Kit) -> None:
    kit.building = lambda name: raising(OSError("disk"))(None) if name == TD else None
    router = kit.router()
    with pytest.raises(OSError, match="disk"):
        router.preload([EN, ML, TD])
    assert router.loaded == [EN, ML]


def test_preload_in_the_constructor_builds_all_that_have_a_source(kit: Kit) -> None:
    router = kit.router(preload=True, models={"mine": "org/mine", "attached": None})
    assert router.loaded == [EN, ML, TD, "starter", "mine"]
    assert kit.router(preload=["ml"]).loaded == [ML]


def test_a_pinned_checkpoint_is_not_evicted(kit: Kit) -> None:
    router = kit.router(max_loaded=2)
    router.pin("en")
    assert router.pinned == [EN]
    router.load(ML)
    router.load(TD)
    assert router.loaded == [EN, TD]
    router.unpin(EN)
    router.load(ML)
    assert router.loaded == [TD, ML]


def test_beside_pinned_checkpoints_the_one_used_last_stays(kit: Kit) -> None:
    router = kit.router(max_loaded=1)
    router.pin(EN)
    router.load(ML)
    router.load(TD)
    assert router.loaded == [EN, TD]
    router.unload(EN)
    assert router.pinned == []


def test_a_pin_that_cannot_be_loaded_is_no_pin(kit: Kit) -> None:
    kit.building = lambda name: raising(OSError("disk"))(None)
    router = kit.router()
    with pytest.raises(OSError, match="disk"):
        router.pin(EN)
    assert router.pinned == []


def test_thrashing_is_told_in_the_log(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    router = kit.router(max_loaded=1)
    for _ in range(3):
        router.load(EN)
        router.load(ML)
    assert "evicted and built again" not in caplog.text
    router.load(EN)
    assert "'english' was evicted and built again" in caplog.text
    assert "max_loaded above 1" in caplog.text


def test_the_memory_of_an_evicted_checkpoint_is_not_held_by_the_router(kit: Kit) -> None:
    router = kit.router(max_loaded=1)
    router.predict("a", NOUL, model=EN)
    router.predict_batch([{"state": "a", "questions": NOUL, "model": EN}])
    gone = weakref.ref(kit.agents.pop(EN))
    router.predict("a", NOUL, model=ML)
    gc.collect()
    assert gone() is None
