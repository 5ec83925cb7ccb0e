"""Router: arguments, routing, the registry, languages and long states."""

import inspect
import json
import threading
from typing import Any

import pytest

import drut
from drut.errors import InvalidRequestError, InvalidTypeError
from lifecycle_helpers import NOUL, Hook, cached, make_fake_agent, raising, skipping, together
from router_helpers import EN, ML, TD, Kit, models_of, prediction, request

ENGLISH = "Please cancel my order today"
GERMAN = "Wo ist meine Bestellung geblieben?"


@pytest.fixture
def kit() -> Kit:
    return Kit()


class Speaking:
    """An agent that takes a language and notes it."""

    def __init__(self, **attributes: Any) -> None:
        self.languages: list[Any] = []
        vars(self).update(attributes)

    def system_one(self, state: Any, questions: Any, lang: Any = None) -> Any:
        self.languages.append(lang)
        return prediction()

    def predict_batch(self, states: Any, questions: Any, lang: Any = None) -> Any:
        self.languages.append((len(states), lang))
        return [prediction() for _ in states]


def test_the_constructor_takes_upstreams_arguments() -> None:
    parameters = set(inspect.signature(drut.Router).parameters)
    named = (
        "models device token revision revisions max_loaded default auto_task_detection "
        "standalone_repos preload lang_guess hooks on_predict_start on_predict_end hooks_raise "
        "hooks_concurrent hooks_timeout agent_kwargs sha256_digests"
    )
    assert set(named.split()) <= parameters


def test_other_names_of_the_methods() -> None:
    assert drut.Router.system_one is drut.Router.predict
    assert drut.Router.predict_many is drut.Router.predict_batch


def test_a_new_router_has_loaded_nothing(kit: Kit) -> None:
    router = kit.router()
    assert repr(router) == "Router(loaded=[], max_loaded=2, default='multilingual')"
    assert kit.built == []
    assert list(router.models) == [EN, ML, TD, "starter"]


def test_route_loads_nothing_and_fires_on_route_only(kit: Kit) -> None:
    router = kit.router(hooks=Hook(kit.log))
    decision = router.route(ENGLISH, NOUL)
    assert (decision.model, decision.reason_code) == (EN, "english")
    assert kit.log == ["A.route"]


def test_route_needs_neither_state_nor_questions(kit: Kit) -> None:
    hook = Hook(kit.log)
    router = kit.router(hooks=hook)
    assert router.route(None).reason_code == "no_letters"
    assert hook.contexts[0].questions == {}
    with pytest.raises(InvalidTypeError, match="questions must be a dict"):
        router.route(None, "x")  # type: ignore[arg-type]


def test_the_context_of_on_route(kit: Kit) -> None:
    hook = Hook(kit.log)
    router = kit.router(hooks=hook)
    decision = router.route(ENGLISH, NOUL)
    (ctx,) = hook.contexts
    assert (ctx.states, ctx.questions, ctx.router) == ([ENGLISH], NOUL, router)
    assert ctx.decision is decision
    assert ctx.model is ctx.agent is ctx.results is None


def test_route_batch_gives_decisions_in_order(kit: Kit) -> None:
    router = kit.router(hooks=Hook(kit.log))
    decisions = router.route_batch(
        [request(GERMAN, None), request(ENGLISH, "auto"), request("a", TD)]
    )
    assert [decision.model for decision in decisions] == [ML, EN, TD]
    assert kit.log == ["A.route"] * 3
    assert router.route_batch([]) == []


def test_a_predict_routes_like_route(kit: Kit) -> None:
    router = kit.router()
    for text in (ENGLISH, GERMAN, "ok", "12"):
        assert router.predict(text, NOUL)["routing"] == router.route(text, NOUL)


def test_settings_can_be_changed(kit: Kit) -> None:
    router = kit.router()
    router.default = "en"
    assert router.default == EN
    assert router.route("12").model == EN
    with pytest.raises(InvalidRequestError, match="unknown checkpoint"):
        router.default = "nope"
    router.lang_guess = lambda state: "de"
    assert router.route(ENGLISH).reason_code == "installed_lang_guess"
    router.auto_task_detection = True
    ids = ("action", "category", "churn_risk", "needs_human", "urgency")
    assert router.route("a", {key: NOUL["n"] for key in ids}).model == TD
    router.max_loaded = 0
    assert router.max_loaded == 1


