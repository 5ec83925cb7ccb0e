"""Many threads, few places, hooks and agents that fail: nothing is lost, doubled or kept."""

import faulthandler
import gc
import itertools
import logging
import random
import sys
import threading
import time
from collections import Counter
from typing import Any

import pytest

import drut
from drut.errors import CheckpointError, DrutError
from drut.routing.table import Slot
from lifecycle_helpers import NOUL, cached
from router_helpers import EN, ML, TD, prediction

THREADS = 16
REQUESTS = 20_000
SECONDS = 15.0  # a busy machine does fewer requests in this time, and that is fine
WATCHDOG = 60.0
NAMES = [EN, ML, TD]
OTHER = {"m": NOUL["n"]}


class Planned(Exception):
    """A failure that the test asked for."""


class Chance(threading.local):
    """Random numbers of the current thread."""

    def __init__(self) -> None:
        self.random = random.Random()
        self.depth = 0

    def one_in(self, count: int) -> bool:
        return self.random.randrange(count) == 0


class Agent:
    """Answers, sometimes fails, and notices if it is used after it was closed."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.closed = 0

    def system_one(self, state: Any, questions: Any) -> Any:
        return self.predict_batch([state], questions)[0]

    def predict_batch(self, states: Any, questions: Any) -> Any:
        if self.closed:
            self.world.faults.append(f"{self.name} used after close")
        if self.world.chance.one_in(40):
            raise Planned("agent")
        if self.world.chance.one_in(50):
            time.sleep(0)
        if self.closed:
            self.world.faults.append(f"{self.name} closed while in use")
        return [prediction(self.name, echo=state) for state in states]

    def close(self) -> None:
        self.closed += 1
        self.world.closed.append(self.name)
        if self.closed > 1:
            self.world.faults.append(f"{self.name} closed twice")


class World:
    """The router, and a ledger of every event, which is its first hook."""

    def __init__(self) -> None:
        self.chance = Chance()
        self.faults: list[str] = []
        self.built: list[str] = []
        self.closed: list[str] = []
        self.open: dict[int, Any] = {}
        self.counts: Counter[str] = Counter()  # touched under the lock only
        self.lock = threading.Lock()
        self.answered = itertools.count()
        self.done = 0
        self.router = drut.Router(factory=self.build, max_loaded=1, hooks=[self, Moody(self)])

    def build(self, name: str) -> Agent:
        if self.chance.one_in(50):
            raise Planned("build")
        agent = Agent(self, name)
        self.built.append(name)
        return agent

    def on_predict_start(self, ctx: Any) -> None:
        with self.lock:
            self.counts["start"] += 1
        if self.open.setdefault(id(ctx), ctx) is not ctx or ctx.error or ctx.results:
            self.faults.append("a context was started twice")

    def on_error(self, ctx: Any) -> None:
        if ctx.error is None:
            self.faults.append("on_error without an error")

    def on_predict_end(self, ctx: Any) -> None:
        with self.lock:
            self.counts["end"] += 1
        if self.open.pop(id(ctx), None) is not ctx:
            self.faults.append("an end without a start, or a second one")
        if ctx.error is None and ctx.usage is None:
            self.faults.append("a success without usage")

    def work(self, seed: int, deadline: float) -> None:
        self.chance.random.seed(seed)
        while time.monotonic() < deadline:
            self.done = next(self.answered)
            if self.done >= REQUESTS:
                return
            try:
                self.one_call()
            except (Planned, DrutError) as exc:
                if not isinstance(exc, Planned | CheckpointError):
                    self.faults.append(repr(exc))
            except BaseException as exc:
                self.faults.append(repr(exc))

    def one_call(self) -> None:
        chance = self.chance.random
        name = chance.choice(NAMES)
        dice = chance.random()
        if dice < 0.6:
            state = str(chance.random())
            result: Any = self.router.predict(state, NOUL, model=name)
            self.check(result, state, name)
        elif dice < 0.95:
            self.batch([chance.choice(NAMES) for _ in range(chance.randrange(1, 6))])
        elif dice < 0.97:
            self.router.unload(name if dice < 0.96 else None)
        elif dice < 0.99:
            self.router.preload(name)
            self.router.max_loaded = 1
        else:
            self.router.attach(name, Agent(self, name))
            self.router.max_loaded = 1

    def batch(self, names: list[str]) -> None:
        chance = self.chance.random
        states = [str(chance.random()) for _ in names]
        requests = [
            {"state": s, "questions": chance.choice([NOUL, OTHER]), "model": n}
            for s, n in zip(states, names, strict=True)
        ]
        for _ in names[1:]:
            next(self.answered)
        results: Any = self.router.predict_batch(requests)
        for result, state, name in zip(results, states, names, strict=True):
            self.check(result, state, name)

    def check(self, result: Any, state: str, name: str) -> None:
        if result["routing"]["model"] != name or result.get("echo", state) not in (state, "new"):
            self.faults.append(f"the answer of another request: {result}")


class Moody:
    """A hook that raises, answers, rewrites and calls back, now and then."""

    def __init__(self, world: World) -> None:
        self.world = world

    def on_predict_start(self, ctx: Any) -> None:
        chance = self.world.chance
        if chance.one_in(40):
            ctx.skip([cached()])
        elif chance.one_in(40):
            ctx.states = ["new"]
        self.maybe_call_back(ctx)
        self.maybe_raise()

    def on_route(self, ctx: Any) -> None:
        self.maybe_raise()

    def on_predict_end(self, ctx: Any) -> None:
        self.maybe_call_back(ctx)
        self.maybe_raise()

    on_error = on_load = on_evict = on_predict_end

    def maybe_raise(self) -> None:
        if self.world.chance.one_in(80):
            raise Planned("hook")

    def maybe_call_back(self, ctx: Any) -> None:
        chance = self.world.chance
        if chance.depth > 1 or not chance.one_in(60):
            return
        chance.depth += 1
        try:
            ctx.router.predict("nested", NOUL, model=chance.random.choice(NAMES))
        finally:
            chance.depth -= 1


def alive(kind: type) -> list[Any]:
    gc.collect()
    return [each for each in gc.get_objects() if issubclass(type(each), kind)]


def test_nothing_is_lost_doubled_or_kept_under_load(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "drut")  # the cap of one is a warning every few milliseconds
    before = {id(each) for each in (*alive(Slot), *alive(drut.PredictContext))}
    world = World()
    deadline = time.monotonic() + SECONDS
    threads = [
        threading.Thread(target=world.work, args=(seed, deadline), daemon=True)
        for seed in range(THREADS)
    ]
    faulthandler.dump_traceback_later(WATCHDOG)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, deadline + WATCHDOG / 2 - time.monotonic()))
    finally:
        sys.setswitchinterval(interval)
        faulthandler.cancel_dump_traceback_later()
    assert not [thread for thread in threads if thread.is_alive()], "a deadlock"
    assert world.faults == []
    assert world.open == {}
    assert world.counts["start"] == world.counts["end"] > 1000
    slots = [slot for slot in alive(Slot) if id(slot) not in before]
    assert [slot.leases for slot in slots] == [0] * len(slots)
    assert len(slots) == len(world.router.loaded) <= len(NAMES)
    assert [ctx for ctx in alive(drut.PredictContext) if id(ctx) not in before] == []
    world.router.close()
    assert Counter(world.built) == Counter(world.closed)
