"""The lifecycle page, Router.predict: requirements L40 to L72."""

import inspect
import threading
from typing import Any

import pytest

import drut
from drut.errors import CheckpointError, InvalidRequestError, InvalidTypeError
from lifecycle_helpers import NOUL, Hook, cached, noting, raising, setting, skipping, together
from router_helpers import EN, KINDS, ML, REAL_KINDS, TD, Kit, failing_on

ENGLISH = "Please cancel my order today"


@pytest.fixture(params=KINDS)
def kit(request: Any) -> Kit:
    return Kit(request.param)


def test_L040_takes_state_questions_model_and_the_hook_arguments() -> None:
    parameters = inspect.signature(drut.Router.predict).parameters
    named = (
        "state questions model task lang lang_guess hooks on_predict_start on_predict_end "
        "hooks_raise hooks_timeout max_len head_max_len min_confidence"
    )
    assert set(named.split()) <= set(parameters)
    assert list(parameters)[1:3] == ["state", "questions"]


def test_L041_installed_hooks_then_those_of_the_call(kit: Kit) -> None:
    log = kit.log
    router = kit.router(hooks=[Hook(log, "A"), Hook(log, "B")])
    router.predict("a", NOUL, model=EN, hooks=Hook(log, "C"))
    starts, ends = [f"{h}.start" for h in "ABC"], [f"{h}.end" for h in "ABC"]
    assert [entry for entry in log if "start" in entry or "end" in entry] == starts + ends


def test_L042_route_runs_first_with_the_hooks_of_the_call_and_their_policy(kit: Kit) -> None:
    class Route:
        def on_route(self, ctx: Any) -> None:
            kit.log.append("C.route")
            raise ValueError("route")

    router = kit.router(hooks=Hook(kit.log))
    with pytest.warns(RuntimeWarning, match="Route.on_route failed"):
        router.predict("a", NOUL, model=EN, hooks=Route(), hooks_raise=False)
    assert kit.log[:3] == ["A.route", "C.route", "build english"]


def test_L043_routing_is_computed_before_on_route(kit: Kit) -> None:
    hook = Hook(kit.log)
    kit.router(hooks=hook).predict(ENGLISH, NOUL)
    decision = hook.contexts[0].decision
    assert decision is not None
    assert (decision["model"], decision["reason_code"]) == (EN, "english")
    assert decision["detection"]["script"] == "latin"


def test_L044_route_returns_what_the_hooks_left(kit: Kit) -> None:
    left = drut.RouteDecision(model=ML, reason="pinned")

    class Pin:
        def on_route(self, ctx: Any) -> None:
            ctx.decision = left

    assert kit.router().route(ENGLISH, NOUL, hooks=Pin()) is left


def test_L045_the_replaced_decision_is_loaded_and_reported(kit: Kit) -> None:
    class Pin:
        def on_route(self, ctx: Any) -> None:
            ctx.decision = {"model": TD, "reason": "pinned", "note": 7}

    result = kit.router().predict(ENGLISH, NOUL, hooks=Pin())
    assert kit.built == [TD]
    assert result["routing"] == {"model": TD, "reason": "pinned", "note": 7}


def test_L046_a_pinned_checkpoint_means_the_original_is_never_built(kit: Kit) -> None:
    class Pin:
        def on_route(self, ctx: Any) -> None:
            assert kit.built == []
            ctx.decision["model"] = ML

    kit.router().predict("a", NOUL, model=EN, hooks=Pin())
    assert kit.built == [ML]


def test_L047_L049_L057_route_then_load_then_start(kit: Kit) -> None:
    log = kit.log
    kit.router(hooks=Hook(log)).predict("a", NOUL, model=EN)
    assert log == ["A.route", "build english", "A.load", "A.start", "english.one 1", "A.end"]


def test_L048_a_resident_checkpoint_is_neither_built_nor_announced(kit: Kit) -> None:
    router = kit.router(hooks=Hook(kit.log))
    router.load(EN)
    kit.log.clear()
    router.predict("a", NOUL, model=EN)
    assert kit.log == ["A.route", "A.start", "english.one 1", "A.end"]


def test_L050_checkpoints_pushed_out_are_announced(kit: Kit) -> None:
    hook = Hook(kit.log)
    router = kit.router(max_loaded=1, hooks=hook)
    router.predict("a", NOUL, model=EN)
    kit.log.clear()
    router.predict("a", NOUL, model=ML)
    assert kit.log[:4] == ["A.route", "build multilingual", "A.evict", "A.load"]
    assert [ctx.model for ctx in hook.contexts if ctx.states == []] == [EN, EN, ML]


