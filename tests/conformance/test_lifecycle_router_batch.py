"""The lifecycle page, Router.predict_batch: requirements L73 to L126."""

import contextvars
from typing import Any

import pytest

from drut.errors import ForwardError, InvalidRequestError, InvalidTypeError
from lifecycle_helpers import NOUL, cached, context_chain, raising, setting, skipping
from router_helpers import (
    EN,
    KINDS,
    ML,
    TD,
    Kit,
    failing_on,
    models_of,
    on_state,
    per_state,
    request,
)

OTHER = {"m": {"type": "noul", "instructions": "Is it a question?"}}


@pytest.fixture(params=KINDS)
def kit(request: Any) -> Kit:
    return Kit(request.param)


def states(*names: str, model: str = EN, **keys: Any) -> list[Any]:
    return [request(name, model, **keys) for name in names]


def loaded(kit: Kit, *names: str, **options: Any) -> Any:
    """A router with checkpoints resident and an empty log."""
    router = kit.router(max_loaded=3, **options)
    router.preload(names or [EN])
    kit.log.clear()
    return router


def events_of(kit: Kit, *events: str) -> list[str]:
    """Entries of the log about these events, without the hook's name."""
    parts = [entry.partition(".")[2] for entry in kit.log if "." in entry]
    return [part for part in parts if part.split(" ")[0] in events]


def test_L073_each_result_is_what_predict_returns_in_input_order(kit: Kit) -> None:
    router = kit.router(max_loaded=3)
    requests = [
        request("a", ML),
        request("Please cancel my order today", None),
        request("b", EN, OTHER),
        request("नमस्ते दुनिया", None),
        request("c", ML, NOUL, max_len=128),
    ]
    single = [router.predict(**each) for each in requests]
    batch = router.predict_batch(requests)
    assert models_of(batch) == [ML, EN, EN, ML, ML]
    assert [result["routing"] for result in batch] == [result["routing"] for result in single]
    assert [result["usage"] for result in batch] == [result["usage"] for result in single]
    for one, other in zip(single, batch, strict=True):
        for key, answer in one["answers"].items():
            assert other["answers"][key]["noul"] == pytest.approx(answer["noul"], abs=1e-6)


def test_L074_predict_hooks_run_per_request(kit: Kit) -> None:
    router = loaded(kit, hooks=per_state(kit.log))
    router.predict_batch(states("1", "2"))
    assert events_of(kit, "start", "end") == ["start 1", "start 2", "end 2", "end 1"]


def test_L075_L076_L077_every_request_has_its_own_context_id_and_time(kit: Kit) -> None:
    hook = per_state(kit.log)
    loaded(kit).predict_batch(states("1", "2"), hooks=hook)
    first, second = hook.contexts[2:4]
    assert (first.states, second.states) == (["1"], ["2"])
    assert first is not second
    assert first.run_id != second.run_id
    assert first.elapsed_ms >= second.elapsed_ms > 0


def test_L078_L079_all_are_routed_in_input_order_before_anything_is_loaded(kit: Kit) -> None:
    router = kit.router(hooks=per_state(kit.log))
    router.predict_batch([request("1", EN), request("2", ML), request("3", EN)])
    assert kit.log[:4] == ["A.route 1", "A.route 2", "A.route 3", "build english"]


def test_L080_a_raising_route_hook_loads_and_starts_nothing(kit: Kit) -> None:
    hook = per_state(kit.log, route=on_state("2", raising(ValueError("route"))))
    with pytest.raises(ValueError, match="route"):
        kit.router(hooks=hook).predict_batch(states("1", "2", "3"))
    assert kit.log == ["A.route 1", "A.route 2"]


def test_L081_L082_checkpoints_run_in_order_of_first_appearance_each_loaded_once(kit: Kit) -> None:
    router = kit.router(max_loaded=1, hooks=per_state(kit.log))
    router.predict_batch([request("1", ML), request("2", EN), request("3", ML)])
    assert kit.log[3:] == [
        "build multilingual",
        "A.load multilingual",
        "A.start 1",
        "A.start 3",
        "multilingual.batch 2",
        "A.end 3",
        "A.end 1",
        "build english",
        "A.evict multilingual",
        "A.load english",
        "A.start 2",
        "english.batch 1",
        "A.end 2",
    ]


