"""Which checkpoints are resident. The only module of the router that holds a lock."""

import logging
import time
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from threading import Lock
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

from drut.errors import CheckpointError, CheckpointNotFoundError
from drut.routing.table import Change, Claim, LruTable, Slot

T = TypeVar("T")

_log = logging.getLogger(__name__)

_BUILDS: Final[ContextVar[tuple[Slot[Any], ...]]] = ContextVar("drut_builds", default=())
"""Builds that the current call is part of, outermost first."""


class Lease(Generic[T]):
    """The right to use a resident value until the `with` block ends."""

    __slots__ = ("_residency", "_slot", "value")

    def __init__(self, residency: "Residency[T]", slot: Slot[T], value: T) -> None:
        self._residency = residency
        self._slot = slot
        self.value = value

    def __enter__(self) -> T:
        return self.value

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._residency.release(self._slot)

    def hand_out(self) -> T:
        """End the lease and leave the value to the caller: an eviction no longer closes it."""
        value = self.value
        self._residency.hand_out(self._slot)
        return value


class Residency(Generic[T]):
    """Builds each checkpoint once, keeps the most recently used, lets go of the rest.

    Args:
        build: makes the value of a name; runs without a lock, one call per name at a time.
        dispose: frees a value that nobody uses any more.
        announce: told the names evicted and the name loaded (or None), after every lock.
        capacity: how many stay resident.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        build: Callable[[str], T],
        dispose: Callable[[T], None],
        announce: Callable[[tuple[str, ...], tuple[str, T] | None], None],
        capacity: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._build_value = build
        self._dispose_value = dispose
        self._announce = announce
        self._clock = clock
        self._table: LruTable[T] = LruTable(capacity)
        self._lock = Lock()  # guards _table; never held during a build, a wait or a hook

    def lease(self, name: str) -> Lease[T]:
        """Return the resident value, building it if nobody has, safe from being freed meanwhile.

        Raises:
            RuntimeClosedError: `close` was called.
            CheckpointError: another caller's build failed, or this one would wait for itself.
        """
        chain = _BUILDS.get()
        while True:
            with self._lock:
                claim = self._table.claim(name, chain)
            try:
                value = self._value(claim, chain)
            except BaseException:
                self.release(claim.slot)
                raise
            if value is not None:
                return Lease(self, claim.slot, value)
            self.release(claim.slot)

    def release(self, slot: Slot[T]) -> None:
        """Give a lease back."""
        with self._lock:
            ended = self._table.release(slot)
        if ended:
            self._dispose((slot,))

    def hand_out(self, slot: Slot[T]) -> None:
        """Give a lease back; the value is never closed for being evicted."""
        with self._lock:
            self._table.hand_out(slot)
        self.release(slot)

    def put(self, name: str, value: T) -> None:
        """Make a value made elsewhere resident. Fires nothing, evicts nothing, never frees it."""
        with self._lock:
            change = self._table.put(name, value)
        self._dispose(change.dispose)

    def drop(self, name: str) -> None:
        """Let go of one value, after a build of it in flight."""
        self._await_builds(name)
        with self._lock:
            change = self._table.drop(name)
        self._carry_out(change)

    def drop_all(self) -> None:
        """Let go of everything, after all builds in flight."""
        self._await_builds(None)
        with self._lock:
            change = self._table.drop_all()
        self._carry_out(change)

    def close(self) -> None:
        """Let go of everything for good; a build in flight is dropped when it ends."""
        with self._lock:
            change = self._table.close()
        self._carry_out(change)

    def pin(self, name: str) -> None:
        """Keep `name` from being evicted to make room."""
        with self._lock:
            self._table.pin(name)

    def unpin(self, name: str) -> None:
        """Let `name` be evicted again."""
        with self._lock:
            self._table.unpin(name)

    def pinned(self) -> list[str]:
        """Pinned names, sorted."""
        with self._lock:
            return self._table.pinned()

    def make_room(self, names: Iterable[str]) -> None:
        """Raise the capacity so that `names` fit beside what is resident."""
        with self._lock:
            self._table.make_room(names)

    def names(self) -> list[str]:
        """Resident names, least recently used first."""
        with self._lock:
            return self._table.names()

    def values(self) -> list[tuple[str, T]]:
        """Resident names with their values, least recently used first."""
        with self._lock:
            return self._table.values()

    @property
    def capacity(self) -> int:
        """How many stay resident."""
        return self._table.capacity

    @capacity.setter
    def capacity(self, capacity: int) -> None:
        with self._lock:
            self._table.set_capacity(capacity)

    def _value(self, claim: Claim[T], chain: tuple[Slot[T], ...]) -> T | None:
        """Build or wait; None where the claim came to nothing and must be made again."""
        slot = claim.slot
        if claim.mine:
            return self._build(slot, chain)
        if not slot.settled.is_set():
            self._await(slot, chain)
        if slot.error is not None:
            raise _fresh(slot.name, slot.error) from slot.error
        return slot.value if slot.kept else None

    def _build(self, slot: Slot[T], chain: tuple[Slot[T], ...]) -> T | None:
        token = _BUILDS.set((*chain, slot))
        try:
            value = self._build_value(slot.name)
        except BaseException as exc:
            # An interrupt is this thread's alone: those who wait build themselves.
            shared = exc if isinstance(exc, Exception) else None
            with self._lock:
                self._table.abandon(slot, shared)
            raise
        finally:
            _BUILDS.reset(token)
        with self._lock:
            change = self._table.settle(slot, value, self._clock())
        if not change.kept:
            return None
        if change.thrashing:
            _log.warning(
                "checkpoint %r was evicted and built again several times within minutes; "
                "raise max_loaded above %d, or pin it",
                slot.name,
                self.capacity,
            )
        self._carry_out(change, (slot.name, value))
        return value

    def _await(self, slot: Slot[T], chain: tuple[Slot[T], ...]) -> None:
        try:
            slot.settled.wait()
        finally:
            if chain:
                with self._lock:
                    self._table.arrived(chain)

    def _await_builds(self, name: str | None) -> None:
        if _BUILDS.get():  # inside a build: waiting might be for itself
            return
        with self._lock:
            building = self._table.building(name)
        for slot in building:
            slot.settled.wait()

    def _carry_out(self, change: Change[T], loaded: tuple[str, T] | None = None) -> None:
        try:
            self._dispose(change.dispose)
        finally:
            self._announce(change.evicted, loaded)

    def _dispose(self, slots: Iterable[Slot[T]]) -> None:
        for slot in slots:
            value, slot.value = slot.value, None
            if value is not None:
                self._dispose_value(value)


def _fresh(name: str, error: Exception) -> CheckpointError:
    """An error of one's own for each who waits: a shared one would collect their tracebacks."""
    missing = isinstance(error, CheckpointNotFoundError)
    kind = CheckpointNotFoundError if missing else CheckpointError
    return kind(f"loading {name!r} failed in another call: {type(error).__name__}: {error}")