def test_the_language_is_passed_to_agents_that_take_it(kit: Kit) -> None:
    agent = Speaking()
    router = kit.router()
    router.attach(ML, agent)
    router.predict(GERMAN, NOUL)
    router.predict(GERMAN, NOUL, lang="fr_FR")
    router.predict("a", NOUL, model=ML)
    assert agent.languages == ["de", "fr", None]


def test_a_batch_is_split_by_language_where_it_may_matter(kit: Kit) -> None:
    requests = [request(GERMAN, None), request("a", None, lang="fr"), request(GERMAN, None)]
    for attributes, calls in (
        ({}, [(2, "de"), (1, "fr")]),
        ({"lang_temperatures": {"de": [1.0]}}, [(2, "de"), (1, "fr")]),
        ({"lang_temperatures": {}}, [(3, None)]),
    ):
        agent = Speaking(**attributes)
        router = kit.router()
        router.attach(ML, agent)
        router.predict_batch(requests)
        assert agent.languages == calls


def test_gates_judge_answers_of_agents_and_caches(kit: Kit) -> None:
    router = Kit("fake").router()
    for start in (None, skipping([cached()])):
        for result in (
            router.predict("a", NOUL, model=EN, min_confidence=1.0, on_predict_start=start),
            router.predict_batch([request()], min_confidence=1.0, on_predict_start=start)[0],
        ):
            assert result["answers"]["n"]["abstention"] == "abstained"


def test_on_truncation_reaches_the_agent(kit: Kit) -> None:
    router = Kit("fake").router()
    with pytest.raises(drut.errors.TruncationError):
        router.predict("long " * 300, NOUL, model=EN, on_truncation="error")
    with pytest.raises(drut.errors.TruncationError):
        router.predict_batch([request("long " * 300)], on_truncation="error")


def test_sorting_is_reported(kit: Kit) -> None:
    router = Kit("fake").router()
    report: dict[str, Any] = {}
    requests = [request(str(i)) for i in range(3)] + [request("a", max_len=200)]
    results = router.predict_batch(requests, batch_size=2, sort_by_length=True, diagnostics=report)
    assert len(results) == 4
    expected = {"groups": 2, "reordered": 1, "smallest": 1, "largest": 3}
    assert report == {"sort_by_length": expected}


def test_a_long_state_is_read_window_by_window(kit: Kit) -> None:
    log: list[str] = []
    router = drut.Router(factory=lambda name: make_fake_agent(), hooks=Hook(log))
    state = "word " * 400
    result = router.predict_long(state, NOUL, model=EN, window=64)
    assert result["usage"]["windows"] > 2
    assert result["routing"]["model"] == EN
    assert log == ["A.route", "A.load", "A.start", "A.end"]
    same = make_fake_agent().predict_long(state, NOUL, window=64)
    assert result["answers"] == same["answers"]
    assert router.predict_long("short", NOUL, model=EN)["usage"]["windows"] == 1


def test_a_hook_that_answers_a_long_state_is_no_window(kit: Kit) -> None:
    router = Kit("fake").router()
    result = router.predict_long(
        "word " * 400, NOUL, model=EN, on_predict_start=skipping([cached(input_tokens=3)])
    )
    assert result["usage"] == {"input_tokens": 3, "windows": 0}
    assert result["routing"]["model"] == EN


def test_an_agent_without_long_states_is_an_ordinary_failure(kit: Kit) -> None:
    router = kit.router(hooks=Hook(kit.log))
    with pytest.raises(InvalidTypeError, match="has no predict_long"):
        router.predict_long("a", NOUL, model=EN)
    assert kit.log[-2:] == ["A.error", "A.end"]


def test_registering_builds_nothing_and_makes_a_name_usable(kit: Kit) -> None:
    router = kit.router()
    assert router.register(" Support ", "org/support", "our own") == "support"
    assert router.registered == {"support": {"source": "org/support", "description": "our own"}}
    assert kit.built == []
    assert router.predict("a", NOUL, model="support")["routing"]["repo"] == "org/support"


def test_a_new_source_unloads_what_came_from_the_old_one(kit: Kit) -> None:
    router = kit.router(hooks=Hook(kit.log))
    router.load(EN)
    kit.log.clear()
    router.register("en", "convaiinnovations/laya")
    assert router.loaded == [EN]
    router.register("en", "me/finetuned")
    assert (router.loaded, kit.log) == ([], ["A.evict"])


