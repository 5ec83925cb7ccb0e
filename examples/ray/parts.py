"""A large JSON Lines file in parts: which there are, which are done, and how one is written.

A part's output file appears in one step and is named after the part, so a part that is answered
twice, after a worker or the driver was killed, is there once. Nothing here needs Ray or drut.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from secrets import token_hex

PLAN = "plan.json"
WORKERS = 4
"""That may end at one part, in a run."""


class PlanError(ValueError):
    """The output directory belongs to another run."""


@dataclass(frozen=True)
class Part:
    """Consecutive lines of the input file."""

    number: int
    line: int  # of the first one, from 0
    offset: int  # of it, in bytes
    lines: int

    @property
    def name(self) -> str:
        """Of its output file."""
        return f"part-{self.number:06}.jsonl"


def split(source: Path, lines: int) -> Iterator[Part]:
    """Parts of so many lines, the last of what is left. Reads the file once, a line at a time."""
    if lines < 1:
        raise ValueError(f"a part needs at least one line, got {lines}")
    number = line = offset = count = start = 0
    with source.open("rb") as file:
        for text in file:
            count += 1
            offset += len(text)
            if count == lines:
                yield Part(number, line, start, count)
                number, line, start, count = number + 1, line + count, offset, 0
    if count:
        yield Part(number, line, start, count)


def read(source: Path, part: Part) -> list[bytes]:
    """The lines of a part."""
    with source.open("rb") as file:
        file.seek(part.offset)
        return [file.readline() for _ in range(part.lines)]


def begin(directory: Path, part: Part) -> None:
    """Note that a worker begins with a part.

    Raises:
        RuntimeError: too many have begun with it in this run, and none of them came to its end.
    """
    begun = len(list(directory.glob(f".{part.name}.begun-*")))
    if begun >= WORKERS:
        raise RuntimeError(
            f"{begun} workers have ended at lines {part.line} to {part.line + part.lines - 1}; "
            "look for what is special about them, or for too little memory"
        )
    (directory / f".{part.name}.begun-{token_hex(8)}").touch()


def write(directory: Path, part: Part, answers: Iterable[object]) -> None:
    """Write a part's output in one step: whoever sees the file sees all of it."""
    beside = directory / f".{part.name}.{token_hex(8)}"
    with beside.open("w", encoding="utf-8") as file:
        for answer in answers:
            file.write(json.dumps(answer, ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())
    beside.replace(directory / part.name)
    for note in directory.glob(f".{part.name}.begun-*"):
        note.unlink(missing_ok=True)


def open_plan(directory: Path, source: Path, **facts: object) -> None:
    """Make the output directory, or go on in one that the same run has begun.

    Args:
        directory: of the output.
        source: the input file; its size and its first megabyte tell it from others.
        facts: what answers depend on: questions, bundle, lines of a part.

    Raises:
        PlanError: another file, or other facts, were begun there.
    """
    with source.open("rb") as file:
        head = hashlib.sha256(file.read(1 << 20)).hexdigest()
    wanted = {"bytes": source.stat().st_size, "head_sha256": head, **facts}
    path = directory / PLAN
    directory.mkdir(parents=True, exist_ok=True)
    if path.exists():
        found = json.loads(path.read_text(encoding="utf-8"))
        other = sorted(key for key in {*found, *wanted} if found.get(key) != wanted.get(key))
        if other:
            raise PlanError(
                f"{directory} was begun with other {', '.join(other)}; give another directory, or "
                "remove it"
            )
    else:
        beside = directory / f".{PLAN}.{token_hex(8)}"
        beside.write_text(json.dumps(wanted, indent=1), encoding="utf-8")
        beside.replace(path)
    sweep(directory)


def sweep(directory: Path) -> None:
    """Remove what killed workers left; only while no other run writes to the directory."""
    for leftover in directory.glob(".part-*"):
        leftover.unlink(missing_ok=True)


def unfinished(directory: Path, parts: Iterable[Part]) -> list[dict[str, int]]:
    """Parts without an output file, as rows for Ray."""
    done = {path.name for path in directory.glob("part-*.jsonl")}
    return [asdict(part) for part in parts if part.name not in done]
