"""Bookkeeping of resident checkpoints: state transitions, and nothing slow. Holds no lock."""

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Final, Generic, TypeVar

from drut.errors import CheckpointError, RuntimeClosedError

T = TypeVar("T")

THRASH_RELOADS: Final = 3
THRASH_SECONDS: Final = 300.0
"""So many builds of an evicted checkpoint within this time are worth a warning, one each time."""


@dataclass(eq=False, slots=True)
class Slot(Generic[T]):
    """One agent from the start of its build until nobody uses it any more."""

    name: str
    owned: bool = True  # built here, so that it is closed here
    value: T | None = None  # None until it is built
    error: Exception | None = None  # why the build failed, for those who wait
    kept: bool = False  # whether it became resident
    present: bool = True  # in the table
    handed_out: bool = False  # a caller of `load` holds it, so it is not closed here
    leases: int = 1  # calls that use it or wait for it
    settled: Event = field(default_factory=Event)  # built, failed or interrupted

    def disposable(self) -> bool:
        """Whether it must be closed now."""
        return (
            not self.present
            and self.leases == 0
            and self.owned
            and not self.handed_out
            and self.value is not None
        )


@dataclass(slots=True)
class Reloads:
    """Builds of a checkpoint after it was evicted."""

    times: deque[float] = field(default_factory=lambda: deque(maxlen=THRASH_RELOADS))
    warned: float | None = None

    def add(self, now: float) -> bool:
        """Count a build; returns whether it is one too many, and that was not told lately."""
        self.times.append(now)
        if len(self.times) < THRASH_RELOADS or now - self.times[0] > THRASH_SECONDS:
            return False
        if self.warned is not None and now - self.warned < THRASH_SECONDS:
            return False
        self.warned = now
        return True


@dataclass(frozen=True, slots=True)
class Claim(Generic[T]):
    """A lease on a slot; `mine` means that this caller builds and the others wait."""

    slot: Slot[T]
    mine: bool


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """What a transition asks its caller to do, outside the lock."""

    kept: bool = True  # whether the value became, or was, resident
    evicted: tuple[str, ...] = ()  # names, least recently used first
    dispose: tuple[Slot[T], ...] = ()  # nobody uses these any more
    thrashing: bool = False  # the checkpoint was evicted and built again several times


