"""Threads on which the calls of coroutines run: a bounded number, in the order of arrival."""

import os
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread, current_thread

from drut.errors import OverloadedError, RuntimeClosedError


class Job:
    """A call until a thread begins with it."""

    __slots__ = ("nested", "work")

    def __init__(self, work: Callable[[], None], *, nested: bool) -> None:
        self.work: Callable[[], None] | None = work  # None: begun, or withdrawn
        self.nested = nested


class CallThreads:
    """Daemon threads, started when they are first needed and ended by `release`.

    Args:
        size: threads, which is calls in progress at the same time.
        max_waiting: calls that wait for a thread beside them.
    """

    def __init__(self, size: int, max_waiting: int) -> None:
        self._size = size
        self._max_waiting = max_waiting
        self._released = False
        self._start_over()

    def submit(self, work: Callable[[], None], *, nested: bool = False) -> Job:
        """Run `work`, which does not raise, on a thread.

        Args:
            work: one call.
            nested: whether another call waits for this one, which gets a further thread then.

        Raises:
            OverloadedError: too many calls wait already; raised at once.
            RuntimeClosedError: the threads were released.
        """
        if os.getpid() != self._pid:
            self._start_over()  # no thread survives a fork
        job = Job(work, nested=nested)
        with self._lock:
            if nested:  # also when released, since an accepted call waits for it
                self._start(lambda: self._run(job))
                return job
            if self._released:
                raise RuntimeClosedError("closed; load the checkpoint again")
            free = self._idle + self._size - self._pooled
            if self._waiting - free >= self._max_waiting:
                raise OverloadedError(
                    f"{self._size} calls are in progress and {self._max_waiting} wait; try again "
                    "later, or raise max_calls or max_waiting_calls"
                )
            self._add_thread(self._waiting + 1)
            self._waiting += 1
            self._jobs.put(job)
        return job

    def withdraw(self, job: Job) -> bool:
        """Take a call back; False where a thread has begun with it."""
        with self._lock:
            if job.work is None:
                return False
            job.work = None
            self._waiting -= not job.nested
        return True

    def release(self) -> None:
        """Accept no further call, and end behind those accepted. Waits for nothing, not a lock."""
        self._released = True
        for _ in range(self._size):
            self._jobs.put(None)

    def join(self) -> None:
        """Wait for the threads to end, but not for the one that asks."""
        for thread in list(self._threads):
            if thread is not current_thread():
                thread.join()

    def _start_over(self) -> None:
        self._lock = Lock()  # guards what follows
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._waiting = 0  # calls that no thread has begun with
        self._pooled = 0  # threads that serve one call after the other
        self._idle = 0  # of these, those without a call
        self._threads: set[Thread] = set()
        self._pid = os.getpid()

    def _add_thread(self, wanted: int) -> None:
        if wanted <= self._idle or self._pooled == self._size:
            return
        try:
            self._start(self._serve)
        except OverloadedError:
            if not self._pooled:
                raise
        else:
            self._pooled += 1
            self._idle += 1

    def _start(self, run: Callable[[], None]) -> None:
        def thread_main() -> None:
            try:
                run()
            finally:
                self._threads.discard(current_thread())

        thread = Thread(target=thread_main, name="drut-call", daemon=True)
        self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError as exc:  # too many threads, or the interpreter is ending
            self._threads.discard(thread)
            raise OverloadedError(f"no thread can be started for the call: {exc}") from exc

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            with self._lock:
                begins = job.work is not None
                self._waiting -= begins
                self._idle -= begins
                work, job.work = job.work, None
            if work is not None:
                work()
                del work, job  # nothing of the call is kept while the thread waits
                with self._lock:
                    self._idle += 1

    def _run(self, job: Job) -> None:
        with self._lock:
            work, job.work = job.work, None
        if work is not None:
            work()
