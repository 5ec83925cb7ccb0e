"""The held-out sets: hand-written cases, and schemas whose labels are never trained."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from starter.bank import EVAL_DIR, Kind, Label, Schema, load_schemas
from starter.examples import Example, choice_option, meaning, noul_options, score_options
from starter.grammar import expand

TEST_CASES: Final = EVAL_DIR / "test_cases.jsonl"
UNSEEN: Final = EVAL_DIR / "unseen_schemas.txt"
DEVELOPMENT: Final = EVAL_DIR / "dev_schemas.txt"


def written_cases(path: Path = TEST_CASES) -> list[Example]:
    """The hand-written cases, one JSON object a line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [_case(json.loads(line)) for line in lines if line.strip()]


def schema_items(path: Path, seed: int = 7) -> list[Example]:
    """One item for every text of the schemas in a file, with all labels of its schema.

    Questions go round; the labels of a choice stand in a random order, drawn from the seed.
    """
    rng = random.Random(seed)
    items: list[Example] = []
    for schema in load_schemas([path]):
        items += _noul_items(schema, rng) if schema.kind == "noul" else _label_items(schema, rng)
    return items


def state_text(state: Any) -> str:
    """A state as the model reads it: text as it is, anything else as JSON."""
    return state if isinstance(state, str) else json.dumps(state, ensure_ascii=False)


def _case(raw: dict[str, Any]) -> Example:
    kind: Kind = raw["type"]
    names = [str(name) for name in raw.get("options") or ()]
    return make_item(kind, raw["instructions"], names, int(raw["answer"]), state_text(raw["state"]))


def make_item(kind: Kind, question: str, names: Sequence[str], answer: int, state: str) -> Example:
    """An evaluation item in the format's own wording."""
    if kind == "noul":
        options: tuple[str, ...] = noul_options()
        anchors: tuple[str, ...] = ("no", question)
    else:
        options = score_options(names) if kind == "score" else tuple(map(choice_option, names))
        anchors = tuple(meaning(name) for name in names)
    return Example(kind, question, options, answer, state, anchors, core=state, source="eval")


def _label_items(schema: Schema, rng: random.Random) -> list[Example]:
    items: list[Example] = []
    for right in schema.labels:
        for text in right.texts:
            labels: list[Label] = list(schema.labels)
            if schema.kind == "choice":
                rng.shuffle(labels)
            question = schema.questions[len(items) % len(schema.questions)]
            names = [label.names[0] for label in labels]
            state = expand(text, rng)
            items.append(make_item(schema.kind, question, names, labels.index(right), state))
    return items


def _noul_items(schema: Schema, rng: random.Random) -> list[Example]:
    pairs = [(text, 1) for text in schema.yes] + [(text, 0) for text in schema.no]
    items: list[Example] = []
    for text, answer in pairs:
        question = schema.questions[len(items) % len(schema.questions)]
        items.append(make_item("noul", question, (), answer, expand(text, rng)))
    return items
