import json

import pytest

from drut.language import detect as module
from drut.language.detect import Detection, detect
from drut.language.latin import Guess

SECRET = "Mein Paket ist leider nicht angekommen"


class Counting:
    """Takes text with `der`, `ist` or `mein` for German and counts its calls."""

    name = "counting"

    def __init__(self) -> None:
        self.texts: list[str] = []

    def guess(self, text: str) -> Guess:
        self.texts.append(text)
        words = text.lower().split()
        german = sum(word in ("der", "ist", "mein", "nicht") for word in words)
        english = 0.9 if 4 * german < len(words) else 0.0001
        return Guess(english, "de" if english < 0.5 else "en", 0.95)


def read(state: object) -> Detection:
    return detect(state, Counting())


def test_keys_of_the_result_are_stable() -> None:
    found = read({"a": "Where is the parcel that I ordered", "b": SECRET}).as_dict()
    assert list(found) == [
        "script",
        "script_profile",
        "language",
        "is_english",
        "language_undecided",
        "diacritic_rate",
        "non_latin_fraction",
        "mixed_segment",
        "identifier",
    ]
    assert found["mixed_segment"] == {
        "path": [1],
        "start": 0,
        "length": len(SECRET),
        "language": "de",
        "script": "latin",
    }
    assert json.loads(json.dumps(found)) == found


def test_the_result_holds_no_text_of_the_state() -> None:
    found = read({"a": "Where is the parcel that I ordered", "b": f"Hello there. {SECRET}"})
    assert found.mixed_segment is not None
    for word in ("Paket", "parcel", "Hello"):
        assert word not in repr(found)
        assert word not in json.dumps(found.as_dict())


@pytest.mark.parametrize(
    "state", [None, "", "123", "😀 !", b"\xff\xfe", float("nan"), [], {"a": 1}]
)
def test_no_letters(state: object) -> None:
    found = read(state)
    assert (found.script, found.script_profile) == ("unknown", {})
    assert found.reading == "no-letters"
    assert not found.is_english
    assert found.language_undecided


def test_undecided_is_not_english() -> None:
    found = detect("zeta eta theta", None)
    assert found.reading == "undecided"
    assert not found.is_english
    assert found.language_undecided


def test_another_script_decides_without_the_identifier() -> None:
    identifier = Counting()
    found = detect("Где мой заказ?", identifier)
    assert (found.reading, found.script, found.identifier) == ("other", "cyrillic", "script")
    assert not found.language_undecided
    assert found.non_latin_fraction == 1
    assert identifier.texts == []


def test_code_is_undecided_without_the_identifier() -> None:
    identifier = Counting()
    found = detect("x = y + z * 4", identifier)
    assert (found.reading, found.identifier) == ("undecided", "script")
    assert identifier.texts == []


def test_the_judge_is_named() -> None:
    assert read("Where is my parcel").identifier == "counting"
    assert detect("Where is my parcel", None).identifier == "word-lists"


def test_a_foreign_line_in_another_script_overrules_english() -> None:
    english = "The customer wrote to us about an order that never came. " * 4
    found = read({"note": english, "text": f"Hello,\n{'мой заказ не пришёл'}"})
    assert found.reading == "other"
    assert found.script == "latin"
    assert found.mixed_segment is not None
    assert found.mixed_segment.script == "cyrillic"
    assert found.mixed_segment.path == (1,)
    assert found.mixed_segment.start == len("Hello,\n")


@pytest.mark.parametrize("part", ["мир", "hola", "Mein Paket"])
def test_a_word_or_two_do_not_overrule_english(part: str) -> None:
    english = "The customer wrote to us about an order that never came. " * 4
    assert read({"note": english, "text": part}).reading == "english"


def test_a_foreign_end_of_a_long_string_is_seen() -> None:
    text = "The customer wrote to us about an order that never came. " * 3000
    found = read(text + SECRET)
    assert found.reading == "other"
    assert found.mixed_segment is not None
    assert (text + SECRET)[found.mixed_segment.start :] == SECRET


def test_a_foreign_last_field_of_many_is_seen() -> None:
    state = {f"k{index}": "Please refund the order that I sent" for index in range(50_000)}
    assert read(state).reading == "english"
    state["last"] = SECRET
    found = read(state)
    assert found.mixed_segment is not None
    assert found.mixed_segment.path == (50_000,)


def test_a_sentence_like_no_language_does_not_overrule_english() -> None:
    class Unnamed(Counting):
        def guess(self, text: str) -> Guess:
            found = super().guess(text)
            return Guess(found.english, found.language, 0.1)

    state = {"a": "Where is the parcel that I ordered", "b": "zeta ist eta theta"}
    assert read(state).reading == "other"
    assert detect(state, Unnamed()).reading == "english"


def test_the_whole_is_judged_by_its_first_characters() -> None:
    identifier = Counting()
    names = ["".join(chr(ord("a") + int(digit)) for digit in str(n)) for n in range(900)]
    detect(". ".join(f"Where is the parcel of {name}" for name in names), identifier)
    assert len(identifier.texts[0]) <= module.WHOLE_CHARS + 400


def test_rates_have_four_decimals() -> None:
    found = read("Zoë wrote that the naïve plan is what they want")
    assert found.diacritic_rate == round(2 / 47, 4)
    assert (found.non_latin_fraction, type(found.non_latin_fraction)) == (0, float)
    assert read("the part you want in the мир").script_profile == {
        "latin": 0.8636,
        "cyrillic": 0.1364,
    }


@pytest.mark.parametrize(
    "state",
    [
        "zeta eta theta iota. " * 50_000,
        {f"k{index}": "zeta eta theta iota kappa" for index in range(20_000)},
        [["zeta eta theta iota\nkappa lambda my ny"] * 300] * 300,
        "zeta eta theta iota\n" * 50_000,
    ],
    ids=["string", "fields", "lists", "lines"],
)
def test_the_work_is_bounded(state: object) -> None:
    class Unsure(Counting):
        def guess(self, text: str) -> Guess:
            self.texts.append(text)
            return Guess(0.3, "en", 0.3)

    identifier = Unsure()
    detect(state, identifier)
    assert 1 <= len(identifier.texts) <= 1 + module.SEGMENTS_GUESSED
    assert len(identifier.texts[0]) <= module.WHOLE_CHARS + 400
    assert sum(map(len, identifier.texts)) <= module.WHOLE_CHARS + 400 * module.SEGMENTS_GUESSED


@pytest.mark.parametrize(
    "state", ["\ud800 where is my parcel", {"a": "where \udfff is my parcel"}, ["\ud83d"]]
)
@pytest.mark.parametrize("identifier", [None, Counting()], ids=["word-lists", "counting"])
def test_lone_surrogates_do_no_harm(state: object, identifier: Counting | None) -> None:
    detect(state, identifier).as_dict()


def test_spreading_keeps_both_ends() -> None:
    assert module._spread(range(5), 9) == range(5)
    chosen = module._spread(list(range(1000)), 10)
    assert (len(set(chosen)), chosen[0], chosen[-1]) == (10, 0, 999)