def test_unregister_forgets_an_own_checkpoint(kit: Kit) -> None:
    router = kit.router(models={"mine": "org/mine"}, revisions={"mine": "v1"}, hooks=Hook(kit.log))
    router.load("mine")
    router.unregister("MINE")
    assert kit.log[-1] == "A.evict"
    assert (router.loaded, router.registered) == ([], {})
    with pytest.raises(InvalidRequestError, match="unknown checkpoint 'mine'"):
        router.predict("a", NOUL, model="mine")


def test_unregister_refuses_what_is_needed(kit: Kit) -> None:
    router = kit.router(models={"mine": "org/mine"}, default="mine")
    for name, told in (("mine", "is the default"), (EN, "built in"), ("nope", "unknown")):
        with pytest.raises(InvalidRequestError, match=told):
            router.unregister(name)


def test_a_checkpoint_without_a_source_must_be_attached(kit: Kit) -> None:
    router = kit.router(models={"mine": None})
    with pytest.raises(InvalidRequestError, match=r"attach\('mine', agent\) it, or give it a sour"):
        router.predict("a", NOUL, model="mine")
    router.attach("mine", kit.agent())
    assert router.predict("a", NOUL, model="mine")["routing"]["repo"] is None


def test_attaching_what_is_no_agent_changes_nothing(kit: Kit) -> None:
    router = kit.router()
    with pytest.raises(InvalidTypeError, match="cannot answer for the Router"):
        router.attach("mine", object())
    with pytest.raises(InvalidTypeError, match="named by a string"):
        router.attach(None, kit.agent())  # type: ignore[arg-type]
    assert router.registered == {}


def test_a_mixed_batch_keeps_its_order(kit: Kit) -> None:
    texts = [ENGLISH, "नमस्ते", "I want my money back", "привет"]
    requests = [request(text, None) for text in texts]
    results: Any = kit.router().predict_batch(requests)
    assert models_of(results) == [EN, ML, EN, ML]
    assert [result["echo"] for result in results] == texts


def test_two_checkpoints_in_use_with_room_for_one(kit: Kit) -> None:
    both = threading.Barrier(2)
    kit.calling = lambda call: both.wait(10)
    router = kit.router(max_loaded=1)
    results = together(2, lambda i: router.predict("a", NOUL, model=(EN, ML)[i]))
    assert sorted(models_of(results)) == [EN, ML]
    assert len(router.loaded) == 1
    assert kit.agents[EN].closed + kit.agents[ML].closed == 1


def test_a_failing_start_hook_of_the_constructor_and_of_the_call(kit: Kit) -> None:
    router = kit.router(on_predict_start=raising(ValueError("installed")))
    with pytest.raises(ValueError, match="installed"):
        router.predict("a", NOUL, model=EN)
    with pytest.raises(drut.errors.InvalidHookError):
        router.predict("a", NOUL, hooks=[object()])


ENGLISH_FIELDS = "Please send me the invoice for my last order, I need it for my records today. "


def test_a_decision_explains_which_part_of_the_text_decided() -> None:
    router = drut.Router()
    state = {"mail": ENGLISH_FIELDS * 6, "note": "Mein Paket ist leider noch nicht angekommen."}
    explained = router.route(state, explain=True)
    diagnostic = explained["detection"]["diagnostic"]
    assert explained.reason_code == "mixed_language"
    assert (diagnostic["stage"], diagnostic["reason"]) == ("segment", "mixed_language")
    assert diagnostic["source"] == explained["detection"]["mixed_segment"]
    assert "Paket" not in json.dumps(explained)
    assert router.route(state) == {
        **explained,
        "detection": {k: v for k, v in explained["detection"].items() if k != "diagnostic"},
    }


def test_an_explained_batch_says_so_of_every_request_the_text_decided() -> None:
    requests = [
        {"state": ENGLISH_FIELDS, "questions": {}},
        {"state": ENGLISH_FIELDS, "questions": {}, "model": "starter"},
    ]
    by_text, by_name = drut.Router().route_batch(requests, explain=True)
    assert by_text["detection"]["diagnostic"] == {
        "stage": "whole_state",
        "reason": "english",
        "source": None,
    }
    assert by_name["detection"] is None