def test_L051_load_and_evict_hooks_run_outside_the_lock(kit: Kit) -> None:
    seen: list[Any] = []

    class FromAnotherThread:
        def on_load(self, ctx: Any) -> None:
            seen.extend(together(1, lambda i: ctx.router.loaded, timeout=5))

        on_evict = on_load

    router = kit.router(max_loaded=1, hooks=FromAnotherThread())
    router.predict("a", NOUL, model=EN)
    router.predict("a", NOUL, model=ML)
    assert seen == [[EN], [ML], [ML]]


def test_L052_L053_L054_L055_L056_the_predict_context(kit: Kit) -> None:
    seen: list[Any] = []
    router = kit.router()
    state = {"message": "a"}
    result = router.predict(
        state,
        NOUL,
        model="EN",
        on_predict_start=noting(
            seen, "states", "questions", "decision", "model", "agent", "router", "results", "error"
        ),
    )
    states, questions, decision, model, agent, own_router, results, error = seen[0]
    assert states == [state]
    assert states[0] is state
    assert questions is NOUL
    assert decision == result["routing"]
    assert model == EN
    assert agent is kit.agents[EN]
    assert own_router is router
    assert (results, error) == (None, None)


def test_L055_the_model_of_an_alias_pinned_by_a_hook_is_resolved(kit: Kit) -> None:
    class Pin:
        def on_route(self, ctx: Any) -> None:
            ctx.decision = {"model": " ML "}

    seen: list[Any] = []
    result = kit.router().predict(
        "a", NOUL, hooks=Pin(), on_predict_end=noting(seen, "model", "decision")
    )
    assert seen == [(ML, {"model": " ML "})]
    assert result["routing"] == {"model": " ML "}


def test_L058_the_agent_is_asked_once_with_what_the_start_hooks_left(kit: Kit) -> None:
    other = {"m": {"type": "noul", "instructions": "Other?"}}
    kit.router().predict(
        "a", NOUL, model=EN, on_predict_start=setting(states=["b"], questions=other, max_len=200)
    )
    (call,) = kit.calls
    assert (call.method, call.states, call.options) == ("one", ["b"], {"max_len": 200})
    assert call.questions is other


def test_L058_a_token_budget_that_the_agent_does_not_take_is_told() -> None:
    kit = Kit("stub")
    router = kit.router()
    with pytest.warns(RuntimeWarning, match="StubAgent takes no head_max_len"):
        router.predict("a", NOUL, model=EN, max_len=9, head_max_len=5)
    assert kit.calls[0].options == {"max_len": 9}


@pytest.mark.parametrize("kind", REAL_KINDS)
def test_L059_L068_an_attached_agents_own_hooks_run_in_between(kind: str) -> None:
    kit = Kit(kind)
    log = kit.log
    router = kit.router(hooks=Hook(log, "R"))
    router.attach(EN, kit.agent(EN, hooks=Hook(log, "G")))
    router.predict("a", NOUL, model=EN)
    assert log == ["R.route", "R.start", "english.one 1", "G.start", "G.end", "R.end"]


def test_L060_routing_overwrites_what_the_agent_put_there(kit: Kit) -> None:
    class Own:
        def system_one(self, state: Any, questions: Any) -> Any:
            return {"answers": {}, "routing": "mine"}

        def predict_batch(self, states: Any, questions: Any) -> Any:
            return [self.system_one(state, questions) for state in states]

    router = kit.router()
    router.attach(EN, Own())
    assert router.predict("a", NOUL, model=EN)["routing"]["model"] == EN
    (result,) = router.predict_batch([{"state": "a", "questions": NOUL, "model": EN}])
    assert result["routing"]["reason_code"] == "explicit_model"


@pytest.mark.parametrize("edited", ["route", "start", "result"])
def test_L060_every_context_and_result_has_a_decision_of_its_own(kit: Kit, edited: str) -> None:
    hook = Hook(kit.log)
    router = kit.router(hooks=hook)
    router.load(EN)
    hook.contexts.clear()
    routing = router.predict(ENGLISH, NOUL)["routing"]
    decisions = {
        "route": hook.contexts[0].decision,
        "start": hook.contexts[1].decision,
        "result": routing,
    }
    assert decisions["route"] == decisions["start"] == decisions["result"]
    change: Any = decisions.pop(edited)
    change["model"] = "edited"
    change["detection"]["script_profile"]["latin"] = "edited"
    assert "edited" not in repr([dict(decision or {}) for decision in decisions.values()])


