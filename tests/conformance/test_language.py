"""Language detection on the labelled sentences: nothing foreign is English, English is English."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from drut.language.detect import Detection, detect
from drut.language.latin import Identifier, installed_identifier
from language_set import JSON_CLASS, Line, labelled_lines

LINES = labelled_lines()
GROUPS = sorted({line.group for line in LINES})


@pytest.fixture(params=["py3langid", "word-lists"])
def identifier(request: pytest.FixtureRequest) -> Identifier | None:
    if request.param == "word-lists":
        return None
    return required_identifier()


@pytest.fixture
def py3langid() -> Identifier:
    return required_identifier()


def required_identifier() -> Identifier:
    """The identifier of the extra `lang`, which the tests install."""
    found = installed_identifier()
    assert found is not None, "py3langid is not installed"
    return found


def readings(lines: list[Line], identifier: Identifier | None) -> Counter[str]:
    return Counter(detect(line.state, identifier).reading for line in lines)


def group(name: str) -> list[Line]:
    return [line for line in LINES if line.group == name]


def test_the_set_is_as_large_as_it_says() -> None:
    plain = [line for line in LINES if line.variant == "plain"]
    latin = Counter(line.language for line in plain if line.kind == "latin")
    other = Counter(line.language for line in plain if line.kind == "other-script")
    assert len({line.language for line in plain if line.kind != "code"}) >= 30
    assert sum(line.kind == "english" for line in plain) >= 80
    assert len(latin) >= 20
    assert min(latin.values()) >= 8
    assert len(other) >= 12
    assert min(other.values()) >= 5


@pytest.mark.parametrize("name", GROUPS)
def test_nothing_is_read_the_wrong_way(name: str, identifier: Identifier | None) -> None:
    opposite = {"english": "other", "other": "english", "none": "english"}
    wrong = [
        line
        for line in group(name)
        if detect(line.state, identifier).reading == opposite[line.expected]
    ]
    assert not wrong


@pytest.mark.parametrize(
    ("name", "reading", "least"),
    [
        ("english", "english", 1.0),
        ("english, capitals", "english", 1.0),
        ("english-name", "english", 1.0),
        ("short-english", "english", 0.8),
        ("latin", "other", 1.0),
        ("latin, no accents", "other", 0.98),
        ("latin, capitals", "other", 0.98),
        ("other-script", "other", 1.0),
        ("short-other", "other", 0.9),
        ("homograph", "other", 1.0),
        ("foreign-field", "other", 1.0),
        ("mixed-script", "other", 1.0),
    ],
)
def test_little_stays_undecided(
    name: str, reading: str, least: float, py3langid: Identifier
) -> None:
    lines = group(name)
    assert readings(lines, py3langid)[reading] >= least * len(lines)


def test_word_lists_know_plain_english_and_common_languages() -> None:
    assert readings(group("english"), None)["english"] >= 0.9 * len(group("english"))
    assert readings(group("latin"), None)["other"] >= 0.8 * len(group("latin"))


def test_most_languages_are_named_right(py3langid: Identifier) -> None:
    lines = group("latin")
    named = sum(detect(line.state, py3langid).language == line.language for line in lines)
    assert named >= 0.9 * len(lines)


@pytest.mark.parametrize(
    "text",
    [
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
        "De man is in de auto",
        "Mijn pakket is nog niet aangekomen en de tracking laat niets zien.",
    ],
)
def test_reported_sentences_are_not_english(text: str, identifier: Identifier | None) -> None:
    assert detect(text, identifier).reading in ("other", "undecided")
    if identifier is not None:
        assert detect(text, identifier).reading == "other"


@pytest.mark.parametrize(
    "text",
    [
        "Please cancel my order today",
        "I want my money back",
        "Where is the invoice that you sent to me?",
        "Where is my order?",
    ],
)
def test_reported_english_sentences_are_english(text: str, identifier: Identifier | None) -> None:
    assert detect(text, identifier).reading == "english"


@pytest.mark.parametrize("text", ["refund", "hello there", "good day", "thank you"])
def test_short_english_is_not_called_foreign(text: str, identifier: Identifier | None) -> None:
    assert detect(text, identifier).reading in ("english", "undecided")


@pytest.mark.parametrize("word", ["Հայերեն", "ქართული", "ᏣᎳᎩ", "ｱﾘｶﾞﾄｳ", "ⵜⴰⵎⴰⵣⵉⵖⵜ", "𞤆𞤵𞤤𞤢𞤪"])
def test_scripts_outside_the_usual_tables(word: str, identifier: Identifier | None) -> None:
    assert detect(word, identifier).reading == "other"


def test_an_order_number_with_two_characters_of_chinese_is_undecided(
    identifier: Identifier | None,
) -> None:
    assert detect("Order ABC-12345-XYZ 退款", identifier).reading == "undecided"


def test_no_reading_leaks_the_text(identifier: Identifier | None) -> None:
    for line in group(JSON_CLASS):
        found: Detection = detect(line.state, identifier)
        assert not any(word in repr(found) for word in str(line.state).split() if len(word) > 6)


def test_threads_agree(py3langid: Identifier) -> None:
    states = [line.state for line in LINES[:200]]
    alone = [detect(state, py3langid) for state in states]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda state: detect(state, py3langid), states))
    assert together == alone
