"""The hand-written bank: schemas with questions, labels and texts, read from `bank/*.txt`.

One record a line::

    = choice | domain            a schema starts (choice, noul or score)
    ! Which team takes this?     a way to ask its question
    @ billing / payments :: what the label means
    - My card was charged twice  a text of the label above; for noul, a text answered "no"
    + I want to cancel           noul only: a text answered "yes"
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias, cast, get_args

from starter.grammar import expand, unknown_slots

Kind: TypeAlias = Literal["choice", "score", "noul"]

HERE: Final = Path(__file__).resolve().parent
BANK_DIR: Final = HERE / "bank"
EVAL_DIR: Final = HERE / "eval"
LEAST_TEXTS: Final = 2  # a label with fewer texts cannot be learnt


@dataclass(slots=True)
class Label:
    """One answer of a choice or score schema, with its names and the texts it fits."""

    names: tuple[str, ...]
    description: str = ""
    texts: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Schema:
    """One question in several wordings, with its possible answers and texts for each."""

    kind: Kind
    domain: str
    questions: list[str] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
    yes: list[str] = field(default_factory=list)  # noul only
    no: list[str] = field(default_factory=list)  # noul only

    def texts(self) -> list[str]:
        """All texts of the schema."""
        return self.yes + self.no + [text for label in self.labels for text in label.texts]


class BankError(ValueError):
    """A bank file has a line that cannot be read."""


def bank_files(directory: Path = BANK_DIR) -> list[Path]:
    """The text files of the bank, in a fixed order."""
    return sorted(directory.glob("*.txt"))


def load_schemas(paths: Iterable[Path]) -> list[Schema]:
    """Read the schemas of the files in order.

    Raises:
        BankError: a line is not a record, names the file and the line number.
    """
    schemas: list[Schema] = []
    for path in paths:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if line.strip() and not line.startswith("# "):
                _read_record(line, schemas, f"{path.name}:{number}")
    return schemas


def _read_record(line: str, schemas: list[Schema], where: str) -> None:
    mark, text = line[0], line[1:].strip()
    if mark == "=":
        schemas.append(_start_schema(text, where))
        return
    if not schemas or not text or mark not in "!@+-":
        raise BankError(
            f"{where}: {line!r} is no record; begin lines with one of = ! @ + - or '# '"
        )
    schema = schemas[-1]
    if mark == "!":
        schema.questions.append(text)
    elif mark == "@":
        schema.labels.append(_read_label(text))
    elif mark == "+":
        schema.yes.append(text)
    elif schema.kind == "noul":
        schema.no.append(text)
    elif schema.labels:
        schema.labels[-1].texts.append(text)
    else:
        raise BankError(f"{where}: a text before the first label; put an '@' line above it")


def _start_schema(text: str, where: str) -> Schema:
    kind, _, domain = (part.strip() for part in text.partition("|"))
    if kind not in get_args(Kind):
        raise BankError(f"{where}: schema type {kind!r}; expected choice, noul or score")
    return Schema(kind=cast(Kind, kind), domain=domain)


def _read_label(text: str) -> Label:
    names, _, description = text.partition("::")
    return Label(tuple(name.strip() for name in names.split(" / ")), description.strip())


def problems(schemas: Sequence[Schema]) -> list[str]:
    """What is wrong with the schemas: missing parts, too few texts, unknown slots."""
    found: list[str] = []
    for schema in schemas:
        where = f"{schema.kind} | {schema.domain or (schema.questions or ['?'])[0]}"
        if not schema.questions:
            found.append(f"{where}: no question")
        if schema.kind == "noul":
            if min(len(schema.yes), len(schema.no)) < LEAST_TEXTS:
                found.append(f"{where}: {len(schema.yes)} yes and {len(schema.no)} no texts")
        elif len(schema.labels) < 2:
            found.append(f"{where}: {len(schema.labels)} labels")
        found += [
            f"{where}: label {label.names[0]!r} has {len(label.texts)} texts"
            for label in schema.labels
            if len(label.texts) < LEAST_TEXTS
        ]
        slots = sorted({slot for text in schema.texts() for slot in unknown_slots(text)})
        found += [f"{where}: unknown slot {slot}" for slot in slots]
    return found


def usable(schemas: Sequence[Schema]) -> list[Schema]:
    """The schemas without those that lack questions, labels or texts; labels without texts go."""
    kept: list[Schema] = []
    for schema in schemas:
        schema.labels = [label for label in schema.labels if len(label.texts) >= LEAST_TEXTS]
        enough = (
            min(len(schema.yes), len(schema.no)) >= LEAST_TEXTS
            if schema.kind == "noul"
            else len(schema.labels) >= 2
        )
        if enough and schema.questions:
            kept.append(schema)
    return kept


def sample_texts(schemas: Sequence[Schema], seed: int = 0) -> list[str]:
    """Every text, question, name and description once, with the grammar expanded."""
    rng = random.Random(seed)
    texts: list[str] = []
    for schema in schemas:
        texts += [expand(text, rng) for text in schema.texts()]
        texts += schema.questions
        for label in schema.labels:
            texts += [*label.names, label.description]
    return [text for text in texts if text]
