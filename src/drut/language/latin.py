"""Whether Latin-script prose is English: an identifier's probability, checked against words.

Three outcomes: English needs evidence for it, another language needs evidence against English, and
whatever lies between is undecided. Short lines need more evidence than long ones.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, Literal, Protocol, TypeAlias

from drut.language.words import ENGLISH_WORDS, LANGUAGES_OF_WORD, SHARED_WORDS, fold

Outcome: TypeAlias = Literal["english", "other", "undecided"]

WORD_LISTS: Final = "word-lists"  # name of the fallback identifier
SHORT_WORDS: Final = 3  # up to here a line is short
# Least P(English) for English by the least share of words only English has.
ENGLISH_BY_SHARE: Final = ((0.5, 0.02), (0.25, 0.2))
ENGLISH_WITH_A_WORD: Final = 0.3  # ... with at least one such word
ENGLISH_WITH_A_WORD_SHORT: Final = 0.5  # ... on a short line
ENGLISH_ALONE: Final = 0.6  # ... without any; long lines only
# P(English) below which a line is not English, by its least number of words.
NOT_ENGLISH: Final = ((6, 0.05), (4, 0.02), (2, 0.005), (1, 0.001))
# ... or below this one where half the words of a short line are of another language
NOT_ENGLISH_WITH_A_WORD: Final = 0.1
# ... unless more than this share of its words are English; a lower P allows for more of them.
ENGLISH_WORDS_IN_OTHER: Final = 0.2
SURELY_NOT_ENGLISH: Final = 0.005
ENGLISH_WORDS_IN_SURELY_OTHER: Final = 0.45
LANGUAGE_NAMED: Final = 0.3  # least probability for naming the other language
NO_LANGUAGE: Final = frozenset({"zxx", "und"})  # labels of an identifier for no running text

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Guess:
    """What an identifier makes of a text."""

    english: float  # probability of English
    language: str  # most probable language, ISO 639 code
    probability: float  # of that language


class Identifier(Protocol):
    """Something that knows languages by more than a list of words."""

    name: str

    def guess(self, text: str) -> Guess: ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome for one text."""

    outcome: Outcome
    language: str | None = None


@dataclass(frozen=True, slots=True)
class WordEvidence:
    """What the word lists say about a text."""

    words: int
    english: int  # words that only English has
    shared: int  # words that English and others have
    other: int  # words of the language below that English does not have
    language: str | None  # the listed language with most words; None for several

    @property
    def english_share(self) -> float:
        """Share of the words that only English has, in [0, 1]."""
        return self.english / self.words if self.words else 0.0


class _Py3langid:
    """py3langid, with its scores normalised to probabilities. Safe to use from several threads."""

    name = "py3langid"

    def __init__(self) -> None:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        self._model: Any = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)

    def guess(self, text: str) -> Guess:
        ranking = self._model.rank(text)
        english = next(score for language, score in ranking if language == "en")
        return Guess(english, *ranking[0])


class _Lazy:
    """Loads the identifier once, when the first Latin text needs it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._loaded = False
        self._identifier: Identifier | None = None

    def get(self) -> Identifier | None:
        if not self._loaded:
            with self._lock:
                self._load()
        return self._identifier

    def _load(self) -> None:
        if self._loaded:
            return
        try:
            self._identifier = _Py3langid()
        except ImportError:
            logger.info("py3langid is not installed; languages are judged by word lists")
        except (AttributeError, OSError, ValueError) as exc:
            logger.warning(
                "py3langid does not load (%s); languages are judged by word lists. "
                "Install the extra drut[lang] again",
                exc,
            )
        self._loaded = True


_lazy = _Lazy()


def installed_identifier() -> Identifier | None:
    """The identifier, loaded on the first call (about 0.5 s, 120 MB); None if not installed."""
    return _lazy.get()


def word_evidence(words: Sequence[str]) -> WordEvidence:
    """Count the listed words of a text. Words are lower case."""
    english = shared = 0
    others: Counter[str] = Counter()
    for word in words:
        if word in ENGLISH_WORDS:
            english += 1
        elif word in SHARED_WORDS:
            shared += 1
        elif languages := LANGUAGES_OF_WORD.get(fold(word)):
            others.update(languages)
    hits = max(others.values(), default=0)
    best = [language for language, number in others.items() if number == hits]
    return WordEvidence(len(words), english, shared, hits, best[0] if len(best) == 1 else None)


def judge(text: str, words: Sequence[str], identifier: Identifier | None) -> Verdict:
    """Say whether Latin prose is English.

    Args:
        text: the prose.
        words: its words, lower case.
        identifier: what gives P(English); None for the word lists alone.
    """
    evidence = word_evidence(words)
    if not words:
        return Verdict("undecided")
    if identifier is None:
        return _by_words(evidence, text)
    guess = identifier.guess(text)
    return _by_guess(guess, evidence)


def _by_guess(guess: Guess, evidence: WordEvidence) -> Verdict:
    if _is_english(guess.english, evidence):
        return Verdict("english", "en")
    noise = guess.language in NO_LANGUAGE and 10 * evidence.other < evidence.words
    if not noise and _is_not_english(guess.english, evidence):
        return Verdict("other", _language_named(guess, evidence))
    return Verdict("undecided")


def _language_named(guess: Guess, evidence: WordEvidence) -> str | None:
    if guess.language not in NO_LANGUAGE | {"en"} and guess.probability >= LANGUAGE_NAMED:
        return guess.language
    return evidence.language if evidence.other >= 2 else None


def _is_english(probability: float, evidence: WordEvidence) -> bool:
    if evidence.english == 0:
        return probability >= ENGLISH_ALONE and evidence.words > SHORT_WORDS
    short = evidence.words <= SHORT_WORDS
    if probability >= (ENGLISH_WITH_A_WORD_SHORT if short else ENGLISH_WITH_A_WORD):
        return True
    return evidence.other == 0 and any(
        evidence.english_share >= share and probability >= least
        for share, least in ENGLISH_BY_SHARE
    )


def _is_not_english(probability: float, evidence: WordEvidence) -> bool:
    limit = next(limit for least, limit in NOT_ENGLISH if evidence.words >= least)
    if evidence.words <= SHORT_WORDS:
        known = 2 * evidence.other >= evidence.words and probability < NOT_ENGLISH_WITH_A_WORD
        return evidence.english == 0 and (known or probability < limit)
    if probability < SURELY_NOT_ENGLISH:
        return evidence.english_share <= ENGLISH_WORDS_IN_SURELY_OTHER
    return probability < limit and evidence.english_share <= ENGLISH_WORDS_IN_OTHER


def _by_words(evidence: WordEvidence, text: str) -> Verdict:
    """Without an identifier: evidence for one side, and next to none for the other."""
    accented = sum(not letter.isascii() and letter.isalpha() for letter in text)
    if evidence.other > 2 * evidence.english:
        return Verdict("other", evidence.language)
    if evidence.english == 0 and accented >= 2:
        return Verdict("other")
    if evidence.other == 0 and accented < 3 and _words_are_english(evidence):
        return Verdict("english", "en")
    return Verdict("undecided")


def _words_are_english(evidence: WordEvidence) -> bool:
    if evidence.english >= 2 and evidence.english_share >= 0.15:
        return True
    return evidence.english >= 1 and 2 * (evidence.english + evidence.shared) >= evidence.words
