import pytest

from drut.errors import InvalidRequestError, InvalidTypeError
from drut.presets import PRESETS, preset
from drut.questions import parse_questions

EXPECTED = {
    "triage": {"team": "choice", "urgency": "score", "churn": "noul", "needs_human": "noul"},
    "email": {"category": "choice", "needs_reply": "noul", "priority": "score"},
    "guard": {"prompt_injection": "noul", "asks_for_secrets": "noul", "risk": "score"},
    "moderation": {"category": "choice", "toxic": "noul", "severity": "score"},
    "router": {"route": "choice", "complexity": "score", "needs_tools": "noul"},
}


def test_presets_have_the_promised_questions_and_types() -> None:
    assert {
        name: {key: asked["type"] for key, asked in questions.items()}
        for name, questions in PRESETS.items()
    } == EXPECTED


@pytest.mark.parametrize("name", EXPECTED)
def test_every_preset_can_be_asked(name: str) -> None:
    parsed = parse_questions(preset(name))
    assert [question.id for question in parsed] == list(EXPECTED[name])


@pytest.mark.parametrize("name", EXPECTED)
def test_a_preset_leaves_room_in_a_head_of_192_tokens(name: str) -> None:
    for question in parse_questions(preset(name)):
        words = sum(len(text.split()) for text in (question.prompt, *question.slot_texts))
        assert words <= 100, question.id


def test_a_preset_may_be_changed_without_changing_the_next_one() -> None:
    changed = preset("triage")
    changed["team"]["criteria"].clear()
    del changed["churn"]
    assert preset("triage")["team"]["criteria"]
    assert "churn" in preset("triage")


def test_the_table_of_presets_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        PRESETS["mine"] = {}  # type: ignore[index]


@pytest.mark.parametrize(("name", "meant"), [("triaje", "triage"), ("Mail", "email")])
def test_an_unknown_preset_is_refused_with_the_closest_name(name: str, meant: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"did you mean '{meant}'"):
        preset(name)


def test_an_unknown_preset_far_from_all_lists_what_there_is() -> None:
    with pytest.raises(InvalidRequestError, match="there are triage, email, guard") as raised:
        preset("zzzz")
    assert "did you mean" not in str(raised.value)


def test_a_preset_is_named_by_a_string() -> None:
    with pytest.raises(InvalidTypeError, match="NoneType"):
        preset(None)  # type: ignore[arg-type]