def test_L061_results_hold_the_one_result(kit: Kit) -> None:
    seen: list[Any] = []
    result = kit.router().predict("a", NOUL, model=EN, on_predict_end=noting(seen, "results"))
    assert seen == [([result],)]


def test_L062_L070_a_skip_spares_the_agent_and_keeps_the_shape(kit: Kit) -> None:
    result = kit.router().predict("a", NOUL, model=EN, on_predict_start=skipping([cached()]))
    assert kit.calls == []
    assert result["model"] == "cached"
    assert result["routing"]["model"] == EN


def test_L063_a_skipped_result_keeps_the_routing_it_has(kit: Kit) -> None:
    mine = {**cached(), "routing": {"model": "from the cache"}}
    result = kit.router().predict("a", NOUL, model=EN, on_predict_start=skipping([mine]))
    assert result["routing"] == {"model": "from the cache"}


def test_L063_the_cached_object_itself_is_left_alone(kit: Kit) -> None:
    mine = cached(input_tokens=3)
    before = repr(mine)
    kit.router().predict("a", NOUL, model=EN, min_confidence=0.9, on_predict_start=skipping([mine]))
    assert repr(mine) == before


@pytest.mark.parametrize("exc", [ValueError("boom"), KeyboardInterrupt("boom")], ids=repr)
@pytest.mark.parametrize("where", ["start hook", "agent"])
def test_L064_any_failure_reaches_error_and_end_and_is_raised(
    kit: Kit, exc: BaseException, where: str
) -> None:
    seen: list[Any] = []
    hook = Hook(kit.log, error=noting(seen, "error"), end=noting(seen, "error"))
    router = kit.router(hooks=hook)
    router.load(EN)
    kit.log.clear()
    if where == "agent":
        kit.calling = failing_on(EN, exc)
    start = raising(exc) if where == "start hook" else None
    with pytest.raises(type(exc)) as caught:
        router.predict("a", NOUL, model=EN, on_predict_start=start)
    assert caught.value is exc
    assert [entry for entry in kit.log if "A." in entry] == [
        "A.route",
        "A.start",
        "A.error",
        "A.end",
    ]
    assert seen == [(exc,), (exc,)]


def test_L065_time_and_usage_are_there_at_the_end(kit: Kit) -> None:
    seen: list[Any] = []
    kit.router().predict("a", NOUL, model=EN, on_predict_end=noting(seen, "elapsed_ms", "usage"))
    elapsed_ms, usage = seen[0]
    assert elapsed_ms > 0
    assert usage["input_tokens"] > 0


def test_L065_time_is_there_after_a_failure_too(kit: Kit) -> None:
    seen: list[Any] = []
    kit.calling = failing_on(EN, ValueError())
    with pytest.raises(ValueError):  # noqa: PT011
        kit.router().predict(
            "a", NOUL, model=EN, on_predict_end=noting(seen, "elapsed_ms", "usage")
        )
    assert seen[0][0] > 0
    assert seen[0][1] is None


def test_L066_the_result_is_what_the_end_hooks_left(kit: Kit) -> None:
    router = kit.router()
    assert router.predict("a", NOUL, model=EN, on_predict_end=setting(results=["new"])) == "new"


@pytest.mark.parametrize("left", [None, []], ids=repr)
def test_L066_an_end_hook_that_takes_the_result_away_is_told(kit: Kit, left: Any) -> None:
    with pytest.raises(InvalidRequestError, match="an end hook left"):
        kit.router().predict("a", NOUL, model=EN, on_predict_end=setting(results=left))


def test_L067_the_routers_hooks_are_not_given_to_the_agent(kit: Kit) -> None:
    router = kit.router(hooks=Hook(kit.log, "A"))
    router.predict("a", NOUL, model=EN, hooks=Hook(kit.log, "B"))
    assert "hooks" not in kit.calls[0].options
    assert kit.log.count("A.start") == kit.log.count("B.start") == 1


@pytest.mark.parametrize("kind", REAL_KINDS)
def test_L069_the_agents_own_error_and_end_come_before_the_routers(kind: str) -> None:
    kit = Kit(kind)
    log = kit.log
    router = kit.router(hooks=Hook(log, "R"))
    agent = kit.agent(EN, hooks=Hook(log, "G", start=raising(ValueError("own"))))
    router.attach(EN, agent)
    with pytest.raises(ValueError, match="own"):
        router.predict("a", NOUL, model=EN)
    assert log[2:] == ["english.one 1", "G.start", "G.error", "G.end", "R.error", "R.end"]


