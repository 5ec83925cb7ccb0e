"""A runner whose passes end when a test says so, and rows whose answers tell them apart."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from drut.execution.queue import QueuePolicy, QueueRunner
from drut.tensors import MASKED_LOGIT, EncodedRow, Logits
from lifecycle_helpers import wait_until

USAGE: Any = {}


def row(value: int, tokens: int = 4, options: int = 2) -> EncodedRow:
    """A row that is answered with `value`."""
    return EncodedRow(np.full(tokens, value), np.arange(options), 0, USAGE)


def value_of(each: EncodedRow) -> int:
    return int(each.ids[0])


def values(logits: Logits) -> list[int]:
    """What `Passes` answered, row by row."""
    return [int(value) for value in logits.options[:, 0]]


def logits_of(rows: Sequence[EncodedRow]) -> Logits:
    """Slot j of a row is answered with its value plus j / 8, the act head with its value."""
    widest = max(len(each.markers) for each in rows)
    options = np.full((len(rows), widest), MASKED_LOGIT, np.float32)
    for place, each in enumerate(rows):
        count = len(each.markers)
        options[place, :count] = value_of(each) + np.arange(count) / 8
    actions = np.array([[value_of(each)] for each in rows], np.float32)
    return Logits(options, actions)


class Passes:
    """The inner runner: notes every pass, and holds it back while the gate is shut."""

    def __init__(self, before: Callable[[list[int]], object] = lambda values: None) -> None:
        self.log: list[list[int]] = []  # values of the rows of every pass, as they start
        self.threads: list[str] = []  # on which they ran
        self.running = self.most = 0
        self.closed = 0
        self.gate = threading.Event()
        self.gate.set()
        self._before = before
        self._lock = threading.Lock()

    def run(self, rows: Sequence[EncodedRow]) -> Logits:
        with self._lock:
            self.log.append([value_of(each) for each in rows])
            self.threads.append(threading.current_thread().name)
            self.running += 1
            self.most = max(self.most, self.running)
        try:
            assert self.gate.wait(30), "nobody opened the gate"
            self._before([value_of(each) for each in rows])
            return logits_of(rows)
        finally:
            with self._lock:
                self.running -= 1

    def statistics(self) -> dict[str, Any]:
        return {"passes": len(self.log)}

    def close(self) -> None:
        assert self.running == 0, "closed under a pass"
        self.closed += 1


def one_each(rows: Sequence[EncodedRow]) -> list[list[int]]:
    """A plan: every row in a pass of its own."""
    return [[place] for place in range(len(rows))]


def all_in_one(rows: Sequence[EncodedRow]) -> list[list[int]]:
    """A plan: every row in the same pass."""
    return [list(range(len(rows)))]


def chunks_of(size: int) -> Callable[[Sequence[EncodedRow]], list[list[int]]]:
    """A plan: so many rows in a pass."""

    def plan(rows: Sequence[EncodedRow]) -> list[list[int]]:
        places = list(range(len(rows)))
        return [places[start : start + size] for start in range(0, len(rows), size)]

    return plan


def queue(inner: Passes, fits: Any = 8, **options: Any) -> QueueRunner:
    """A queue over `inner`; `fits` may be the number of rows that share a pass at most."""
    most = fits
    given = fits if callable(fits) else lambda rows, shortest, longest: rows <= most
    return QueueRunner(inner, QueuePolicy(**{"plan": all_in_one, "fits": given, **options}))


class Caller(threading.Thread):
    """One call on a thread of its own."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self.outcome: Any = None  # what it returned or raised

    def run(self) -> None:
        try:
            self.outcome = self._call()
        except BaseException as exc:
            self.outcome = exc

    def end(self) -> Any:
        """Wait for the end of the call; its answer, or the exception."""
        self.join(30)
        assert not self.is_alive(), "the call did not end"
        return self.outcome


def call(runner: QueueRunner, *rows: EncodedRow) -> Caller:
    """Start a call with these rows; its outcome is the values answered."""
    caller = Caller(lambda: values(runner.run(rows)))
    caller.start()
    return caller


def waiting(runner: QueueRunner, rows: int) -> None:
    """Wait until so many rows are in the queue."""
    wait_until(lambda: runner.stats().waiting_rows == rows)


def busy(runner: QueueRunner, passes: Passes, value: int = 0) -> Caller:
    """Shut the gate and start a call whose pass is stuck there."""
    passes.gate.clear()
    started = len(passes.log)
    caller = call(runner, row(value))
    wait_until(lambda: len(passes.log) > started)
    return caller


def queue_threads() -> set[threading.Thread]:
    """Workers of all queues of this process."""
    return {each for each in threading.enumerate() if each.name == "drut-queue"}
