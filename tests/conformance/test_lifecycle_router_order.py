"""The lifecycle page, Caching, Ordering rules and Concurrency, as far as a Router goes.

Requirements L141 to L144 and L152 to L165.
"""

import threading
import time
from typing import Any

import pytest

from lifecycle_helpers import NOUL, Hook, cached, noting, raising, setting, skipping, together
from router_helpers import EN, KINDS, ML, Kit, failing_on, models_of, per_state, request


@pytest.fixture(params=KINDS)
def kit(request: Any) -> Kit:
    return Kit(request.param)


def events(kit: Kit) -> list[str]:
    return [entry for entry in kit.log if entry[1] == "."]


def test_L141_L142_L144_a_cache_saves_the_second_call(kit: Kit) -> None:
    store: dict[str, Any] = {}

    class Cache:
        def on_predict_start(self, ctx: Any) -> None:
            if ctx.states[0] in store:
                ctx.skip([store[ctx.states[0]]])

        def on_predict_end(self, ctx: Any) -> None:
            kit.log.append("end")
            store[ctx.states[0]] = ctx.results[0]

    router = kit.router(hooks=Cache())
    first = router.predict("a", NOUL, model=EN)
    assert router.predict("a", NOUL, model=EN) == first
    assert len(kit.calls) == 1
    assert kit.log.count("end") == 2


def test_L143_routing_is_added_only_if_missing(kit: Kit) -> None:
    router = kit.router()
    bare = router.predict("a", NOUL, model=EN, on_predict_start=skipping([cached()]))
    own = {**cached(), "routing": None}
    kept = router.predict("a", NOUL, model=EN, on_predict_start=skipping([own]))
    assert bare["routing"]["model"] == EN
    assert kept["routing"] is None


@pytest.mark.parametrize("count", [0, 2])
def test_A18_a_skip_holds_one_result(kit: Kit, count: int) -> None:
    router = kit.router(hooks=Hook(kit.log))
    with pytest.raises(ValueError, match="skip got"):
        router.predict("a", NOUL, model=EN, on_predict_start=skipping([cached()] * count))
    assert kit.log[-2:] == ["A.error", "A.end"]


def test_A18_results_for_states_a_hook_invented_are_refused(kit: Kit) -> None:
    def invent(ctx: Any) -> None:
        ctx.states = ["a", "b"]
        ctx.skip([cached(), cached()])

    with pytest.raises(ValueError, match="answered with 2 results"):
        kit.router().predict("a", NOUL, model=EN, on_predict_start=invent)


def test_L148_L150_no_questions_is_an_empty_answer_with_events(kit: Kit) -> None:
    router = kit.router(hooks=Hook(kit.log))
    result = router.predict("a", {}, model=EN)
    assert result["answers"] == {}
    assert result["routing"]["model"] == EN
    assert kit.log[-3:] == ["A.start", "english.one 1", "A.end"]


def test_L152_L153_L158_installed_before_per_call_in_list_order_for_every_event(kit: Kit) -> None:
    log = kit.log
    kit.calling = failing_on(EN, ValueError("boom"))
    router = kit.router(hooks=[Hook(log, "A"), Hook(log, "B")])
    with pytest.raises(ValueError, match="boom"):
        router.predict("a", NOUL, model=EN, hooks=[Hook(log, "C"), Hook(log, "D")])
    assert events(kit) == [
        *(f"{hook}.route" for hook in "ABCD"),
        *(f"{hook}.load" for hook in "AB"),
        *(f"{hook}.{event}" for event in ("start", "error", "end") for hook in "ABCD"),
    ]


def test_A11_hooks_of_the_call_hear_of_no_load_and_no_eviction(kit: Kit) -> None:
    router = kit.router(max_loaded=1)
    hook = Hook(kit.log)
    router.predict("a", NOUL, model=EN, hooks=hook)
    router.predict("a", NOUL, model=ML, hooks=hook)
    assert {entry for entry in events(kit)} == {"A.route", "A.start", "A.end"}


@pytest.mark.parametrize("event", ["load", "evict", "error", "end"])
@pytest.mark.parametrize("exc", [ValueError("hook"), KeyboardInterrupt("hook")], ids=repr)
def test_L154_a_raising_hook_keeps_no_other_from_its_event(
    kit: Kit, event: str, exc: BaseException
) -> None:
    hooks = [per_state(kit.log, "A", **{event: raising(exc)}), per_state(kit.log, "B")]
    router = kit.router(max_loaded=1, hooks=hooks)
    if event == "evict":
        router.load(EN)
    if event == "error":
        kit.calling = failing_on(ML, RuntimeError("boom"))
    with pytest.raises((type(exc), RuntimeError)):
        router.predict("a", NOUL, model=ML)
    named = [entry.split(" ")[0] for entry in kit.log]
    assert f"A.{event}" in named
    assert named[named.index(f"A.{event}") + 1] == f"B.{event}"


@pytest.mark.parametrize("event", ["route", "start"])
def test_A2_a_raising_hook_of_a_veto_event_stops_it(kit: Kit, event: str) -> None:
    hooks = [per_state(kit.log, "A", **{event: raising(ValueError("no"))}), per_state(kit.log, "B")]
    with pytest.raises(ValueError, match="no"):
        kit.router(hooks=hooks).predict("a", NOUL, model=EN)
    assert f"B.{event} a" not in kit.log
    assert kit.calls == []


def test_L155_hooks_without_a_method_are_passed_over(kit: Kit) -> None:
    class OnlyEnd:
        def on_predict_end(self, ctx: Any) -> None:
            kit.log.append("X.end")

    kit.router(hooks=[OnlyEnd(), Hook(kit.log)]).predict("a", NOUL, model=EN)
    assert kit.log[-2:] == ["X.end", "A.end"]


