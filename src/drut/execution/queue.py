"""One queue for the rows of all calls: they share forward passes, and take turns.

A pass starts at once where one may; rows are collected only while as many passes are in flight as
are worth having. Nothing ever waits for a window of time. See docs/decisions/0011-one-queue.md.
"""

import os
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, Final

from drut.cancelling import Cancellation, current_cancellation
from drut.deadlines import current_deadline, deadline_at, remaining
from drut.errors import OverloadedError, RuntimeClosedError
from drut.execution.base import RowRunner
from drut.execution.direct import DistinctRunner
from drut.execution.passes import PassRunner
from drut.execution.queue_line import Call, Fits, Line, SharedPass, late
from drut.execution.queue_stats import QueueCounters, QueueStats
from drut.tensors import EncodedRow, Logits

DEFAULT_MAX_QUEUE_ROWS: Final = 4096


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """Which rows run together, and how much at a time."""

    plan: Callable[[Sequence[EncodedRow]], list[list[int]]]  # passes of one call, by row index
    fits: Fits  # whether rows of several calls belong into one pass
    passes: int = 1  # in flight at the same time
    max_rows: int = DEFAULT_MAX_QUEUE_ROWS  # waiting


class QueueRunner:
    """Runs the rows of concurrent calls in shared forward passes.

    A call that finds nothing in flight runs its pass on its own thread. Others wait, and workers
    (daemon threads, at most `policy.passes`, started when they are first needed) form passes of
    the rows that have gathered meanwhile. Calls take turns, pass by pass, so that a large one does
    not hold up a small one.

    Args:
        inner: runs the rows of one pass.
        policy: which rows run together.
    """

    def __init__(self, inner: RowRunner, policy: QueuePolicy) -> None:
        self._core = _Core(inner, policy)
        # The workers know the core only: they end when nobody has the runner any more.
        weakref.finalize(self, self._core.abandon)
        _RUNNERS.add(self)

    def run(self, rows: Sequence[EncodedRow]) -> Logits:
        """Logits of every row, in the rows' order.

        Raises:
            OverloadedError: too many rows wait already; raised at once.
            DeadlineExceededError: the deadline passed before the rows were answered.
            CancelledError: of asyncio; nobody waits for this call any more.
            RuntimeClosedError: the runner is closed.
            ForwardError: the pass failed, with these rows alone in it.
        """
        return self._core.run(rows)

    def stats(self) -> QueueStats:
        """What waits and runs at this moment, and totals since the start."""
        return self._core.stats()

    def statistics(self) -> dict[str, Any]:
        """What the passes count, with what `stats` says under `queue`."""
        return {**self._core.inner_statistics(), "queue": self._core.stats().as_dict()}

    def close(self) -> None:
        """Fail what waits. Passes in flight end, and the last of them closes the runtime."""
        self._core.close()

    def start_over(self) -> None:
        """Forget every waiting row and worker; for a forked child, where none of them exists."""
        self._core.reset()


def queued(passes: PassRunner, max_rows: int = DEFAULT_MAX_QUEUE_ROWS) -> QueueRunner:
    """A queue over the passes of a runtime, as their policy has it.

    Rows that are the same are computed once, also where they are of different calls.
    """
    policy = QueuePolicy(passes.plan, passes.fits, passes.policy.concurrent_passes, max_rows)
    return QueueRunner(DistinctRunner(passes), policy)