def test_L083_requests_of_a_checkpoint_start_in_input_order(kit: Kit) -> None:
    router = loaded(kit, hooks=per_state(kit.log))
    router.predict_batch(states("3", "1", "2"))
    assert events_of(kit, "start") == ["start 3", "start 1", "start 2"]


def test_L084_L085_the_context_of_a_request(kit: Kit) -> None:
    hook = per_state(kit.log)
    router = loaded(kit)
    state = {"message": "a"}
    (result,) = router.predict_batch(
        [{"state": state, "questions": NOUL, "model": EN, "max_len": 200, "head_max_len": 90}],
        hooks=hook,
    )
    ctx = hook.contexts[1]
    assert ctx.states[0] is state
    assert ctx.questions is NOUL
    assert ctx.decision == result["routing"]
    assert (ctx.model, ctx.agent, ctx.router) == (EN, kit.agents[EN], router)
    assert (ctx.max_len, ctx.head_max_len) == (200, 90)


def test_L086_L087_L088_a_start_hook_may_rewrite_state_questions_and_budget(kit: Kit) -> None:
    change = setting(states=["b"], questions=OTHER, max_len=150)
    hook = per_state(kit.log, start=on_state("2", change))
    loaded(kit).predict_batch(states("1", "2"), hooks=hook)
    assert [(call.states, call.questions, call.options) for call in kit.calls] == [
        (["1"], NOUL, {}),
        (["b"], OTHER, {"max_len": 150}),
    ]


def test_L089_L094_a_skipped_request_is_not_sent_and_gets_routing(kit: Kit) -> None:
    hook = per_state(kit.log, start=on_state("2", skipping([cached()])))
    results = loaded(kit).predict_batch(states("1", "2", "3"), hooks=hook)
    assert [call.states for call in kit.calls] == [["1", "3"]]
    assert results[1]["model"] == "cached"
    assert models_of(results) == [EN] * 3


def test_L094_a_skipped_result_keeps_the_routing_it_has(kit: Kit) -> None:
    mine = {**cached(), "routing": {"model": "kept"}}
    (result,) = loaded(kit).predict_batch(states("1"), on_predict_start=skipping([mine]))
    assert result["routing"] == {"model": "kept"}


def test_L090_L091_L112_L113_requests_share_a_pass_by_questions_and_budgets(kit: Kit) -> None:
    requests = [
        request("1"),
        request("2", questions=OTHER),
        request("3", max_len=200),
        request("4", questions={"n": dict(NOUL["n"])}),
        request("5", max_len=200, head_max_len=90),
        request("6", max_len=200),
    ]
    loaded(kit).predict_batch(requests)
    assert [(call.states, call.options) for call in kit.calls] == [
        (["1", "4"], {}),
        (["2"], {}),
        (["3", "6"], {"max_len": 200}),
        (["5"], {"max_len": 200, "head_max_len": 90}),
    ]
    assert {call.method for call in kit.calls} == {"batch"}


def test_L092_the_batch_size_is_passed_on(kit: Kit) -> None:
    loaded(kit).predict_batch(states("1", "2"), batch_size=1)
    assert [call.options for call in kit.calls] == [{"batch_size": 1}]


def test_L093_results_and_routing_are_there_at_the_end(kit: Kit) -> None:
    hook = per_state(kit.log)
    results = loaded(kit).predict_batch(states("1", "2"), hooks=hook)
    first, second = hook.contexts[2:4]
    assert first.results == [results[0]]
    assert second.results == [results[1]]
    assert results[0]["routing"] is not results[1]["routing"]


def test_L095_usage_is_there_before_the_end_hooks(kit: Kit) -> None:
    used: list[int] = []
    loaded(kit).predict_batch(
        states("1", "2"), on_predict_end=lambda ctx: used.append(ctx.usage["input_tokens"])
    )
    assert len(used) == 2
    assert min(used) > 0


