import pytest

from drut.language.scripts import (
    LATIN,
    OTHER,
    UNKNOWN,
    dominant_script,
    read_scripts,
    script_of,
    script_profile,
)
from drut.language.tables import LETTER_RANGES


def word_of(script: str) -> str:
    """The first letters of a script, small ones where it has capitals."""
    letters = []
    for span in LETTER_RANGES[script].split():
        low, _, high = span.partition("-")
        letters += [chr(point) for point in range(int(low, 16), int(high or low, 16) + 1)]
    small = [letter for letter in letters if not letter.isupper()]
    return "".join((small or letters)[:4])


@pytest.mark.parametrize("script", sorted(set(LETTER_RANGES) - {OTHER}))
def test_a_word_of_each_script_is_of_that_script(script: str) -> None:
    assert dominant_script(word_of(script)) == script
    assert script_profile(word_of(script)) == {script: 1.0}


@pytest.mark.parametrize(
    ("word", "script"),
    [
        ("Հայերեն", "armenian"),
        ("ქართული", "georgian"),
        ("ᏣᎳᎩ", "cherokee"),
        ("ｱﾘｶﾞﾄｳ", "kana"),
        ("ⵜⴰⵎⴰⵣⵉⵖⵜ", "tifinagh"),
        ("𞤆𞤵𞤤𞤢𞤪", "adlam"),
        ("ありがとう", "kana"),
        ("谢谢", "han"),
        ("감사합니다", "hangul"),
        ("ᬧᬶᬲᬸᬦᬶ", "balinese"),
        ("⠓⠑⠇⠇⠕", "braille"),
        ("Ｈｅｌｌｏ", "latin"),
        ("ʃəʊ", "latin"),
    ],
)
def test_named_scripts(word: str, script: str) -> None:
    assert dominant_script(word) == script


def test_a_letter_newer_than_the_interpreter_counts() -> None:
    sidetic = "\U00010940\U00010941"  # Unicode 17
    assert dominant_script(sidetic) == "sidetic"


@pytest.mark.parametrize("text", ["", "123 €", "😀", "...", "\ud800", "\u2800", "\u0301"])
def test_no_letters(text: str) -> None:
    assert script_profile(text) == {}
    assert dominant_script(text) == UNKNOWN


def test_latin_comes_first_then_the_largest_share() -> None:
    profile = script_profile("ab мир привет γδ")
    assert list(profile) == ["latin", "cyrillic", "greek"]
    assert profile["cyrillic"] == pytest.approx(9 / 13)
    assert sum(profile.values()) == pytest.approx(1)


def test_another_script_wins_a_tie_with_latin() -> None:
    assert dominant_script("ab αβ") == "greek"
    assert dominant_script("ab ΑΒ") == "greek"  # even where it forms no word
    assert dominant_script("a µ") == LATIN  # a letter of no script does not


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("a" * 16 + " мира", "cyrillic"),  # 4 of 20 letters
        ("a" * 17 + " мир", LATIN),  # 3 of 20
        ("a" * 90 + " десятьбукв", "cyrillic"),  # 10 of 100
        ("a" * 81 + " девятьбук", LATIN),  # 9 of 90
        ("a" * 120 + " двенадцатьбу", LATIN),  # 12 of 132
    ],
)
def test_a_minority_decides_from_its_share_on(text: str, script: str) -> None:
    assert dominant_script(text) == script


@pytest.mark.parametrize(
    "text",
    [
        "ask Дмитрий Савицкий about the order",  # a name
        "the α β γ δ of it",  # symbols
        "the ГОСТ norm",  # an acronym
        "𝐇𝐞𝐥𝐥 my dear",  # letters of no script
    ],
)
def test_names_and_symbols_do_not_decide(text: str) -> None:
    assert dominant_script(text) == LATIN


def test_long_capitals_are_words() -> None:
    assert dominant_script("ЗАКАЗ НЕ ПРИШЕЛ order express delivery") == "cyrillic"


def test_combining_marks_do_not_end_a_word() -> None:
    assert dominant_script("order now please हि") == "latin"
    assert dominant_script("order please हिन्दी") == "devanagari"


def test_texts_are_counted_together() -> None:
    reading = read_scripts(["héllo", "мир"])
    assert (reading.characters, reading.diacritics, reading.non_latin) == (8, 1, 3)
    assert reading.non_latin_fraction == pytest.approx(3 / 8)


def test_decomposed_accents_are_counted() -> None:
    assert read_scripts(["he\u0301llo"]).diacritics == 1


def test_script_of_what_is_no_letter() -> None:
    assert [script_of(sign) for sign in "1 .\x00\U0010ffff"] == [None] * 5