def test_L156_error_before_end(kit: Kit) -> None:
    kit.calling = failing_on(EN, ValueError("boom"))
    with pytest.raises(ValueError, match="boom"):
        kit.router(hooks=Hook(kit.log)).predict("a", NOUL, model=EN)
    assert kit.log[-2:] == ["A.error", "A.end"]


def test_L157_evict_before_load(kit: Kit) -> None:
    router = kit.router(max_loaded=1, hooks=Hook(kit.log))
    router.load(EN)
    router.load(ML)
    assert kit.log[-2:] == ["A.evict", "A.load"]


def test_L159_L160_threads_share_a_router_and_no_context(kit: Kit) -> None:
    seen: list[Any] = []

    class Watch:
        def on_predict_start(self, ctx: Any) -> None:
            seen.append((ctx.states[0], ctx))

        def on_predict_end(self, ctx: Any) -> None:
            seen.append((ctx.states[0], ctx))

    router = kit.router(max_loaded=1, hooks=Watch())

    def work(index: int) -> list[Any]:
        name = (EN, ML)[index % 2]
        return [
            router.predict(f"{index} {turn}", NOUL, model=name)["routing"]["model"] == name
            for turn in range(5)
        ]

    assert all(all(done) for done in together(6, work))
    contexts: dict[str, list[Any]] = {}
    for state, ctx in seen:
        contexts.setdefault(state, []).append(ctx)
    assert len(contexts) == 30
    assert all(start is end for start, end in contexts.values())
    assert len({id(pair[0]) for pair in contexts.values()}) == 30


def test_L161_a_call_sees_the_hooks_that_were_there_when_it_began(kit: Kit) -> None:
    late = Hook(kit.log, "L")
    router = kit.router()

    def install(ctx: Any) -> None:
        ctx.router.add_hook(late)

    router.predict("a", NOUL, model=EN, on_predict_start=install)
    assert "L.end" not in kit.log
    router.predict("a", NOUL, model=EN)
    assert "L.end" in kit.log


def test_L162_hooks_of_different_threads_overlap_by_default(kit: Kit) -> None:
    meeting = threading.Barrier(2)
    router = kit.router(on_predict_start=lambda ctx: meeting.wait(10) and None)
    router.load(EN)
    results = together(2, lambda i: router.predict("a", NOUL, model=EN))
    assert models_of(results) == [EN, EN]


@pytest.mark.parametrize("hooks_timeout", [None, 20.0])
def test_L163_serial_hooks_run_one_at_a_time(kit: Kit, hooks_timeout: float | None) -> None:
    running: list[int] = []
    most: list[int] = []

    def busy(ctx: Any) -> None:
        running.append(1)
        most.append(len(running))
        time.sleep(0.005)
        running.pop()

    router = kit.router(
        hooks_concurrent=False,
        hooks_timeout=hooks_timeout,
        on_predict_start=busy,
        on_predict_end=busy,
    )
    router.load(EN)
    together(4, lambda i: router.predict("a", NOUL, model=EN))
    assert (len(most), max(most)) == (8, 1)


def test_L164_the_lock_is_not_held_between_events(kit: Kit) -> None:
    both_inside = threading.Barrier(2)
    kit.calling = lambda call: both_inside.wait(10)
    router = kit.router(hooks_concurrent=False, hooks=Hook(kit.log))
    router.load(EN)
    results = together(2, lambda i: router.predict("a", NOUL, model=EN))
    assert models_of(results) == [EN, EN]


@pytest.mark.parametrize("hooks_timeout", [None, 20.0])
def test_L165_a_serial_hook_may_call_back_into_the_router(
    kit: Kit, hooks_timeout: float | None
) -> None:
    seen: list[Any] = []

    def nested(ctx: Any) -> None:
        if ctx.states == ["outer"]:
            seen.append(ctx.router.predict("inner", NOUL, model=ML)["routing"]["model"])

    router = kit.router(
        hooks_concurrent=False, hooks_timeout=hooks_timeout, on_predict_start=nested
    )
    (result,) = together(1, lambda i: router.predict("outer", NOUL, model=EN), timeout=10)
    assert result["routing"]["model"] == EN
    assert seen == [ML]


def test_A3_A7_what_an_error_hook_can_read(kit: Kit) -> None:
    seen: list[Any] = []
    kit.calling = failing_on(EN, ValueError("boom"))
    router = kit.router(hooks=Hook(kit.log, error=noting(seen, "elapsed_ms", "usage", "results")))
    with pytest.raises(ValueError, match="boom"):
        router.predict_batch([request("1")])
    assert seen[0][0] > 0
    assert seen[0][1:] == (None, None)


def test_hooks_raise_false_turns_hook_errors_into_warnings(kit: Kit) -> None:
    router = kit.router(hooks=Hook(kit.log, start=raising(ValueError("start"))), hooks_raise=False)
    with pytest.warns(RuntimeWarning, match="Hook.on_predict_start failed: ValueError: start"):
        result = router.predict("a", NOUL, model=EN)
    assert result["routing"]["model"] == EN
    with pytest.raises(ValueError, match="start"):
        router.predict("a", NOUL, model=EN, hooks_raise=True)


def test_an_answer_set_by_hand_counts_as_a_skip(kit: Kit) -> None:
    result = kit.router().predict("a", NOUL, model=EN, on_predict_start=setting(results=[cached()]))
    assert (result["model"], result["routing"]["model"]) == ("cached", EN)
    assert kit.calls == []
