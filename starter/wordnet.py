"""WordNet as training text: words, definitions, examples and the is-a tree.

Reads the database files of the Debian package `wordnet-base` (WordNet 3.0).
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

DEFAULT_DIR: Final = Path("/usr/share/wordnet")
PARTS: Final[Mapping[str, str]] = {"n": "noun", "v": "verb", "a": "adj"}
LONGEST_DEFINITION: Final = 180
DEEPEST: Final = 8

# Too abstract to be an answer anybody would offer.
_ABSTRACT: Final = (
    "entity|physical entity|abstraction|abstract entity|object|physical object|whole|unit|"
    "thing|matter|psychological feature|attribute|group|relation|measure|quantity|state|event|"
    "act|cause|causal agent|part|instrumentality|artifact|artefact|content|change|action|"
    "activity|happening|occurrence|property|concept|idea|process|way|social group|collection|"
    "material|substance"
)
ABSTRACT: Final = frozenset(_ABSTRACT.split("|"))
# Names for the database's own subject files.
SUBJECTS: Final[Mapping[str, str]] = {
    "04": "actions and activities",
    "05": "animals",
    "06": "man-made objects",
    "07": "qualities and properties",
    "08": "body parts",
    "09": "thoughts and knowledge",
    "10": "language and communication",
    "11": "events",
    "12": "feelings and emotions",
    "13": "food and drink",
    "14": "groups of people",
    "15": "places",
    "17": "nature and landscape",
    "18": "people",
    "19": "natural phenomena",
    "20": "plants",
    "21": "money and possessions",
    "22": "processes",
    "23": "numbers and amounts",
    "25": "shapes",
    "26": "conditions and states",
    "27": "substances and materials",
    "28": "time",
    "29": "body care and clothing",
    "30": "change",
    "31": "thinking",
    "32": "speaking",
    "33": "competition",
    "34": "eating and drinking",
    "35": "touching and hitting",
    "36": "creating",
    "37": "feeling",
    "38": "movement",
    "39": "perception",
    "40": "giving and owning",
    "41": "politics and society",
    "43": "weather",
}
FIRST_VERB_SUBJECT: Final = 29


class WordNetMissingError(FileNotFoundError):
    """The WordNet database is not installed."""


@dataclass(slots=True)
class Synset:
    """One meaning: its words, definition, example sentences and broader meanings."""

    key: str  # part of speech and offset
    words: tuple[str, ...]
    subject: str
    definition: str
    examples: tuple[str, ...]
    parents: tuple[str, ...]
    kinds: tuple[str, ...] = ()  # keys of broader meanings, nearest first

    @property
    def part(self) -> str:
        """Part of speech: n, v or a."""
        return self.key[0]


@dataclass(slots=True)
class WordNet:
    """The synsets and what the tasks look up in them."""

    synsets: dict[str, Synset]
    common: list[str] = field(default_factory=list)  # keys of meanings seen in tagged text
    kinds: list[str] = field(default_factory=list)  # keys that are a kind of several others
    by_part: dict[str, list[str]] = field(default_factory=dict)
    by_word: dict[str, list[str]] = field(default_factory=dict)


def load_wordnet(directory: Path = DEFAULT_DIR) -> WordNet:
    """Read the database.

    Raises:
        WordNetMissingError: a database file is not there.
    """
    if not (directory / "data.noun").is_file():
        raise WordNetMissingError(
            f"{directory} has no data.noun; install the Debian package wordnet-base or give the "
            "directory of a WordNet 3.0 database"
        )
    net = WordNet({synset.key: synset for synset in _read_synsets(directory)})
    for synset in net.synsets.values():
        synset.kinds = tuple(_ancestors(net.synsets, synset.key)) if synset.part == "n" else ()
    seen = set(_tagged_keys(directory))
    net.common = sorted(key for key in net.synsets if key in seen and _is_usable(net.synsets[key]))
    counts = Counter(kind for key in net.common for kind in net.synsets[key].kinds[:4])
    net.kinds = sorted(kind for kind, count in counts.items() if count >= 3)
    net.by_part = {part: [key for key in net.common if key[0] == part] for part in PARTS}
    by_word: dict[str, list[str]] = defaultdict(list)
    for key in net.common:
        for word in net.synsets[key].words:
            by_word[word].append(key)
    net.by_word = dict(by_word)
    return net


def subject_is_verbal(subject: str) -> bool:
    """Whether a subject file holds verbs."""
    return int(subject) >= FIRST_VERB_SUBJECT


def _is_usable(synset: Synset) -> bool:
    return len(synset.definition) > 12 and synset.subject != "03" and synset.words[0].islower()


def _records(path: Path) -> Iterator[str]:
    # The licence at the head of each file is indented.
    with path.open(encoding="latin-1") as lines:
        for line in lines:
            if not line.startswith(" "):
                yield line


def _tagged_keys(directory: Path) -> Iterator[str]:
    for part, name in PARTS.items():
        for line in _records(directory / f"index.{name}"):
            fields = line.split()
            pointers = int(fields[3])
            tagged, offsets = int(fields[5 + pointers]), fields[6 + pointers :]
            for offset in offsets[:tagged]:
                yield part + offset


def _read_synsets(directory: Path) -> Iterator[Synset]:
    for part, name in PARTS.items():
        for line in _records(directory / f"data.{name}"):
            yield _parse(part, line)


def _parse(part: str, line: str) -> Synset:
    head, _, gloss = line.partition("|")
    fields = head.split()
    count = int(fields[3], 16)
    words = tuple(fields[4 + 2 * i].replace("_", " ").split("(")[0] for i in range(count))
    start = 4 + 2 * count
    pointers = [fields[start + 1 + 4 * i : start + 3 + 4 * i] for i in range(int(fields[start]))]
    parents = tuple(part + target for mark, target in pointers if mark in ("@", "@i"))
    pieces = [piece.strip() for piece in gloss.strip().split(";")]
    examples = (piece.strip('" ') for piece in pieces if piece.startswith('"'))
    definition = "; ".join(piece for piece in pieces if not piece.startswith('"'))
    return Synset(
        key=part + fields[0],
        words=words,
        subject=fields[1],
        definition=re.sub(r"^\([^)]*\)\s*", "", definition)[:LONGEST_DEFINITION],
        examples=tuple(text for text in examples if 15 < len(text) < 140),
        parents=parents if part == "n" else (),
    )


def _ancestors(synsets: Mapping[str, Synset], key: str, depth: int = 0) -> list[str]:
    found: list[str] = []
    for parent in synsets[key].parents:
        if parent in synsets:
            if synsets[parent].words[0] not in ABSTRACT:
                found.append(parent)
            if depth < DEEPEST:
                found += _ancestors(synsets, parent, depth + 1)
    return found