class LruTable(Generic[T]):
    """Least-recently-used bookkeeping with leases. No lock, no input or output, no hooks."""

    def __init__(self, capacity: int) -> None:
        self.capacity = max(1, capacity)
        self._slots: OrderedDict[str, Slot[T]] = OrderedDict()
        self._pinned: set[str] = set()
        self._closed = False
        self._waits: dict[Slot[T], Slot[T]] = {}  # a build to the build it waits for
        self._reloads: dict[str, Reloads] = {}  # of names that were evicted

    def claim(self, name: str, chain: Sequence[Slot[T]] = ()) -> Claim[T]:
        """Take a lease on `name`, and reserve it for the caller to build if it is not there.

        Args:
            name: canonical name.
            chain: builds that the caller is part of, outermost first.

        Raises:
            RuntimeClosedError: the table is closed.
            CheckpointError: the build of `name` waits for one of `chain`.
        """
        if self._closed:
            raise RuntimeClosedError("the router is closed; make a new one")
        slot = self._slots.get(name)
        if slot is None:
            slot = self._slots[name] = Slot(name)
            return Claim(slot, mine=True)
        if slot.kept:
            self._slots.move_to_end(name)
        elif chain:
            self._refuse_circle(slot, chain)
            self._waits.update(dict.fromkeys(chain, slot))
        slot.leases += 1
        return Claim(slot, mine=False)

    def arrived(self, chain: Iterable[Slot[T]]) -> None:
        """Note that the builds of `chain` wait no more."""
        for slot in chain:
            self._waits.pop(slot, None)

    def settle(self, slot: Slot[T], value: T, now: float) -> Change[T]:
        """Publish what was built, and evict what is too much."""
        slot.value = value
        slot.kept = slot.present
        slot.settled.set()
        if not slot.kept:  # attached, or closed, while this one was building
            return Change(kept=False)
        self._slots.move_to_end(slot.name)
        evicted = self._evict_surplus(slot)
        return Change(
            evicted=tuple(each.name for each in evicted),
            dispose=tuple(each for each in evicted if each.disposable()),
            thrashing=self._reloaded(slot.name, now),
        )

    def abandon(self, slot: Slot[T], error: Exception | None) -> None:
        """Forget a failed build; without an error, those who wait try again."""
        self._remove(slot)
        slot.error = error if slot.leases > 1 else None
        slot.settled.set()

    def release(self, slot: Slot[T]) -> bool:
        """Give a lease back; returns whether the slot must be closed now."""
        slot.leases -= 1
        return slot.disposable()

    def put(self, name: str, value: T) -> Change[T]:
        """Make a value made elsewhere resident, in place of what was there."""
        if self._closed:
            raise RuntimeClosedError("the router is closed; make a new one")
        before = self._slots.get(name)
        if before is not None:
            self._remove(before)
        slot = Slot(name, owned=False, value=value, kept=True, leases=0)
        slot.settled.set()
        self._slots[name] = slot
        self.capacity = max(self.capacity, len(self.names()))
        return Change(dispose=_disposable(before))

    def building(self, name: str | None = None) -> list[Slot[T]]:
        """Builds in flight: of `name`, or all of them."""
        slots = self._slots.values() if name is None else filter(None, [self._slots.get(name)])
        return [slot for slot in slots if not slot.kept]

    def drop(self, name: str) -> Change[T]:
        """Forget a resident checkpoint and its pin."""
        slot = self._slots.get(name)
        self._pinned.discard(name)
        if slot is None or not slot.kept:
            return Change(kept=False)
        self._remove(slot)
        self._reloads.pop(name, None)
        return Change(evicted=(name,), dispose=_disposable(slot))

    def drop_all(self) -> Change[T]:
        """Forget every resident checkpoint and every pin."""
        changes = [self.drop(name) for name in self.names()]
        self._pinned.clear()
        return Change(
            evicted=tuple(name for change in changes for name in change.evicted),
            dispose=tuple(slot for change in changes for slot in change.dispose),
        )

    def close(self) -> Change[T]:
        """Forget everything for good, builds in flight included."""
        self._closed = True
        for slot in list(self._slots.values()):
            slot.handed_out = False
            if not slot.kept:
                self._remove(slot)
        return self.drop_all()

    def hand_out(self, slot: Slot[T]) -> None:
        """Note that a caller holds the value beyond the lease."""
        slot.handed_out = True

    def pin(self, name: str) -> None:
        """Never evict `name` to make room."""
        self._pinned.add(name)

    def unpin(self, name: str) -> None:
        """Let `name` be evicted again."""
        self._pinned.discard(name)

    def pinned(self) -> list[str]:
        """Pinned names, sorted."""
        return sorted(self._pinned)

    def set_capacity(self, capacity: int) -> None:
        """Change how many may stay resident; what is too many goes with the next build."""
        self.capacity = max(1, capacity)

    def make_room(self, names: Iterable[str]) -> None:
        """Raise the capacity so that `names` fit beside what is resident."""
        self.capacity = max(self.capacity, len({*names, *self.names()}))

    def names(self) -> list[str]:
        """Resident names, least recently used first."""
        return [name for name, slot in self._slots.items() if slot.kept]

    def values(self) -> list[tuple[str, T]]:
        """Resident names with their values, least recently used first."""
        return [(n, s.value) for n, s in self._slots.items() if s.kept and s.value is not None]

    def _refuse_circle(self, wanted: Slot[T], chain: Sequence[Slot[T]]) -> None:
        following: Slot[T] | None = wanted
        while following is not None:
            if following in chain:
                raise CheckpointError(
                    f"the build of {chain[-1].name!r} needs {wanted.name!r}, whose own build waits "
                    f"for {following.name!r}; load {wanted.name!r} before, or not in a build"
                )
            following = self._waits.get(following)

    def _evict_surplus(self, newest: Slot[T]) -> list[Slot[T]]:
        surplus = len(self.names()) - self.capacity
        free = [
            slot
            for name, slot in self._slots.items()
            if slot.kept and slot is not newest and name not in self._pinned
        ]
        evicted = free[: max(0, surplus)]
        for slot in evicted:
            self._remove(slot)
            self._reloads.setdefault(slot.name, Reloads())
        return evicted

    def _reloaded(self, name: str, now: float) -> bool:
        reloads = self._reloads.get(name)
        return reloads is not None and reloads.add(now)

    def _remove(self, slot: Slot[T]) -> None:
        if slot.present and self._slots.get(slot.name) is slot:
            del self._slots[slot.name]
        slot.present = False


def _disposable(slot: Slot[T] | None) -> tuple[Slot[T], ...]:
    return (slot,) if slot is not None and slot.disposable() else ()
