"""What `drut predict` does once it knows what to ask: answer, and print the answers."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from drut.cli.console import clip, console_on, is_terminal, printable, tell, write_json
from drut.cli.lines import BATCH_LINES, Line, batches, read_lines
from drut.cli.render import cut_note, render
from drut.decoding.gate import parse_min_confidence
from drut.errors import DrutError, InvalidRequestError
from drut.questions import dump_json
from drut.schema import OnTruncation, Prediction, Questions, State

Step: TypeAlias = Callable[[Line], None]
"""Told the last line of every batch that is done."""


@dataclass(frozen=True, slots=True)
class AskOptions:
    """How the states of one command are answered."""

    long: bool = False
    lang: str | None = None
    min_confidence: float | None = None
    max_len: int | None = None
    head_max_len: int | None = None
    batch_size: int | None = None
    on_truncation: OnTruncation = "ignore"


class Asker(ABC):
    """Asks the same questions about any number of states."""

    def __init__(self, questions: Questions, options: AskOptions) -> None:
        self.questions = questions
        self.options = options

    @abstractmethod
    def check(self) -> None:
        """Find faults of the questions and the budget before any state is read.

        Raises:
            InvalidRequestError: a question cannot be asked as written.
        """

    @abstractmethod
    def facts(self, result: Prediction) -> str:
        """What answered, in one line."""

    @abstractmethod
    def close(self) -> None:
        """Free what answers."""

    @abstractmethod
    def _ask(self, states: Sequence[State], on_truncation: OnTruncation) -> list[Prediction]:
        """Answer about each state, in order, within the token budget."""

    @abstractmethod
    def _ask_long(self, state: State) -> Prediction:
        """Answer about one state of any length."""

    def answer(self, states: Sequence[State]) -> list[Prediction]:
        """Answer about each state, in order."""
        options = self.options
        if options.long:
            results = [self._ask_long(state) for state in states]
            gate = parse_min_confidence(options.min_confidence)
            if gate is not None:
                gate.apply(results)
            return results
        # Warnings are written here, with the line they are about, and not by the agent.
        return self._ask(states, "error" if options.on_truncation == "error" else "ignore")

    def answer_lines(self, lines: Sequence[Line]) -> list[Prediction | DrutError]:
        """Answer about each line, in order, or say what is wrong with it.

        What fails together is tried again in halves, so that one bad state costs only itself.
        """
        if not lines:
            return []
        try:
            return [*self.answer([line.state for line in lines])]
        except DrutError as exc:
            if len(lines) == 1:
                return [exc]
        middle = len(lines) // 2
        return [*self.answer_lines(lines[:middle]), *self.answer_lines(lines[middle:])]


class Printer:
    """Writes results to standard output: tables for people, JSON Lines for programs."""

    def __init__(self, asker: Asker, *, as_json: bool) -> None:
        self._asker = asker
        self._warns = asker.options.on_truncation == "warn"
        self._stream = sys.stdout
        self._console = None if as_json else console_on(sys.stdout)

    def one(self, result: Prediction) -> None:
        """Write the result of a single state."""
        self._warn(result, "")
        if self._console is None:
            write_json(result, self._stream)
            return
        self._table(result, self._console)
        self._console.print(Text(self._asker.facts(result), style="dim"))

    def line(self, path: Path, line: Line, result: Prediction | DrutError) -> None:
        """Write the result of one line of a file."""
        place = f"{path}:{line.number}"
        if not isinstance(result, DrutError):
            self._warn(result, f"{place}: ")
        if self._console is None:
            write_json(_record(path, line, result), self._stream)
        elif isinstance(result, DrutError):
            tell(f"drut predict: {place}: {result}")
        else:
            self._headline(place, line, self._console)
            self._table(result, self._console)
            self._console.print()

    def flush(self) -> None:
        """Hand on what was written, so that a reader behind a pipe need not wait."""
        self._stream.flush()

    def _headline(self, place: str, line: Line, console: Console) -> None:
        state = line.state if isinstance(line.state, str) else dump_json(line.state)
        name = place if line.id is None else f"{place} {dump_json(line.id)}"
        # Cut first: a line may be long, and only its beginning is shown.
        text = printable(f"{name}: {state[: 2 * console.width]}", console.file)
        console.print(Text(clip(text, console.width, console.file), style="cyan"))

    def _table(self, result: Prediction, console: Console) -> None:
        console.print(render(result, self._asker.questions, console))
        windows = result.get("usage", {}).get("windows", 1)
        if windows > 1:
            console.print(Text(f"read in {windows} windows", style="dim"))
        note = None if self._warns else cut_note(result)
        if note is not None:
            console.print(Text(printable(note, console.file), style="yellow"))

    def _warn(self, result: Prediction, place: str) -> None:
        note = cut_note(result) if self._warns else None
        if note is not None:
            tell(f"drut predict: warning: {place}{note}")


def answer_file(asker: Asker, path: Path, printer: Printer, *, progress: bool) -> tuple[int, int]:
    """Answer about every line of a file, in order and in bounded memory.

    Returns:
        Lines that are not blank, and how many of them could not be answered.

    Raises:
        OSError: the file cannot be read.
    """
    total = failed = 0
    count = asker.options.batch_size or BATCH_LINES
    with _progress(path, shown=progress) as step:
        for batch in batches(read_lines(path), count):
            for line, result in _answered(asker, batch):
                printer.line(path, line, result)
                failed += isinstance(result, DrutError)
            total += len(batch)
            printer.flush()
            step(batch[-1])
    return total, failed


def _answered(asker: Asker, batch: Sequence[Line]) -> Iterator[tuple[Line, Prediction | DrutError]]:
    results = iter(asker.answer_lines([line for line in batch if line.fault is None]))
    for line in batch:
        yield line, next(results) if line.fault is None else InvalidRequestError(line.fault)


def _record(path: Path, line: Line, result: Prediction | DrutError) -> dict[str, Any]:
    place: dict[str, Any] = {"line": line.number}
    if line.id is not None:
        place["id"] = line.id
    if isinstance(result, DrutError):
        fault = {"type": type(result).__name__, "message": str(result)}
        return {"file": str(path), **place, "error": fault}
    return {**place, **result}


@contextmanager
def _progress(path: Path, *, shown: bool) -> Iterator[Step]:
    """A progress bar on standard error, where it disturbs nothing else."""
    if not shown or not is_terminal(sys.stderr) or is_terminal(sys.stdout):
        yield lambda line: None
        return
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[lines]} lines"),
        TimeRemainingColumn(),
        console=console_on(sys.stderr),
        redirect_stdout=False,  # results go to their own stream
    )
    size = path.stat().st_size if path.is_file() else None
    task = bar.add_task(printable(path.name, sys.stderr), total=size, lines=0)
    with bar:
        yield lambda line: bar.update(task, completed=line.end, lines=line.number)
