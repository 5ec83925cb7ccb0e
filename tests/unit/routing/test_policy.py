"""Which checkpoint is chosen, and the code that says why."""

from typing import Any

import pytest

from drut.errors import InvalidRequestError, InvalidTypeError
from drut.language.detect import Detection, MixedSegment
from drut.routing.catalog import Catalog
from drut.routing.decision import REASON_CODES, RouteDecision, as_decision, copy_plain
from drut.routing.policy import WORKFLOWS, RoutingPolicy, language_for
from drut.routing.requests import RouteRequest

CUSTOMER_SERVICE: dict[str, Any] = {
    "urgency": {},
    "action": {},
    "category": {},
    "churn_risk": {},
    "needs_human": {},
}
ENGLISH = "Please cancel my order today"


def detection(**changes: Any) -> Detection:
    fields: dict[str, Any] = {
        "script": "latin",
        "script_profile": {"latin": 1.0},
        "language": "en",
        "is_english": True,
        "language_undecided": False,
        "diacritic_rate": 0.0,
        "non_latin_fraction": 0.0,
        "mixed_segment": None,
        "identifier": "fake",
    }
    return Detection(**{**fields, **changes})


def decide(state: Any = ENGLISH, questions: Any = None, **keys: Any) -> RouteDecision:
    settings = {
        name: keys.pop(name)
        for name in ("default", "auto_task_detection", "detector", "installed")
        if name in keys
    }
    if "installed" in settings:
        settings["lang_guess"] = settings.pop("installed")
    return RoutingPolicy(Catalog(), **settings).decide(RouteRequest(state, questions, **keys))


def test_a_model_wins_over_everything() -> None:
    decision = decide(
        questions=CUSTOMER_SERVICE, model="ml", task="typed", lang="en", auto_task_detection=True
    )
    assert (decision.model, decision.reason_code) == ("multilingual", "explicit_model")
    assert decision["detection"] is decision["workflow"] is None
    assert decision["repo"] == "convaiinnovations/laya/multilingual"


@pytest.mark.parametrize("model", [None, "", " ", "auto", "AUTO"])
def test_auto_and_blank_leave_the_choice_to_the_router(model: Any) -> None:
    assert decide(model=model).reason_code == "english"


@pytest.mark.parametrize(
    ("task", "model"),
    [
        ("typed_decisions", "typed-decisions"),
        ("Typed-Decisions", "typed-decisions"),
        ("ml", "multilingual"),
    ],
)
def test_a_task_is_typed_decisions_or_a_checkpoint(task: str, model: str) -> None:
    decision = decide(task=task, lang="en")
    assert (decision.model, decision.reason_code) == (model, "explicit_task")


def test_an_unknown_task_is_told() -> None:
    with pytest.raises(InvalidRequestError, match="unknown checkpoint 'customer_service'"):
        decide(task="customer_service")


@pytest.mark.parametrize("ids", WORKFLOWS)
def test_the_ids_of_a_workflow_choose_typed_decisions_where_that_is_wanted(ids: Any) -> None:
    questions: dict[str, Any] = {key: {} for key in ids}
    wanted = decide(questions=questions, lang="de", auto_task_detection=True)
    assert (wanted.model, wanted.reason_code) == ("typed-decisions", "workflow")
    assert wanted["workflow"] == WORKFLOWS[ids]
    assert wanted["detection"] is None
    unwanted = decide(questions=questions, lang="de")
    assert (unwanted.model, unwanted["workflow"]) == ("multilingual", WORKFLOWS[ids])


def test_one_id_more_or_less_is_no_workflow() -> None:
    more = {**CUSTOMER_SERVICE, "extra": {}}
    less = {key: {} for key in list(CUSTOMER_SERVICE)[1:]}
    for questions in (more, less, {}):
        assert decide(questions=questions, auto_task_detection=True).reason_code == "english"


@pytest.mark.parametrize("lang", ["en", "EN", "en_US", "en-GB", "en_US.UTF-8", "eng", " English "])
def test_spellings_of_english(lang: str) -> None:
    decision = decide("hola", lang=lang)
    assert (decision.model, decision.reason_code) == ("english", "explicit_lang")


@pytest.mark.parametrize("lang", ["de", "de-DE", "zh-Hant", "xx", "pt_BR.UTF-8"])
def test_every_other_language_is_multilingual(lang: str) -> None:
    assert decide("hello there my friend", lang=lang).model == "multilingual"


@pytest.mark.parametrize("lang", [None, "", "  ", "C", "POSIX", "und", "zxx", "mul", "C.UTF-8"])
def test_a_code_that_names_no_language_leaves_it_to_the_text(lang: Any) -> None:
    assert decide(lang=lang, lang_guess=lang, installed=lang).reason_code == "english"


@pytest.mark.parametrize("lang", [5, True, ["en"], b"en"])
def test_a_language_is_a_code(lang: Any) -> None:
    with pytest.raises(InvalidTypeError, match="language is given as a code"):
        decide(lang=lang)


