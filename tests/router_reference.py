"""The lifecycle page as a plain interpreter: what a Router must do, without threads or locks.

An action of a plan belongs to (hook, event, key) and happens once. The key of route and predict
events is the state, that of load and evict events the checkpoint. The "hooks" `agent` and `build`
are the agents and the builder.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

Key = tuple[str, str, str]
Action = tuple[str, ...]
Asked = tuple[str, str, str]  # state, checkpoint, which questions

ALIASES = {"en": "english", "ml": "multilingual"}


class Planned(Exception):
    """An error that a plan asked for."""


class PlannedInterrupt(KeyboardInterrupt):
    """An interrupt that a plan asked for."""


@dataclass
class Context:
    """What hooks can change of a request."""

    state: str
    questions: str
    answered: bool = False


@dataclass
class Reference:
    """Resident checkpoints, least recently used first, and the log of everything that happened."""

    capacity: int
    installed: Sequence[str] = ("A", "B")
    plan: dict[Key, Action] = field(default_factory=dict)
    resident: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    def predict(self, asked: Asked, hooks: Sequence[str] = ()) -> list[str]:
        chain = [*self.installed, *hooks]
        target = self.route(asked, chain)
        self.load(target)
        self.group(target, [Context(asked[0], asked[2])], chain, "one")
        return [target]

    def predict_batch(self, batch: Sequence[Asked], hooks: Sequence[str] = ()) -> list[str]:
        chain = [*self.installed, *hooks]
        targets = [self.route(asked, chain) for asked in batch]
        for target in dict.fromkeys(targets):
            self.load(target)
            contexts = [
                Context(asked[0], asked[2])
                for asked, own in zip(batch, targets, strict=True)
                if own == target
            ]
            self.group(target, contexts, chain, "batch")
        return targets

    def route(self, asked: Asked, chain: Sequence[str]) -> str:
        targets = [asked[1]]
        for hook in chain:
            self.log.append(f"{hook}.route {asked[0]}")
            action = self.plan.pop((hook, "route", asked[0]), None)
            if action is not None and action[0] == "retarget":
                targets.append(action[1])
            elif action is not None:
                self.act(action)
        return ALIASES.get(targets[-1], targets[-1])

    def load(self, name: str) -> None:
        if name in self.resident:
            self.resident.remove(name)
            self.resident.append(name)
            return
        self.log.append(f"build {name}")
        self.act(self.plan.pop(("build", "build", name), None))
        self.resident.append(name)
        surplus = max(0, len(self.resident) - self.capacity)
        evicted, self.resident = self.resident[:surplus], self.resident[surplus:]
        self.all_of([*(("evict", each) for each in evicted), ("load", name)], self.installed)

    def unload(self, name: str) -> None:
        if name in self.resident:
            self.resident.remove(name)
            self.all_of([("evict", name)], self.installed)

    def unload_all(self) -> None:
        evicted, self.resident = self.resident, []
        self.all_of([("evict", name) for name in evicted], self.installed)

    def attach(self, name: str) -> None:
        if name in self.resident:
            self.resident.remove(name)
        self.resident.append(name)
        self.capacity = max(self.capacity, len(self.resident))

    def group(
        self, target: str, contexts: list[Context], chain: Sequence[str], method: str
    ) -> None:
        started: list[Context] = []
        try:
            for ctx in contexts:
                started.append(ctx)
                self.start(ctx, chain)
            self.infer(target, [ctx for ctx in contexts if not ctx.answered], method)
        except BaseException as exc:
            ends = [(e, ctx.state) for ctx in reversed(started) for e in ("error", "end")]
            try:
                self.all_of(ends, chain)
            except Exception:
                raise exc from None
            raise
        self.all_of([("end", ctx.state) for ctx in reversed(started)], chain)

    def start(self, ctx: Context, chain: Sequence[str]) -> None:
        for hook in chain:
            self.log.append(f"{hook}.start {ctx.state}")
            action = self.plan.pop((hook, "start", ctx.state), None)
            if action is None:
                continue
            if action[0] == "skip":
                ctx.answered = True
            elif action[0] == "rewrite":
                ctx.state = action[1]
            elif action[0] == "ask":
                ctx.questions = action[1]
            else:
                self.act(action)

    def infer(self, target: str, waiting: list[Context], method: str) -> None:
        for questions in dict.fromkeys(ctx.questions for ctx in waiting):
            states = [ctx.state for ctx in waiting if ctx.questions == questions]
            self.log.append(f"{target}.{method} {questions}: {' '.join(states)}")
            for state in states:
                self.act(self.plan.pop(("agent", "call", state), None))

    def all_of(self, events: Sequence[tuple[str, str]], chain: Sequence[str]) -> None:
        """Every hook hears of every event; then the first interrupt is raised, or error."""
        failures: list[BaseException] = []
        for event, key in events:
            for hook in chain:
                self.log.append(f"{hook}.{event} {key}")
                try:
                    self.act(self.plan.pop((hook, event, key), None))
                except BaseException as exc:
                    failures.append(exc)
        interrupts = [exc for exc in failures if not isinstance(exc, Exception)]
        for exc in [*interrupts, *failures]:
            raise exc

    def act(self, action: Action | None) -> None:
        perform(self, action)


def perform(router: Any, action: Action | None) -> None:
    """Raise, or call back: an action that any event may have."""
    if action is None:
        return
    kind, *arguments = action
    if kind == "raise":
        raise Planned(arguments[0])
    if kind == "interrupt":
        raise PlannedInterrupt(arguments[0])
    if kind == "predict":
        router.predict((arguments[0], arguments[1], "Q1"))
    elif kind == "unload_all":
        router.unload_all()
    else:
        getattr(router, kind)(*arguments)


def outcome_of(function: Any, *arguments: Any) -> Any:
    """What a call returned, or the kind and text of what it raised."""
    try:
        return function(*arguments)
    except (Planned, PlannedInterrupt) as exc:
        return type(exc).__name__, str(exc)