def test_L071_elapsed_time_counts_neither_routing_nor_loading(kit: Kit) -> None:
    kit.building = lambda name: threading.Event().wait(0.2)
    seen: list[Any] = []

    def slow(state: Any) -> str:
        threading.Event().wait(0.2)
        return "en"

    kit.router().predict(
        "a",
        NOUL,
        lang_guess=slow,
        on_predict_start=skipping([cached()]),
        on_predict_end=noting(seen, "elapsed_ms"),
    )
    assert seen[0][0] < 150


@pytest.mark.parametrize("exc", [OSError("disk"), KeyboardInterrupt()], ids=repr)
def test_L072_a_failing_load_fires_no_predict_event(kit: Kit, exc: BaseException) -> None:
    kit.building = lambda name: (_ for _ in ()).throw(exc)
    router = kit.router(hooks=Hook(kit.log))
    with pytest.raises(type(exc)) as caught:
        router.predict("a", NOUL, model=EN)
    assert caught.value is exc
    assert kit.log == ["A.route", "build english"]


def test_L072_a_failing_route_fires_no_predict_event(kit: Kit) -> None:
    class Nonsense:
        def on_route(self, ctx: Any) -> None:
            ctx.decision = "english"

    router = kit.router(hooks=[Hook(kit.log), Nonsense()])
    with pytest.raises(InvalidTypeError, match="left the decision 'english'"):
        router.predict("a", NOUL)
    assert kit.log == ["A.route"]


@pytest.mark.parametrize(
    ("left", "told"),
    [
        (None, "left the decision None"),
        ({}, "without the key 'model'"),
        ({"model": 3}, "'model' is 3"),
        ({"model": "englsh"}, "did you mean 'english'"),
    ],
    ids=repr,
)
def test_L072_nonsense_from_a_decision_hook_is_told_before_anything_is_loaded(
    kit: Kit, left: Any, told: str
) -> None:
    class Nonsense:
        def on_route(self, ctx: Any) -> None:
            ctx.decision = left

    with pytest.raises(InvalidRequestError, match=told):
        kit.router().predict("a", NOUL, hooks=Nonsense())
    assert kit.built == []


def test_L072_a_raising_load_hook_leaves_the_checkpoint_resident(kit: Kit) -> None:
    class Load:
        def on_load(self, ctx: Any) -> None:
            raise ValueError("load hook")

    hook = Load()
    router = kit.router(hooks=[hook, Hook(kit.log)])
    with pytest.raises(ValueError, match="load hook"):
        router.predict("a", NOUL, model=EN)
    assert kit.log == ["A.route", "build english", "A.load"]
    router.predict("a", NOUL, model=EN)
    assert kit.built == [EN]


@pytest.mark.parametrize("states", [[], ["a", "b"], "a", {"a": 1}, None], ids=repr)
def test_A26_a_start_hook_must_leave_exactly_one_state(kit: Kit, states: Any) -> None:
    router = kit.router(hooks=Hook(kit.log))
    with pytest.raises(InvalidRequestError, match="a start hook left"):
        router.predict("a", NOUL, model=EN, on_predict_start=setting(states=states))
    assert kit.log[-2:] == ["A.error", "A.end"]
    assert kit.calls == []


def test_A25_the_agent_of_the_context_is_not_the_one_that_answers(kit: Kit) -> None:
    router = kit.router()
    router.predict("a", NOUL, model=EN, on_predict_start=setting(agent=None, model="other"))
    assert [call.agent for call in kit.calls] == [EN]


def test_bad_requests_are_told_before_any_hook(kit: Kit) -> None:
    router = kit.router(hooks=Hook(kit.log))
    with pytest.raises(TypeError, match="a state is None"):
        router.predict(None, NOUL)
    with pytest.raises(TypeError, match="questions must be a dict"):
        router.predict("a", [NOUL])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="min_confidence"):
        router.predict("a", NOUL, min_confidence=2)
    with pytest.raises(ValueError, match="hooks_timeout"):
        router.predict("a", NOUL, hooks_timeout=0)
    with pytest.raises(ValueError, match="did you mean 'multilingual'"):
        router.predict("a", NOUL, model="multilingal")
    with pytest.raises(TypeError, match="language is given as a code"):
        router.predict("a", NOUL, lang=5)  # type: ignore[arg-type]
    assert kit.log == []


def test_a_failed_build_is_told_to_the_one_who_built_as_it_is(kit: Kit) -> None:
    kit.building = lambda name: (_ for _ in ()).throw(OSError("disk"))
    with pytest.raises(OSError, match="disk") as caught:
        kit.router().load(EN)
    assert not isinstance(caught.value, CheckpointError)
