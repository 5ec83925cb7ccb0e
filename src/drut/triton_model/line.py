"""Many small requests become few forward passes, and every one of them gets its own answer.

Rows of all requests wait in one line, and each pass takes what fits to the oldest of them: passes
are full whatever mixture of lengths arrives, and nobody waits for rows that came later.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from drut.batching import plan_batches
from drut.errors import DeadlineExceededError, OverloadedError, ServerNotReadyError
from drut.schema import Prediction
from drut.tensors import Batch, Float32, Logits
from drut.triton_model.answering import LATE, Answerer, Call, check_logits, why_over

Forward: TypeAlias = Callable[[Batch, float | None], Awaitable[Logits]]
"""Runs one batch; the second argument is how many seconds it may wait, None: any number."""

_NOT_OUR_FAULT: Final = (DeadlineExceededError, OverloadedError, ServerNotReadyError)
"""Errors that say nothing about the rows of a pass, so that single rows fare no better."""


@dataclass(slots=True, eq=False)
class _Work:
    """A call and what it has got so far."""

    call: Call
    result: "asyncio.Future[Prediction | Exception]"
    options: dict[int, Float32] = field(default_factory=dict)  # by row, [options]
    actions: dict[int, Float32] = field(default_factory=dict)  # by row, [actions]

    def settle(self, result: Prediction | Exception) -> None:
        """The first result counts: a pass may end after its caller's time."""
        if not self.result.done():
            self.result.set_result(result)


_Place: TypeAlias = tuple[_Work, int]  # whose row, and which of them


class Line:
    """Answers calls about one checkpoint through any `Forward`. For one event loop only."""

    def __init__(self, answerer: Answerer, forward: Forward) -> None:
        self._answerer = answerer
        self._forward = forward
        self._waiting: list[_Place] = []  # oldest first
        self._passes: set[asyncio.Task[None]] = set()

    async def answer(self, calls: Sequence[Call]) -> list[Prediction | Exception]:
        """Answer prepared calls, in order; what failed is an exception in its place.

        A call is over at its deadline, also while its pass runs.
        """
        loop = asyncio.get_running_loop()
        works = [_Work(call, loop.create_future()) for call in calls]
        timers = [
            loop.call_at(each.call.deadline, each.settle, DeadlineExceededError(LATE))
            for each in works
            if each.call.deadline is not None
        ]
        for each in works:
            self._enter(each)
        # Behind the calls that have come together with these, so that they share its passes.
        loop.call_soon(self._fill)
        try:
            return [await each.result for each in works]
        finally:
            for timer in timers:
                timer.cancel()

    def _enter(self, work: _Work) -> None:
        if (over := why_over(work.call)) is not None:
            work.settle(over)
        elif not work.call.rows:
            work.settle(self._answerer.decode(work.call, {}, {}))
        else:
            self._waiting += [(work, row) for row in range(len(work.call.rows))]

    def _fill(self) -> None:
        """Begin passes while there are rows for them and fewer are running than is worth it."""
        while self._waiting and len(self._passes) < self._answerer.policy.concurrent_passes:
            if group := self._next():
                task = asyncio.ensure_future(self._pass(group))
                self._passes.add(task)
                task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._passes.discard(task)
        self._fill()

    def _next(self) -> list[_Place]:
        """Take the oldest row and those that run with it, unless nobody waits for any of them."""
        self._waiting = [each for each in self._waiting if not each[0].result.done()]
        lengths = [len(work.call.rows[row].ids) for work, row in self._waiting]
        group = next(
            (each for each in plan_batches(lengths, self._answerer.policy) if 0 in each), []
        )
        taken = [self._waiting[index] for index in group]
        chosen = set(group)
        self._waiting = [each for n, each in enumerate(self._waiting) if n not in chosen]
        for work in _works(taken):
            if (over := why_over(work.call)) is not None:
                work.settle(over)
        return [each for each in taken if not each[0].result.done()]

    async def _pass(self, places: Sequence[_Place]) -> None:
        works = _works(places)
        try:
            batch = self._answerer.collate([work.call.rows[row] for work, row in places])
            logits = await self._forward(batch, _seconds_left(works))
            check_logits(logits, batch)
        except Exception as exc:  # noqa: BLE001 - told to the callers whose rows were in it
            await self._failed(places, exc)
            return
        for index, (work, row) in enumerate(places):
            work.options[row] = logits.options[index, : len(work.call.rows[row].markers)]
            work.actions[row] = logits.actions[index]
        for work in works:
            if len(work.options) == len(work.call.rows) and not work.result.done():
                work.settle(why_over(work.call) or self._decoded(work))

    async def _failed(self, places: Sequence[_Place], exc: Exception) -> None:
        works = _works(places)
        if len(works) > 1 and not isinstance(exc, _NOT_OUR_FAULT):
            # Whose row it was shows only alone; the others are not to suffer for it.
            for work in works:
                await self._pass([place for place in places if place[0] is work])
            return
        for work in works:
            work.settle(exc)

    def _decoded(self, work: _Work) -> Prediction | Exception:
        try:
            return self._answerer.decode(work.call, work.options, work.actions)
        except Exception as exc:  # noqa: BLE001 - a call without a result would hang for ever
            return exc


def _works(places: Sequence[_Place]) -> list[_Work]:
    return list(dict.fromkeys(work for work, _ in places))


def _seconds_left(works: Sequence[_Work]) -> float | None:
    """How long a pass may take: as long as the most patient of its callers waits.

    Raises:
        DeadlineExceededError: nobody waits any more.
    """
    moments = [work.call.deadline for work in works]
    if None in moments:
        return None
    left = (
        max(moment for moment in moments if moment is not None) - asyncio.get_running_loop().time()
    )
    if left <= 0:
        raise DeadlineExceededError(LATE)
    return left