@pytest.mark.parametrize("exc", [ValueError("boom"), KeyboardInterrupt("boom")], ids=repr)
def test_L096_L097_L117_a_failed_group_ends_every_started_request(
    kit: Kit, exc: BaseException
) -> None:
    hook = per_state(kit.log)
    kit.calling = failing_on(EN, exc)
    with pytest.raises(type(exc)) as caught:
        loaded(kit).predict_batch(states("1", "2", "3"), hooks=hook)
    assert caught.value is exc
    assert events_of(kit, "start", "error", "end") == [
        "start 1",
        "start 2",
        "start 3",
        "error 3",
        "end 3",
        "error 2",
        "end 2",
        "error 1",
        "end 1",
    ]
    assert {ctx.error for ctx in hook.contexts[3:]} <= {exc, None}
    assert all(ctx.error is exc for ctx in hook.contexts[-6:])


def test_L098_L099_requests_end_in_reverse_and_their_hooks_in_order(kit: Kit) -> None:
    hooks = [per_state(kit.log, "A"), per_state(kit.log, "B")]
    loaded(kit, hooks=hooks).predict_batch(states("1", "2"), hooks=per_state(kit.log, "C"))
    ends = [entry for entry in kit.log if ".end" in entry]
    assert ends == ["A.end 2", "B.end 2", "C.end 2", "A.end 1", "B.end 1", "C.end 1"]


def test_L100_L104_L105_all_start_before_inference_and_before_any_end(kit: Kit) -> None:
    requests = [request("1"), request("2", questions=OTHER), request("3", max_len=200)]
    loaded(kit, hooks=per_state(kit.log)).predict_batch(requests)
    assert kit.log[3:] == [
        "A.start 1",
        "A.start 2",
        "A.start 3",
        "english.batch 1",
        "english.batch 1",
        "english.batch 1",
        "A.end 3",
        "A.end 2",
        "A.end 1",
    ]


def test_L101_a_cache_filled_at_the_end_serves_the_next_call_only(kit: Kit) -> None:
    store: dict[str, Any] = {}

    class Cache:
        def on_predict_start(self, ctx: Any) -> None:
            if ctx.states[0] in store:
                ctx.skip([store[ctx.states[0]]])

        def on_predict_end(self, ctx: Any) -> None:
            store[ctx.states[0]] = ctx.results[0]

    router = loaded(kit, hooks=Cache())
    router.predict_batch(states("1", "1"))
    assert [call.states for call in kit.calls] == [["1", "1"]]
    router.predict_batch(states("1", "1"))
    assert len(kit.calls) == 1


@pytest.mark.parametrize("hooks_timeout", [None, 20.0])
def test_L102_a_context_variable_unwinds_over_the_batch(
    kit: Kit, hooks_timeout: float | None
) -> None:
    value = contextvars.ContextVar("value", default="outside")
    tokens: dict[Any, Any] = {}
    seen: list[Any] = []

    class Tracer:
        def on_predict_start(self, ctx: Any) -> None:
            tokens[ctx] = value.set(ctx.states[0])

        def on_predict_end(self, ctx: Any) -> None:
            seen.append(value.get())
            value.reset(tokens.pop(ctx))
            seen.append(value.get())

    loaded(kit).predict_batch(states("1", "2"), hooks=Tracer(), hooks_timeout=hooks_timeout)
    assert seen == ["2", "1", "1", "outside"]
    assert value.get() == "outside"


def test_L103_L109_a_replacement_changes_its_own_request_only(kit: Kit) -> None:
    requests = states("1", "2", "3")
    hook = per_state(kit.log, start=on_state("2", setting(questions=OTHER)))
    loaded(kit).predict_batch(requests, hooks=hook)
    assert [(call.states, call.questions) for call in kit.calls] == [
        (["1", "3"], NOUL),
        (["2"], OTHER),
    ]
    assert all(each["questions"] is NOUL for each in requests)


def test_L106_L107_an_edit_in_place_reaches_all_that_share_the_dict(kit: Kit) -> None:
    shared: dict[str, Any] = {"n": dict(NOUL["n"])}
    hook = per_state(kit.log, start=on_state("2", lambda ctx: ctx.questions.update(OTHER)))
    loaded(kit).predict_batch(states("1", "2", "3", questions=shared), hooks=hook)
    (call,) = kit.calls
    assert call.questions is shared
    assert list(shared) == ["n", "m"]


