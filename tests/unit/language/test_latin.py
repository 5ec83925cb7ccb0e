import builtins
import logging
import threading

import pytest

from drut.language import latin
from drut.language.latin import Guess, Verdict, judge, word_evidence


class Fixed:
    """An identifier that always answers the same."""

    name = "fixed"

    def __init__(self, english: float, language: str = "de", probability: float = 0.9) -> None:
        self._guess = Guess(english, language, probability)

    def guess(self, text: str) -> Guess:
        return self._guess


def outcome(text: str, english: float, language: str = "de", probability: float = 0.9) -> str:
    identifier = Fixed(english, language, probability)
    return judge(text, text.lower().split(), identifier).outcome


LONG = "zeta eta theta iota kappa lambda"  # in no list


def test_english_needs_a_word_or_a_high_probability() -> None:
    assert outcome(LONG, 0.9) == "english"
    assert outcome(LONG, 0.5) == "undecided"
    assert outcome(f"{LONG} the", 0.4) == "english"
    assert outcome(f"{LONG} the", 0.25) == "undecided"


def test_many_english_words_lower_the_bar() -> None:
    assert outcome("where did they charge zeta eta", 0.05) == "english"
    assert outcome("where did they charge zeta eta", 0.01) != "english"
    assert outcome("where zeta eta theta", 0.2) == "english"


def test_another_language_needs_a_low_probability() -> None:
    assert outcome(LONG, 0.04) == "other"
    assert outcome(LONG, 0.06) == "undecided"


def test_shorter_lines_need_a_lower_probability() -> None:
    assert [outcome("zeta eta theta iota", p) for p in (0.03, 0.01)] == ["undecided", "other"]
    assert [outcome("zeta eta", p) for p in (0.01, 0.004)] == ["undecided", "other"]
    assert [outcome("zeta", p) for p in (0.004, 0.0005)] == ["undecided", "other"]


def test_english_words_speak_against_another_language() -> None:
    assert outcome("refund zeta eta", 0.0001) == "undecided"
    assert outcome("the where zeta eta theta iota", 0.03) == "undecided"
    assert outcome("the where zeta eta theta iota", 0.001) == "other"


def test_short_english_is_never_taken_on_probability_alone() -> None:
    assert outcome("zeta eta theta", 0.99) == "undecided"
    assert outcome("refund zeta eta", 0.6) == "english"


def test_short_lines_of_known_words() -> None:
    assert outcome("gracias", 0.05, "it", 0.2) == "other"
    assert outcome("gracias", 0.4, "it", 0.2) == "undecided"


def test_a_language_is_named_only_with_some_certainty() -> None:
    assert judge(LONG, LONG.split(), Fixed(0.0, "sv", 0.5)) == Verdict("other", "sv")
    assert judge(LONG, LONG.split(), Fixed(0.0, "sv", 0.1)) == Verdict("other", None)


def test_text_without_language_is_undecided() -> None:
    assert outcome(LONG, 0.0, "zxx") == "undecided"


def test_no_words_no_verdict() -> None:
    assert judge("", (), Fixed(1.0, "en")) == Verdict("undecided")
    assert judge("", (), None) == Verdict("undecided")


def test_word_evidence_counts_each_kind() -> None:
    found = word_evidence(["where", "is", "gracias", "pedido"])
    assert (found.words, found.english, found.shared, found.other) == (4, 1, 1, 1)
    assert found.english_share == 0.25
    assert word_evidence(()).english_share == 0


def test_tied_languages_are_not_named() -> None:
    assert word_evidence(["obrigado"]).language == "pt"
    assert word_evidence(["hola"]).language is None  # Spanish and Catalan


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("where is my money", Verdict("english", "en")),
        ("mein paket ist nicht da", Verdict("other", "de")),
        ("dit is een test", Verdict("other", "nl")),
        ("the man is in de auto und nicht", Verdict("undecided")),
        ("größe fällt", Verdict("other", None)),
        ("zeta eta theta iota", Verdict("undecided")),
        ("is in a", Verdict("undecided")),
    ],
)
def test_word_lists_alone(text: str, verdict: Verdict) -> None:
    assert judge(text, text.split(), None) == verdict


def test_the_identifier_is_loaded_once_by_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []
    started = threading.Barrier(8)

    class Slow(Fixed):
        def __init__(self) -> None:
            super().__init__(0.0)
            built.append(1)
            threading.Event().wait(0.05)

    monkeypatch.setattr(latin, "_Py3langid", Slow)
    lazy = latin._Lazy()
    found: list[object] = []

    def call() -> None:
        started.wait()
        found.append(lazy.get())

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert built == [1]
    assert len(found) == 8
    assert len(set(map(id, found))) == 1


def test_without_the_extra_word_lists_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def refuse(name: str, *args: object, **options: object) -> object:
        if name.startswith("py3langid"):
            raise ModuleNotFoundError(f"No module named {name!r}")
        return real_import(name, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", refuse)
    assert latin._Lazy().get() is None


def test_a_broken_model_is_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise OSError("model.npz.xz is truncated")

    monkeypatch.setattr(latin, "_Py3langid", broken)
    with caplog.at_level(logging.WARNING, logger="drut"):
        assert latin._Lazy().get() is None
    assert "model.npz.xz is truncated" in caplog.text
