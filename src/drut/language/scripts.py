"""Which scripts a text is written in, by counting letters."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from drut.language.tables import LETTER_RANGES

LATIN: Final = "latin"
UNKNOWN: Final = "unknown"  # the text has no letters
OTHER: Final = "other"  # letters of no script, such as mathematical ones

# Another script inside Latin text decides from this share of the letters on ...
MINORITY_SHARE: Final = 0.20
# ... or from this smaller one when there are at least so many of its letters.
SMALL_SHARE: Final = 0.10
SMALL_SHARE_LETTERS: Final = 10
# A run of capitals is an acronym or a name below this length and a word from it on.
SHOUTED_LETTERS: Final = 5

_BEYOND_ASCII: Final = re.compile(r"[^\x00-\x7f]+")


@dataclass(frozen=True, slots=True)
class ScriptReading:
    """The scripts of a text."""

    script: str  # the one that decides; `unknown` without letters
    profile: Mapping[str, float]  # script to share of the letters, Latin first, then by share
    non_latin: int  # letters that are not Latin
    diacritics: int  # Latin letters beyond A-Z, and combining accents
    characters: int  # of all texts

    @property
    def non_latin_fraction(self) -> float:
        """Share of the letters that are not Latin, in [0, 1]."""
        return sum((share for script, share in self.profile.items() if script != LATIN), 0.0)


def script_profile(text: str) -> dict[str, float]:
    """Share of the letters of each script, Latin first, then the largest first; {} without any."""
    return _shares(_by_script(Counter(text)))


def dominant_script(text: str) -> str:
    """Script that decides how the text is read; `unknown` without letters."""
    return read_scripts((text,)).script


def read_scripts(texts: Iterable[str]) -> ScriptReading:
    """Count the letters of all texts together and say which script decides.

    The script with most letters decides. Another script wins a tie with Latin, and decides inside
    Latin text when enough of the letters are its own and it forms at least one word, so that a
    symbol or a name does not change the reading.
    """
    texts = tuple(texts)
    characters: Counter[str] = Counter()
    for text in texts:
        characters.update(text)
    counts = _by_script(characters)
    return ScriptReading(
        script=_deciding(counts, texts),
        profile=_shares(counts),
        non_latin=counts.total() - counts[LATIN],
        diacritics=sum(number for sign, number in characters.items() if _is_accented(sign)),
        characters=characters.total(),
    )


@lru_cache(maxsize=16384)
def script_of(character: str) -> str | None:
    """Script of one letter, None for what is not a letter."""
    index = bisect_right(_STARTS, ord(character)) - 1
    return _SCRIPTS[index] if index >= 0 and ord(character) <= _ENDS[index] else None


def _is_accented(character: str) -> bool:
    return not character.isascii() and (
        script_of(character) == LATIN or "\u0300" <= character <= "\u036f"
    )


def _by_script(characters: Counter[str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for character, number in characters.items():
        script = script_of(character)
        if script is not None:
            counts[script] += number
    return counts


def _shares(counts: Counter[str]) -> dict[str, float]:
    total = counts.total()
    ordered = sorted(counts.items(), key=lambda item: (item[0] != LATIN, -item[1]))
    return {script: number / total for script, number in ordered}


def _deciding(counts: Counter[str], texts: tuple[str, ...]) -> str:
    if not counts:
        return UNKNOWN
    total = counts.total()
    foreign, letters = max(
        ((script, number) for script, number in counts.items() if script != LATIN),
        key=lambda item: (item[1], item[0] != OTHER),
        default=(UNKNOWN, 0),
    )
    latin = counts[LATIN]
    if letters > latin or (letters == latin and foreign != OTHER):
        return foreign
    non_latin = total - latin
    share = non_latin / total
    many = share >= MINORITY_SHARE or (share >= SMALL_SHARE and non_latin >= SMALL_SHARE_LETTERS)
    return foreign if many and any(map(_has_foreign_word, texts)) else LATIN


def _has_foreign_word(text: str) -> bool:
    """Whether two or more letters of one script other than Latin form a word that is no name.

    A run that starts with a capital is taken for a name, unless it is all capitals and long.
    """
    return any(map(_holds_word, set(_BEYOND_ASCII.findall(text))))


def _holds_word(characters: str) -> bool:
    run: list[str] = []
    script: str | None = None
    for character in characters:
        found = script_of(character)
        if found is None and not character.isspace():
            continue  # a combining mark does not end a word
        if found != script:
            if _is_word(run, script):
                return True
            run, script = [], found
        run.append(character)
    return _is_word(run, script)


def _is_word(run: list[str], script: str | None) -> bool:
    if script in (None, LATIN, OTHER) or len(run) < 2:
        return False
    if not run[0].isupper():
        return True
    return len(run) >= SHOUTED_LETTERS and "".join(run).isupper()


def _sorted_ranges() -> tuple[list[int], list[int], list[str]]:
    ranges = []
    for script, text in LETTER_RANGES.items():
        for span in text.split():
            low, _, high = span.partition("-")
            ranges.append((int(low, 16), int(high or low, 16), script))
    ranges.sort()
    starts, ends, scripts = zip(*ranges, strict=True)
    return list(starts), list(ends), list(scripts)


_STARTS, _ENDS, _SCRIPTS = _sorted_ranges()
