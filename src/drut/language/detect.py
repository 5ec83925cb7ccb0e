"""Detection: which scripts a state is written in, and whether it is English.

The state is judged as a whole first. If the whole reads as English or stays undecided, its
sentences are looked at one by one, so that a foreign field or line inside English is not lost.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, TypeVar

from drut.language.latin import (
    ENGLISH_WORDS_IN_OTHER,
    WORD_LISTS,
    Identifier,
    Outcome,
    Verdict,
    installed_identifier,
    judge,
    word_evidence,
)
from drut.language.leaves import Path, Piece, read_pieces
from drut.language.prose import Segment, lines_of, read_segment, sentences
from drut.language.scripts import LATIN, UNKNOWN, ScriptReading, read_scripts

WHOLE_CHARS: Final = 4000  # of prose, judged as one text
LINES: Final = 512  # searched for sentences
SEGMENTS: Final = 512  # sentences looked at one by one
SEGMENTS_GUESSED: Final = 32  # of them, handed to the identifier
SEGMENT_WORDS: Final = 4  # fewer say too little to overrule the whole
SEGMENT_NON_LATIN_LETTERS: Final = 10  # likewise, in another script
SCRIPT_COUNT: Final = "script"  # name of the judge where counting letters is enough

_Item = TypeVar("_Item")

Reading: TypeAlias = Literal["english", "other", "undecided", "no-letters"]


@dataclass(frozen=True, slots=True)
class MixedSegment:
    """A foreign part inside a state that otherwise reads as English. Says where, never what."""

    path: Path  # position in each container on the way to the string, outermost first
    start: int  # in characters of that string
    length: int  # in characters
    language: str | None  # ISO 639 code; None if not named
    script: str


@dataclass(frozen=True, slots=True)
class Detection:
    """What the text of a state says about its language. Holds nothing of the text itself."""

    script: str  # the one that decides; `unknown` without letters
    script_profile: dict[str, float]  # script to share of the letters, 4 decimals, Latin first
    language: str | None  # ISO 639 code; None if not named, and for scripts other than Latin
    is_english: bool  # there is evidence of English, and none of anything else
    language_undecided: bool  # neither English nor another language was established
    diacritic_rate: float  # Latin letters beyond A-Z per character, 4 decimals
    non_latin_fraction: float  # share of the letters that are not Latin, 4 decimals
    mixed_segment: MixedSegment | None  # the foreign part that overruled an English whole
    identifier: str  # what judged: `script`, `py3langid` or `word-lists`

    @property
    def reading(self) -> Reading:
        """The outcome in one word. Routing needs nothing else."""
        if self.script == UNKNOWN:
            return "no-letters"
        if self.language_undecided:
            return "undecided"
        return "english" if self.is_english else "other"

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON."""
        segment = self.mixed_segment
        return {
            "script": self.script,
            "script_profile": dict(self.script_profile),
            "language": self.language,
            "is_english": self.is_english,
            "language_undecided": self.language_undecided,
            "diacritic_rate": self.diacritic_rate,
            "non_latin_fraction": self.non_latin_fraction,
            "mixed_segment": None if segment is None else _segment_dict(segment),
            "identifier": self.identifier,
        }


def _segment_dict(segment: MixedSegment) -> dict[str, Any]:
    return {
        "path": list(segment.path),
        "start": segment.start,
        "length": segment.length,
        "language": segment.language,
        "script": segment.script,
    }


_UNSET: Final[Any] = object()


def detect(state: object, identifier: Identifier | None = _UNSET) -> Detection:
    """Read the strings of a state and say whether they are English.

    The cost is bounded whatever the size of the state, and no content of it raises.

    Args:
        state: a string or any JSON value.
        identifier: what judges Latin text; None for the word lists alone. By default the
            installed one.
    """
    pieces = read_pieces(state)
    scripts = read_scripts(piece.text for piece in pieces)
    if scripts.script != LATIN:
        outcome: Outcome = "undecided" if scripts.script == UNKNOWN else "other"
        return _detection(scripts, Verdict(outcome), SCRIPT_COUNT)
    located = _located(pieces)
    if located and identifier is _UNSET:
        identifier = installed_identifier()
    judge_name = _name_of(identifier) if located else SCRIPT_COUNT
    verdict = _judge_whole([part for _, part in located], identifier)
    if verdict.outcome == "other":
        return _detection(scripts, verdict, judge_name)
    mixed = _foreign_line(pieces, scripts) or _foreign_sentence(located, identifier)
    if mixed is not None:
        verdict = Verdict("other", mixed.language)
    return _detection(scripts, verdict, judge_name, mixed)


