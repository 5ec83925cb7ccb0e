"""Rows that wait, call by call: whose turn it is, and which of them share a pass.

Plain bookkeeping without a thread or a lock: `QueueRunner` holds one while it calls into here.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from threading import TIMEOUT_MAX, Lock
from typing import Final, TypeAlias

from drut.errors import DeadlineExceededError, OverloadedError, RuntimeClosedError
from drut.execution.direct import widest
from drut.execution.passes import in_order, widened
from drut.tensors import EncodedRow, Logits

Fits: TypeAlias = Callable[[int, int, int], bool]
"""Whether so many rows, of so many tokens at least and at most, belong into one pass."""

LOOK_AHEAD: Final = 8
"""Units of one call that are looked at for a pass of another call."""


@dataclass(eq=False, slots=True)
class Unit:
    """Rows of one call that run in the same pass."""

    call: "Call"
    places: Sequence[int]  # of its rows in the call
    shortest: int  # tokens
    longest: int
    alone: bool = False  # its last pass failed, so it shares no other


class Call:
    """The rows of one call, until all of them are answered or one of them has failed."""

    __slots__ = (
        "_signal",
        "deadline",
        "entered",
        "error",
        "open",
        "own",
        "rows",
        "settled",
        "started",
        "waiting",
    )

    def __init__(
        self,
        rows: Sequence[EncodedRow],
        groups: Iterable[Sequence[int]],
        deadline: float | None,
        entered: float,
    ) -> None:
        self.rows = rows
        self.deadline = deadline  # moment of `time.monotonic`
        self.entered = entered
        self.started = False  # whether a pass has taken any of its rows
        self.own: SharedPass | None = None  # runs on the thread of the call
        self.error: BaseException | None = None
        self.settled: list[tuple[Unit, Logits]] = []
        self.waiting = [self._unit(places) for places in groups]  # the next one is last
        self.waiting.reverse()
        self.open = len(self.waiting)  # units without an answer; 0: the call is over
        self._signal = Lock()
        self._signal.acquire()

    def wait(self, timeout: float | None) -> bool:
        """Wait for `wake`, at most so many seconds; False where the time is up."""
        limit = -1 if timeout is None else min(max(0.0, timeout), TIMEOUT_MAX)
        return self._signal.acquire(timeout=limit)

    def wake(self) -> None:
        """End the waiting, or the next one."""
        with suppress(RuntimeError):  # somebody else just did
            self._signal.release()

    def end(self, error: BaseException) -> None:
        """Be over without an answer."""
        if self.open:
            self.error = error
            self.open = 0
            self.wake()

    def answer(self, unit: Unit, logits: Logits) -> None:
        """Take the answer of one unit; nobody needs it where the call is over."""
        if self.open:
            self.settled.append((unit, logits))
            self.open -= 1
            if not self.open:
                self.wake()

    def result(self) -> Logits:
        """Logits of all rows in their order; the error where there is one."""
        if self.error is not None:
            # The error must not refer to this call, which refers to it.
            error, self.error = self.error, None
            raise error
        width = widest(self.rows)
        if len(self.settled) == 1:
            return widened(self.settled[0][1], width)
        parts = ((unit.places, logits) for unit, logits in self.settled)
        return in_order(parts, len(self.rows), width)

    def _unit(self, places: Sequence[int]) -> Unit:
        lengths = [len(self.rows[place].ids) for place in places]
        return Unit(self, places, min(lengths), max(lengths))


@dataclass(eq=False, slots=True)
class SharedPass:
    """Units, of one call or of several, that run together."""

    units: list[Unit]

    @property
    def rows(self) -> list[EncodedRow]:
        """The rows, unit by unit."""
        return [unit.call.rows[place] for unit in self.units for place in unit.places]

    @property
    def deadline(self) -> float | None:
        """The latest deadline of the calls in it; None where one of them has none."""
        moments = [unit.call.deadline for unit in self.units]
        return None if None in moments else max(filter(None, moments))


class Line:
    """Calls with waiting rows, which take turns.

    Args:
        max_rows: waiting rows from which on further calls are refused. One call counts for half of
            it at most, so that a large one shuts nobody out.
        fits: which rows of different calls share a pass.
    """

    def __init__(self, max_rows: int, fits: Fits) -> None:
        self.rows = 0  # waiting
        self._load = 0  # the same, as far as they count
        self._max_rows = max_rows
        self._share = max(1, max_rows // 2)
        self._fits = fits
        self._turns: OrderedDict[Call, int] = OrderedDict()  # to its number of waiting rows

    def __len__(self) -> int:
        return len(self._turns)

    def __iter__(self) -> Iterator[Call]:
        return iter(self._turns)

    def add(self, call: Call) -> None:
        """Let a call wait for its turn.

        Raises:
            OverloadedError: too many rows wait already.
        """
        count = sum(len(unit.places) for unit in call.waiting)
        if self._turns and self._load + min(count, self._share) > self._max_rows:
            raise OverloadedError(
                f"{self.rows} rows wait already, and the queue holds {self._max_rows}: {count} "
                "more were refused at once; try again later, ask less at a time, or raise "
                "max_queue_rows"
            )
        self._count(call, count)

    def remove(self, call: Call) -> int:
        """Withdraw what waits of a call; returns the number of rows."""
        count = self._turns.get(call, 0)
        call.waiting.clear()
        self._count(call, -count)
        return count

    def next_pass(self, now: float) -> SharedPass | None:
        """Take the rows of the next pass: those of the call whose turn it is, and what fits.

        A call whose deadline has passed fails instead.
        """
        while self._turns:
            call = next(iter(self._turns))
            if self._expired(call, now):
                continue
            units = [self._take(call, call.waiting[-1])]
            if call in self._turns:
                self._turns.move_to_end(call)
            try:
                self._top_up(units, now)
            except Exception as exc:  # noqa: BLE001 - its calls get it, the worker lives on
                self.fail(SharedPass(units), exc)
                continue
            return SharedPass(units)
        return None

    def take_own(self, call: Call) -> SharedPass | None:
        """Take the next rows of a call, but only while no other call waits."""
        if len(self._turns) != 1 or call not in self._turns:
            return None
        return SharedPass([self._take(call, call.waiting[-1])])

    def settle(self, shared: SharedPass, logits: Logits) -> None:
        """Hand out the logits of a pass."""
        start = 0
        for unit in shared.units:
            end = start + len(unit.places)
            own = Logits(logits.options[start:end], logits.actions[start:end])
            unit.call.answer(unit, own)
            start = end

    def fail(self, shared: SharedPass, error: BaseException) -> int:
        """Fail the only call of a pass, or let each of several run once more, by itself.

        Returns:
            How many calls run once more.
        """
        if len(shared.units) == 1 or isinstance(error, RuntimeClosedError):
            for unit in shared.units:
                self._end(unit.call, _own(error, len(shared.units)))
            return 0
        again = [unit for unit in reversed(shared.units) if unit.call.open]
        for unit in again:
            unit.alone = True
            unit.call.waiting.append(unit)
            self._count(unit.call, len(unit.places))
            self._turns.move_to_end(unit.call, last=False)
        return len(again)

    def fail_all(self, error: Callable[[], BaseException]) -> None:
        """Fail every call with waiting rows."""
        for call in list(self._turns):
            self._end(call, error())

    def _top_up(self, units: list[Unit], now: float) -> None:
        lead = units[0]
        if lead.alone:
            return
        rows, shortest, longest = len(lead.places), lead.shortest, lead.longest
        for call in list(self._turns):
            if call is lead.call or self._expired(call, now):
                continue
            for unit in islice(reversed(call.waiting), LOOK_AHEAD):
                low, high = min(shortest, unit.shortest), max(longest, unit.longest)
                if not unit.alone and self._fits(rows + len(unit.places), low, high):
                    units.append(self._take(call, unit))
                    rows, shortest, longest = rows + len(unit.places), low, high
                    break

    def _take(self, call: Call, unit: Unit) -> Unit:
        if call.waiting[-1] is unit:
            call.waiting.pop()
        else:
            call.waiting.remove(unit)
        self._count(call, -len(unit.places))
        return unit

    def _expired(self, call: Call, now: float) -> bool:
        if call.deadline is None or now < call.deadline:
            return False
        self._end(call, late(now - call.deadline))
        return True

    def _end(self, call: Call, error: BaseException) -> None:
        self.remove(call)
        call.end(error)

    def _count(self, call: Call, change: int) -> None:
        before = self._turns.get(call, 0)
        after = before + change
        if after:
            self._turns[call] = after
        else:
            self._turns.pop(call, None)
        self.rows += change
        self._load += min(after, self._share) - min(before, self._share)


def late(seconds: float) -> DeadlineExceededError:
    """The error of rows whose deadline passed so long ago."""
    return DeadlineExceededError(
        f"the deadline passed {max(0.0, seconds):.3f} s ago, before the rows were answered"
    )


def _own(error: BaseException, calls: int) -> BaseException:
    """An error of one's own for each call: a shared one would collect their tracebacks."""
    return error if calls == 1 else type(error)(str(error))
