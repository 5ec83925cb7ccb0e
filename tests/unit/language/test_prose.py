import pytest

from drut.language.prose import SEGMENT_CHARS, Segment, lines_of, read_segment, sentences


def read(text: str) -> list[Segment]:
    spans = [span for start, end in lines_of(text) for span in sentences(text, start, end)]
    return [part for part in (read_segment(text, *span) for span in spans) if part.words]


def words(text: str) -> list[str]:
    return [word for part in read(text) for word in part.words]


def test_sentences_know_where_they_are() -> None:
    text = "First one. Second one!\r\nThird?  Fourth"
    parts = read(text)
    assert [text[part.start :][: part.length].strip() for part in parts] == [
        "First one.",
        "Second one!",
        "Third?",
        "Fourth",
    ]


@pytest.mark.parametrize(
    "line",
    [
        "for (int i = 0; i < n; i++) { sum += a[i]; }",
        "x = y + z * 4",
        "return total;",
        "items.append(entry)() -> None",
        "if a == b:",
        "std::vector<int> values",
        'kind = "identifier"',
        "{",
    ],
)
def test_code_is_no_prose(line: str) -> None:
    assert words(line) == []


@pytest.mark.parametrize(
    "line",
    [
        "I called twice; nobody answered.",
        "Two item(s) are missing (again), see [1].",
        "Status: open - priority: high!!!",
        "It costs 5 < 10 dollars & more",
        "**Please** help me :)",
        "<p>Please <b>help</b> me</p>",
    ],
)
def test_prose_with_signs_is_prose(line: str) -> None:
    assert len(words(line)) >= 3


def test_what_is_quoted_in_code_is_prose() -> None:
    assert words('{"text": "Mein Paket fehlt", "id": "ab12"}') == ["mein", "paket", "fehlt"]


@pytest.mark.parametrize(
    "token", ["user_id", "a/b", "x@y.org", "file.txt", "AB-123", "camelCase", "C:\\dir", "z" * 49]
)
def test_identifiers_are_dropped(token: str) -> None:
    assert words(f"the {token} here") == ["the", "here"]


def test_words_of_other_scripts_are_dropped() -> None:
    assert words("ask Дмитрий about 注文 now") == ["ask", "about", "now"]


def test_apostrophes_belong_to_words() -> None:
    assert words("I don\u2019t and can't l'ordre") == ["i", "don't", "and", "can't", "l'ordre"]


def test_capitals_are_read_as_small_letters() -> None:
    (part,) = read("WHERE IS IT please")
    assert part.text == "where is it please"
    (part,) = read("Where is my USB stick")
    assert part.text == "Where is my USB stick"


def test_decomposed_and_fullwidth_letters_are_composed() -> None:
    assert words("cafe\u0301 \uff48\uff49") == ["café", "hi"]


def test_long_sentences_are_cut() -> None:
    text = "word " * 500
    parts = read(text)
    assert all(part.length <= SEGMENT_CHARS for part in parts)
    assert sum(len(part.words) for part in parts) == 500
    assert read("x" * 10_000) == []


@pytest.mark.parametrize(
    "noise",
    [
        "{",
        "<",
        '"',
        "'",
        "(",
        "a(",
        'a("',
        "&a",
        "a.",
        "a(b,",
        ") ",
        "; ",
        "a[b",
        "'a ",
        "' ",
        "= ",
        "\\",
        "a'",
        "\ud800",
    ],
)
def test_no_input_takes_quadratic_time(noise: str) -> None:
    # Quadratic matching of this length would take minutes.
    read(noise * (200_000 // len(noise)))