def _name_of(identifier: Identifier | None) -> str:
    return WORD_LISTS if identifier is None else identifier.name


def _detection(
    scripts: ScriptReading, verdict: Verdict, judge_name: str, mixed: MixedSegment | None = None
) -> Detection:
    return Detection(
        script=scripts.script,
        script_profile={script: round(share, 4) for script, share in scripts.profile.items()},
        language=verdict.language,
        is_english=verdict.outcome == "english",
        language_undecided=verdict.outcome == "undecided",
        diacritic_rate=round(scripts.diacritics / max(scripts.characters, 1), 4),
        non_latin_fraction=round(scripts.non_latin_fraction, 4),
        mixed_segment=mixed,
        identifier=judge_name,
    )


def _located(pieces: Sequence[Piece]) -> list[tuple[Piece, Segment]]:
    """The sentences of all strings, in reading order; of very many, an even sample."""
    lines = [(piece, span) for piece in pieces for span in lines_of(piece.text)]
    spans = [
        (piece, span)
        for piece, (start, end) in _spread(lines, LINES)
        for span in sentences(piece.text, start, end)
    ]
    read = ((piece, read_segment(piece.text, *span)) for piece, span in _spread(spans, SEGMENTS))
    return [(piece, part) for piece, part in read if part.words]


def _judge_whole(parts: Sequence[Segment], identifier: Identifier | None) -> Verdict:
    texts: list[str] = []
    words: list[str] = []
    characters = 0
    for part in {part.text: part for part in parts}.values():  # what is repeated counts once
        if characters >= WHOLE_CHARS:
            break
        texts.append(part.text)
        words.extend(part.words)
        characters += len(part.text)
    return judge(" ".join(texts), words, identifier)


def _foreign_line(pieces: Sequence[Piece], scripts: ScriptReading) -> MixedSegment | None:
    """A line in another script, inside a state that is Latin as a whole."""
    if scripts.non_latin < SEGMENT_NON_LATIN_LETTERS:
        return None
    lines = [
        (piece, span)
        for piece in pieces
        if not piece.text.isascii()
        for span in lines_of(piece.text)
    ]
    for piece, (start, end) in _spread(lines, LINES):
        found = read_scripts((piece.text[start:end],))
        if found.script != LATIN and found.non_latin >= SEGMENT_NON_LATIN_LETTERS:
            return MixedSegment(piece.path, piece.start + start, end - start, None, found.script)
    return None


def _foreign_sentence(
    located: Sequence[tuple[Piece, Segment]], identifier: Identifier | None
) -> MixedSegment | None:
    """A Latin sentence in a language that can be named, inside a state not judged foreign.

    Lists of names and technical lines are unlike English too, but like no language in particular.
    """
    if len(located) < 2:
        return None
    candidates = [(piece, part) for piece, part in located if _may_be_foreign(part)]
    for piece, part in _spread(candidates, SEGMENTS_GUESSED):
        verdict = judge(part.text, part.words, identifier)
        if verdict.outcome == "other" and verdict.language is not None:
            start = piece.start + part.start
            return MixedSegment(piece.path, start, part.length, verdict.language, LATIN)
    return None


def _may_be_foreign(part: Segment) -> bool:
    if len(part.words) < SEGMENT_WORDS:
        return False
    return word_evidence(part.words).english_share <= ENGLISH_WORDS_IN_OTHER


def _spread(items: Sequence[_Item], limit: int) -> Sequence[_Item]:
    """At most `limit` of the items, evenly spaced, the first and the last among them."""
    if len(items) <= limit:
        return items
    step = (len(items) - 1) / (limit - 1)
    return [items[round(index * step)] for index in range(limit)]