class _Core:
    """What callers and workers share."""

    def __init__(self, inner: RowRunner, policy: QueuePolicy) -> None:
        self._inner = inner
        self._policy = policy
        self._closed = False
        self._abandoned = False
        self.reset()

    def reset(self) -> None:
        self._lock = Lock()  # guards everything below; never held during a pass or a wait
        self._line = Line(self._policy.max_rows, self._policy.fits)
        self._counters = QueueCounters()
        self._running: set[SharedPass] = set()  # passes in flight
        self._workers = 0
        self._parked = 0  # workers that wait for the bell
        self._coming = 0  # workers that were called and have not looked yet
        self._bell: SimpleQueue[None] = SimpleQueue()

    def run(self, rows: Sequence[EncodedRow]) -> Logits:
        remaining("the rows were queued")
        cancellation = current_cancellation()
        if cancellation is not None:
            cancellation.deliver()
        groups = self._policy.plan(rows) if len(rows) > 1 else [[0]]
        call = Call(rows, groups, current_deadline(), time.monotonic())
        try:
            own = self._enter(call)
            while own is not None:
                own = self._run_own(own, call, cancellation)
            if call.open:
                self._await(call, cancellation)
            if cancellation is not None:
                cancellation.deliver()
        except BaseException:
            self._withdraw(call)
            raise
        return call.result()

    def stats(self) -> QueueStats:
        with self._lock:
            oldest = min((call.entered for call in self._line), default=None)
            return self._counters.snapshot(
                waiting_rows=self._line.rows,
                waiting_calls=len(self._line),
                oldest_seconds=0.0 if oldest is None else time.monotonic() - oldest,
                running_passes=len(self._running),
                workers=self._workers,
            )

    def inner_statistics(self) -> dict[str, Any]:
        return self._inner.statistics()

    def close(self) -> None:
        with self._lock:
            again, self._closed = self._closed, True
            self._line.fail_all(_closed)
            idle = not self._running
        self._release_workers()
        if idle and not again:
            self._inner.close()

    def abandon(self) -> None:
        """Let the workers end. The garbage collector calls it, so it takes no lock."""
        self._abandoned = True
        self._release_workers()

    def work(self, worker: "_Worker") -> None:
        """Run passes until the queue is closed or abandoned."""
        while True:
            worker.taken = self._take(worker)
            if worker.taken is not None:
                self._finish(worker.taken, self._outcome(worker.taken))
                worker.taken = None
            elif self._closed or self._abandoned:
                return
            else:
                worker.called = True
                self._bell.get()

    def bury(self, worker: "_Worker", error: BaseException | None) -> None:
        """Take note that a worker has ended, and replace it if it died."""
        with self._lock:
            self._workers -= 1
            if worker.called:
                self._coming -= 1
            if error is not None and worker.taken in self._running:
                self._running.remove(worker.taken)
                self._line.fail(worker.taken, error)
            self._call_worker()

    def _enter(self, call: Call) -> SharedPass | None:
        """Queue a call; returns its first pass where it may run at once, on this thread."""
        with self._lock:
            if self._closed:
                raise _closed()
            free = not self._line and self._may_start()
            try:
                self._line.add(call)
            except OverloadedError:
                self._counters.rejected_calls += 1
                raise
            self._counters.calls += 1
            own = self._take_own(call) if free else None
            self._call_worker()
            return own

    def _run_own(
        self, own: SharedPass, call: Call, cancellation: Cancellation | None
    ) -> SharedPass | None:
        """Run a pass of one's own; returns the next one, as long as no other call waits."""
        try:
            logits = self._inner.run(own.rows)
        except BaseException as exc:
            self._finish(own, exc)
            raise
        late = call.deadline is not None and time.monotonic() >= call.deadline
        ends = late or (cancellation is not None and cancellation.pending)
        return self._finish(own, logits, call, ends=ends)

    def _await(self, call: Call, cancellation: Cancellation | None) -> None:
        if cancellation is None:
            self._await_end(call, None)
            return
        with cancellation.watched(call.wake):
            self._await_end(call, cancellation)

    def _await_end(self, call: Call, cancellation: Cancellation | None) -> None:
        while call.open:
            left = None if call.deadline is None else call.deadline - time.monotonic()
            if not call.wait(left) and call.open and call.deadline is not None:
                raise late(time.monotonic() - call.deadline)
            if cancellation is not None and call.open:
                cancellation.deliver()

    def _withdraw(self, call: Call) -> None:
        with self._lock:
            self._counters.withdrawn_rows += self._line.remove(call)
            call.open = 0
            call.error = None
            if call.own in self._running:  # an interrupt came just before its pass, or after
                self._running.remove(call.own)
                self._call_worker()

    def _take(self, worker: "_Worker") -> SharedPass | None:
        """The next pass for a worker; None where there is none, and the worker counts as parked."""
        with self._lock:
            if worker.called:
                self._coming -= 1
                worker.called = False
            if self._closed or self._abandoned:
                return None
            taken = self._line.next_pass(time.monotonic()) if self._may_start() else None
            if taken is None:
                self._parked += 1
            else:
                self._start(taken)
                self._call_worker()
            return taken

    def _outcome(self, taken: SharedPass) -> Logits | BaseException:
        try:
            with deadline_at(taken.deadline):
                return self._inner.run(taken.rows)
        except BaseException as exc:  # noqa: BLE001 - raised again by the calls in the pass
            return exc

    def _take_own(self, call: Call) -> SharedPass | None:
        own = call.own = self._line.take_own(call)
        if own is not None:
            self._start(own)
        return own

    def _may_start(self) -> bool:
        return len(self._running) < self._policy.passes

    def _start(self, taken: SharedPass) -> None:
        self._running.add(taken)
        self._counters.started(taken.units, time.monotonic())

    def _finish(
        self,
        taken: SharedPass,
        outcome: Logits | BaseException,
        owner: Call | None = None,
        *,
        ends: bool = False,
    ) -> SharedPass | None:
        """Hand out what a pass gave; returns the next one of its owner, unless that one ends."""
        following = None
        with self._lock:
            self._running.discard(taken)
            if isinstance(outcome, BaseException):
                self._counters.failed_passes += 1
                self._counters.retried_calls += self._line.fail(taken, outcome)
            else:
                self._line.settle(taken, outcome)
            if self._closed:
                self._line.fail_all(_closed)
            elif owner is not None and ends:
                # Before a worker is called, which would run them for nobody.
                self._counters.withdrawn_rows += self._line.remove(owner)
            elif owner is not None:
                following = self._take_own(owner)
            self._call_worker()
            last = self._closed and not self._running
        if last:
            self._inner.close()
        return following

    def _call_worker(self) -> None:
        """See to it that somebody comes for what waits, if a pass may start."""
        if not self._line or len(self._running) + self._coming >= self._policy.passes:
            return
        if self._parked:
            self._parked -= 1
            self._coming += 1
            self._bell.put(None)
        elif self._workers < self._policy.passes:
            self._workers += 1
            self._coming += 1
            try:
                _Worker(self).start()
            except RuntimeError as exc:  # too many threads, or the interpreter is ending
                self._workers -= 1
                self._coming -= 1
                if not self._workers and not self._running:
                    reason = f"no thread can be started for the queue: {exc}"
                    self._line.fail_all(lambda: OverloadedError(reason))

    def _release_workers(self) -> None:
        for _ in range(self._policy.passes):
            self._bell.put(None)


class _Worker(Thread):
    """Runs passes for calls that wait."""

    def __init__(self, core: _Core) -> None:
        super().__init__(name="drut-queue", daemon=True)
        self.called = True  # by the core, which counts on it
        self.taken: SharedPass | None = None
        self._core = core

    def run(self) -> None:
        """Work; whatever ends it early is told to the calls it worked for."""
        error: BaseException | None = None
        try:
            self._core.work(self)
        except BaseException as exc:  # noqa: BLE001 - the calls raise it
            error = exc
        self._core.bury(self, error)


_RUNNERS: "weakref.WeakSet[QueueRunner]" = weakref.WeakSet()


def _start_over_in_child() -> None:
    for runner in list(_RUNNERS):
        runner.start_over()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_over_in_child)


def _closed() -> RuntimeClosedError:
    return RuntimeClosedError("the runtime is closed; load the checkpoint again")
