"""What a queue has done, as numbers. Tokens and padding are counted where passes run."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from drut.execution.queue_line import Unit


@dataclass(frozen=True, slots=True)
class QueueStats:
    """What waits and runs at one moment, and totals since the start."""

    waiting_rows: int  # not in a pass yet
    waiting_calls: int  # with such rows
    oldest_seconds: float  # how long the oldest of these calls has waited
    running_passes: int
    workers: int  # threads of the queue
    calls: int  # accepted
    rejected_calls: int  # refused with OverloadedError
    passes: int  # started
    shared_passes: int  # of these, with rows of several calls
    failed_passes: int
    retried_calls: int  # ran once more, alone, because a shared pass failed
    rows: int  # in all passes started
    withdrawn_rows: int  # of calls that were cancelled, or ran out of time
    waited_seconds: float  # from the arrival of a call to its first pass, summed over calls
    longest_wait_seconds: float

    @property
    def rows_per_pass(self) -> float:
        """Mean rows of a pass, 0.0 before the first."""
        return self.rows / self.passes if self.passes else 0.0

    def as_dict(self) -> dict[str, Any]:
        """The same as plain numbers, with the mean."""
        return {**asdict(self), "rows_per_pass": self.rows_per_pass}


@dataclass(slots=True)
class QueueCounters:
    """The totals while they grow."""

    calls: int = 0
    rejected_calls: int = 0
    passes: int = 0
    shared_passes: int = 0
    failed_passes: int = 0
    retried_calls: int = 0
    rows: int = 0
    withdrawn_rows: int = 0
    waited_seconds: float = 0.0
    longest_wait_seconds: float = 0.0

    def started(self, units: Sequence[Unit], now: float) -> None:
        """Count a pass that begins now."""
        self.passes += 1
        self.shared_passes += len(units) > 1
        self.rows += sum(len(unit.places) for unit in units)
        for unit in units:
            if not unit.call.started:
                unit.call.started = True
                seconds = now - unit.call.entered
                self.waited_seconds += seconds
                self.longest_wait_seconds = max(self.longest_wait_seconds, seconds)

    def snapshot(self, **moment: Any) -> QueueStats:
        """The totals with what waits and runs at this moment."""
        return QueueStats(
            **moment, **{each.name: getattr(self, each.name) for each in fields(self)}
        )