def test_L108_in_predict_an_edit_does_not_reach_earlier_calls(kit: Kit) -> None:
    asked: list[Any] = []
    kit.calling = lambda call: asked.append(list(call.questions))
    shared: dict[str, Any] = {"n": dict(NOUL["n"])}
    hook = per_state(kit.log, start=on_state("2", lambda ctx: ctx.questions.update(OTHER)))
    router = loaded(kit, hooks=hook)
    for state in ("1", "2"):
        router.predict(state, shared, model=EN)
    assert asked == [["n"], ["n", "m"]]


def test_L110_L111_names_are_resolved_before_grouping(kit: Kit) -> None:
    hook = per_state(kit.log, route=on_state("2", setting(decision={"model": "ml"})))
    router = loaded(kit, ML, hooks=hook)
    results = router.predict_batch([request("1", ML), request("2", EN)])
    assert [call.states for call in kit.calls] == [["1", "2"]]
    assert {ctx.model for ctx in hook.contexts if ctx.agent is not None} == {ML}
    assert models_of(results) == [ML, "ml"]


def test_L114_a_start_hooks_budget_overrides_the_requests(kit: Kit) -> None:
    loaded(kit).predict_batch(states("1", max_len=200), on_predict_start=setting(max_len=100))
    assert kit.calls[0].options == {"max_len": 100}


@pytest.mark.parametrize("exc", [ValueError("end"), KeyboardInterrupt("end")], ids=repr)
def test_L115_L116_a_raising_end_hook_costs_no_other_request_its_end(
    kit: Kit, exc: BaseException
) -> None:
    hooks = [per_state(kit.log, "A", end=on_state("2", raising(exc))), per_state(kit.log, "B")]
    later = per_state(kit.log, "C", end=on_state("1", raising(ValueError("later"))))
    with pytest.raises(type(exc)) as caught:
        loaded(kit).predict_batch(states("1", "2", "3"), hooks=[*hooks, later])
    assert caught.value is exc
    ends = [entry for entry in kit.log if ".end" in entry]
    assert ends == [f"{hook}.end {state}" for state in "321" for hook in "ABC"]
    assert events_of(kit, "error") == []


def test_A9_after_a_raising_end_hook_later_checkpoints_do_not_run(kit: Kit) -> None:
    hook = per_state(kit.log, end=raising(ValueError("end")))
    router = kit.router(hooks=hook)
    with pytest.raises(ValueError, match="end"):
        router.predict_batch([request("1", EN), request("2", ML)])
    assert kit.built == [EN]


def test_L118_L119_a_failed_group_fails_its_cache_hits_and_finished_requests_too(
    kit: Kit,
) -> None:
    hook = per_state(kit.log, start=on_state("1", skipping([cached()])))
    kit.calling = lambda call: raising(ValueError("boom"))(None) if "3" in call.states else None
    requests = [request("1"), request("2"), request("3", questions=OTHER)]
    with pytest.raises(ValueError, match="boom") as caught:
        loaded(kit).predict_batch(requests, hooks=hook)
    assert events_of(kit, "error", "end") == [
        "error 3",
        "end 3",
        "error 2",
        "end 2",
        "error 1",
        "end 1",
    ]
    by_state = {ctx.states[0]: ctx for ctx in hook.contexts}
    assert all(ctx.error is caught.value for ctx in by_state.values())
    assert by_state["2"].results is not None
    assert by_state["3"].results is None


def test_L120_L121_L122_a_raising_start_hook_fails_what_has_started(kit: Kit) -> None:
    exc = ValueError("start")
    hooks = [per_state(kit.log, "A", start=on_state("2", raising(exc))), per_state(kit.log, "B")]
    with pytest.raises(ValueError, match="start"):
        loaded(kit).predict_batch(states("1", "2", "3"), hooks=hooks)
    assert kit.log[6:] == [
        "A.start 1",
        "B.start 1",
        "A.start 2",
        "A.error 2",
        "B.error 2",
        "A.end 2",
        "B.end 2",
        "A.error 1",
        "B.error 1",
        "A.end 1",
        "B.end 1",
    ]
    assert kit.calls == []