def test_hints_in_order() -> None:
    assert decide(lang="de", lang_guess="en").reason_code == "explicit_lang"
    call = decide(lang_guess="de", installed="en")
    assert (call.model, call.reason_code) == ("multilingual", "lang_guess")
    installed = decide(lang_guess=lambda state: None, installed=lambda state: "de")
    assert (installed.model, installed.reason_code) == ("multilingual", "installed_lang_guess")


def test_a_guess_is_handed_the_state_itself() -> None:
    seen: list[Any] = []
    state = {"text": "hallo"}
    decide(state, lang_guess=lambda given: seen.append(given))
    assert seen[0] is state


def test_what_a_guess_raises_gets_out_and_nonsense_is_told() -> None:
    with pytest.raises(ZeroDivisionError):
        decide(lang_guess=lambda state: 1 // 0)
    with pytest.raises(InvalidTypeError, match="lang_guess must return a language code or None"):
        decide(lang_guess=lambda state: 5)


@pytest.mark.parametrize(
    ("found", "model", "code"),
    [
        ({"script": "unknown", "script_profile": {}}, "starter", "no_letters"),
        ({"language_undecided": True, "language": None}, "starter", "undecided"),
        ({}, "english", "english"),
        ({"is_english": False, "language": "de"}, "multilingual", "other_language"),
        ({"is_english": False, "language": None}, "multilingual", "other_language"),
        (
            {"is_english": False, "script": "han", "script_profile": {"latin": 0.4, "han": 0.6}},
            "multilingual",
            "non_latin_script",
        ),
        (
            {
                "is_english": False,
                "language": "de",
                "mixed_segment": MixedSegment((0,), 0, 40, "de", "latin"),
            },
            "multilingual",
            "mixed_language",
        ),
    ],
)
def test_what_the_text_says(found: Any, model: str, code: str) -> None:
    decision = decide(detector=lambda state: detection(**found), default="starter")
    assert (decision.model, decision.reason_code) == (model, code)
    assert decision["detection"] == detection(**found).as_dict()


def test_undecided_says_so_and_goes_to_the_default() -> None:
    decision = decide("ok")
    assert decision.model == "multilingual"
    assert decision["detection"]["language_undecided"]
    assert "undecided" in decision.reason


SENTENCES = {
    "multilingual": [
        "spiele etwas Musik",
        "Vorrei annullare l'ordine",
        "Quiero cancelar mi pedido",
        "Exportă APK-ul pentru Android",
        "Care este ora in Tokyo?",
        "Dit is een test in de stad",
        "Ik wil in de stad",
        "Jag har en fest i dag",
        "Vi har en man i en bil",
        "Die man is in die huis",
        "नमस्ते",
        "привет",
    ],
    "english": [
        "Please cancel my order today",
        "I want my money back",
        "Where is the invoice that you sent to me?",
    ],
}


@pytest.mark.parametrize(
    ("text", "model"), [(text, model) for model, texts in SENTENCES.items() for text in texts]
)
def test_sentences_that_went_to_the_wrong_checkpoint_elsewhere(text: str, model: str) -> None:
    assert decide(text).model == model


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"lang": "xx"},
        {"lang_guess": "Geheimnis-de"},
        {"installed": lambda state: "Geheimnis"},
        {"model": "en"},
    ],
)
def test_no_text_of_the_customer_is_in_a_decision(keys: Any) -> None:
    words = "Geheimnis Kaffeemaschine Rückerstattung"
    state = {
        "a": "Where is my order? I have been waiting for it. " * 3,
        "b": f"Das {words} ist da.",
    }
    decision = decide(state, **keys)
    assert decision.reason_code in REASON_CODES
    for word in words.split():
        assert word.lower() not in repr(dict(decision)).lower()


def test_a_decision_is_a_dict_with_shortcuts() -> None:
    decision = decide()
    assert isinstance(decision, dict)
    assert list(decision) == ["model", "repo", "reason", "reason_code", "detection", "workflow"]
    assert decision.model == decision["model"] == "english"
    assert decision.reason == decision["reason"]
    assert repr(decision) == "RouteDecision(model='english', reason_code='english')"


def test_a_hooks_decision_may_be_a_plain_dict() -> None:
    left = as_decision({"model": "ml"})
    assert (left.model, left.reason, left.reason_code) == ("ml", "", "hook")
    decision = RouteDecision(model="ml")
    assert as_decision(decision) is decision


def test_copies_share_nothing() -> None:
    original = {"a": {"b": [1, {"c": 2}]}}
    copy = copy_plain(original)
    copy["a"]["b"][1]["c"] = 3
    assert original == {"a": {"b": [1, {"c": 2}]}}


@pytest.mark.parametrize(
    ("lang", "found", "told"),
    [
        ("de-AT", {"language": "en"}, "de"),
        ("en_US.UTF-8", None, "en"),
        (None, {"language": "fr"}, "fr"),
        ("und", {"language": "fr"}, "fr"),
        (None, None, None),
        (None, "nonsense of a hook", None),
    ],
)
def test_the_language_an_agent_is_told(lang: Any, found: Any, told: str | None) -> None:
    assert language_for(RouteRequest("a", {}, lang=lang), {"detection": found}) == told