def test_L123_L124_finished_checkpoints_keep_their_ends_and_later_ones_do_not_start(
    kit: Kit,
) -> None:
    hook = per_state(kit.log)
    kit.calling = failing_on(ML, ValueError("boom"))
    router = kit.router(max_loaded=3, hooks=hook)
    with pytest.raises(ValueError, match="boom"):
        router.predict_batch([request("1", EN), request("2", ML), request("3", TD)])
    assert events_of(kit, "start", "error", "end") == [
        "start 1",
        "end 1",
        "start 2",
        "error 2",
        "end 2",
    ]
    assert kit.built == [EN, ML]
    assert next(ctx for ctx in hook.contexts if ctx.states == ["1"]).error is None


def test_L125_a_failing_load_fires_no_predict_event_for_its_requests(kit: Kit) -> None:
    kit.building = lambda name: raising(OSError("disk"))(None) if name == ML else None
    router = kit.router(hooks=per_state(kit.log))
    with pytest.raises(OSError, match="disk"):
        router.predict_batch([request("1", EN), request("2", ML)])
    assert events_of(kit, "start", "error", "end") == ["start 1", "end 1"]


def test_L126_hook_errors_on_the_way_out_are_linked_and_replace_nothing(kit: Kit) -> None:
    exc, hook_error = ValueError("boom"), ValueError("hook")
    kit.calling = failing_on(EN, exc)
    hook = per_state(kit.log, error=raising(hook_error), end=raising(ValueError("end")))
    with pytest.raises(ValueError, match="boom") as caught:
        loaded(kit).predict_batch(states("1", "2"), hooks=hook)
    assert caught.value is exc
    assert hook_error in context_chain(caught.value)


def test_A17_an_empty_batch_is_no_event(kit: Kit) -> None:
    router = kit.router(hooks=per_state(kit.log))
    assert router.predict_batch([]) == []
    assert kit.log == []


def test_A28_any_iterable_of_requests_will_do(kit: Kit) -> None:
    results = loaded(kit).predict_batch(each for each in states("1", "2"))
    assert models_of(results) == [EN, EN]


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ({"state": "a", "questions": NOUL, "langs": "de"}, "unknown key 'langs'; did you mean"),
        ({"state": None, "questions": NOUL}, "request 1: a state is None"),
        ({"state": "a"}, "request 1 has no 'questions'"),
        ({"questions": NOUL}, "request 1 has no 'state'"),
        ({"state": "a", "questions": ["x"]}, "request 1: questions must be a dict"),
        ("a", "request 1 must be a dict"),
        ({"state": "a", "questions": NOUL, "model": "nope"}, "unknown checkpoint 'nope'"),
        ({"state": "a", "questions": NOUL, "lang": 3}, "language is given as a code"),
    ],
    ids=repr,
)
def test_a_bad_request_is_told_before_the_first_hook(kit: Kit, bad: Any, told: str) -> None:
    router = kit.router(hooks=per_state(kit.log))
    for method in (router.predict_batch, router.route_batch):
        with pytest.raises(InvalidRequestError, match=told):
            method([request("1"), bad])
    assert kit.log == []


@pytest.mark.parametrize("bad", ["ab", b"ab", {"state": "a"}, 5, None], ids=repr)
def test_a_batch_is_a_list(kit: Kit, bad: Any) -> None:
    with pytest.raises(InvalidTypeError, match="a batch is a list of requests"):
        kit.router().predict_batch(bad)


def test_an_agent_that_answers_with_too_few_results_fails_its_group(kit: Kit) -> None:
    class Short:
        def system_one(self, state: Any, questions: Any) -> Any: ...

        def predict_batch(self, states: Any, questions: Any) -> Any:
            return [{"answers": {}}]

    router = kit.router(hooks=per_state(kit.log))
    router.attach(EN, Short())
    with pytest.raises(ForwardError, match="returned 1 results for 2 states"):
        router.predict_batch(states("1", "2"))
    assert events_of(kit, "error", "end") == ["error 2", "end 2", "error 1", "end 1"]


def test_exceptions_in_place_of_results_where_asked_for(kit: Kit) -> None:
    kit.calling = failing_on(ML, ValueError("boom"))
    router = kit.router(max_loaded=3)
    requests = [request("1", EN), request("2", ML), request("3", EN), request("4", ML)]
    results = router.predict_batch(requests, return_exceptions=True)
    assert [isinstance(result, ValueError) for result in results] == [False, True, False, True]
    kit.calling = failing_on(ML, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        router.predict_batch(requests, return_exceptions=True)
