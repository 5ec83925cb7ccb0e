"""One call with random hooks, compared with a plain reading of the lifecycle page."""

import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import drut
from drut.errors import HookTimeoutError
from drut.hooks import invoke
from drut.tensors import Batch
from lifecycle_helpers import NOUL, AsyncHook, Hook, both_agents, wait_until
from property_settings import examples

MakeAgent = Callable[..., drut.Agent]


@dataclass(frozen=True)
class Script:
    """What one hook does in each of its events."""

    start: str = "pass"
    error: str = "pass"
    end: str = "pass"
    coroutine: bool = False


@dataclass(frozen=True)
class Scenario:
    """One call: its hooks, how they are called, and whether the forward pass fails."""

    scripts: tuple[Script, ...]
    timed: bool = False
    hooks_raise: bool = True
    concurrent: bool = True
    forward_fails: bool = False


class Reference:
    """The page, read literally. Failures are labels; hooks that hang overrun their limit."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.log: list[str] = []
        self.warnings = 0
        self.late = 0
        self.states = 1  # their number
        self.results: tuple[str, int] | None = None  # who made them, and their number

    def run(self) -> tuple[str, Any]:
        """Play the call; what the caller gets: `returned` or `raised`, and what."""
        failure = self.body()
        after: list[str] = []
        for event in ("error", "end") if failure else ("end",):
            for index in range(len(self.scenario.scripts)):
                after += self.tell(index, event)
        interrupts = [each for each in after if each.startswith("interrupt")]
        first = (interrupts + after + [""])[0]
        if failure and not (interrupts and not failure.startswith("interrupt")):
            return "raised", (failure, first)
        if first:
            return "raised", (first, failure or "")
        return "returned", self.results

    def body(self) -> str:
        """Start hooks, then inference unless one of them answered."""
        for index in range(len(self.scenario.scripts)):
            for failure in self.tell(index, "start"):
                return failure
        if self.results is None:
            self.log.append(f"forward {self.states}")
            if self.scenario.forward_fails:
                return "forward"
            self.results = ("model", self.states)
        return ""

    def tell(self, index: int, event: str) -> list[str]:
        """Run one hook; the failures it causes: none or one."""
        if self.scenario.timed and self.late == invoke.MAX_LATE_HOOKS:
            return self.failed("timeout")
        self.log.append(f"{index}.{event}")
        action = getattr(self.scenario.scripts[index], event)
        if action == "skip":
            self.results = (f"skip {index}", self.states)
        if action == "rewrite" and event == "start":
            self.states = index + 2
        if action == "rewrite" and event == "end":
            self.results = (f"rewritten {index}", 1)
        if action == "interrupt":
            return [f"interrupt {index}.{event}"]
        if action == "hang":
            self.late += 1
            return self.failed("timeout")
        return self.failed(f"raise {index}.{event}") if action == "raise" else []

    def failed(self, label: str) -> list[str]:
        """A hook's error: a failure, or a warning where hooks may not fail the call."""
        if self.scenario.hooks_raise:
            return [label]
        self.warnings += 1
        return []


class Player:
    """Plays the same call for real."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.log: list[str] = []
        self.warnings = 0
        self.release = threading.Event()
        self.hanging = threading.Event()

    def run(self, make_agent: MakeAgent) -> tuple[str, Any]:
        scenario = self.scenario
        hooks = [self.hook(index, script) for index, script in enumerate(scenario.scripts)]
        agent = make_agent(
            before=self.forward,
            hooks=hooks[:2],
            hooks_concurrent=scenario.concurrent,
            hooks_timeout=60.0 if scenario.timed else None,
        )
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            patch.setattr(invoke._Worker, "join", lambda worker, limit: self.wait_for(worker))
            try:
                results = agent.predict_batch(
                    ["a"], NOUL, hooks=hooks[2:], hooks_raise=scenario.hooks_raise
                )
                return "returned", (made_by(results), len(results))
            except BaseException as exc:
                return "raised", (label_of(exc), label_of(exc.__context__))
            finally:
                self.warnings = len(warned)
                self.release.set()
                wait_until(lambda: not any(map(is_hook, threading.enumerate())))

    def wait_for(self, worker: Any) -> None:
        """Instead of waiting for a limit to pass: wait until the hook is done, or says it hangs."""
        while not worker.done and not self.hanging.is_set():
            threading.Thread.join(worker, 0.002)
        self.hanging.clear()

    def forward(self, batch: Batch) -> None:
        self.log.append(f"forward {len(batch)}")
        if self.scenario.forward_fails:
            raise RuntimeError("forward")

    def hook(self, index: int, script: Script) -> Hook:
        kind = AsyncHook if script.coroutine else Hook
        return kind(
            self.log,
            str(index),
            start=lambda ctx: self.act(ctx, index, "start"),
            error=lambda ctx: self.act(ctx, index, "error"),
            end=lambda ctx: self.act(ctx, index, "end"),
        )

    def act(self, ctx: drut.PredictContext, index: int, event: str) -> None:
        action = getattr(self.scenario.scripts[index], event)
        if action == "skip":
            ctx.skip([{"model": f"skip {index}"} for _ in ctx.states])
        if action == "rewrite" and event == "start":
            ctx.states = list("abcdefgh"[: index + 2])  # equal ones are computed once
        if action == "rewrite" and event == "end":
            ctx.results = [{"model": f"rewritten {index}"}]
        if action == "raise":
            raise RuntimeError(f"raise {index}.{event}")
        if action == "interrupt":
            raise KeyboardInterrupt(f"interrupt {index}.{event}")
        if action == "hang":
            self.hanging.set()
            self.release.wait()


def is_hook(thread: threading.Thread) -> bool:
    return isinstance(thread, invoke._Worker)


def made_by(results: list[Any]) -> str:
    model = results[0]["model"]
    return "model" if model == "laya-rl-agent" else model


def label_of(exc: BaseException | None) -> str:
    if isinstance(exc, HookTimeoutError):
        return "timeout"
    return "" if exc is None else str(exc)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Hooks that mostly do something odd; a hook hangs only where there is a limit."""
    timed, concurrent = draw(st.booleans()), draw(st.booleans())
    faults = ["raise", "interrupt", *(["hang"] if timed and concurrent else [])]

    def actions(*further: str) -> st.SearchStrategy[str]:
        return st.sampled_from(["pass", "pass", *further, *faults])

    script = st.builds(
        Script, actions("skip", "rewrite"), actions(), actions("rewrite"), st.booleans()
    )
    scripts = draw(st.lists(script, max_size=4))
    return Scenario(tuple(scripts), timed, draw(st.booleans()), concurrent, draw(st.booleans()))


@both_agents
@given(scenario=scenarios())
@examples(150)
def test_a_call_with_random_hooks_goes_as_the_page_says(
    make_agent: MakeAgent, scenario: Scenario
) -> None:
    reference, player = Reference(scenario), Player(scenario)
    expected = reference.run()
    assert player.run(make_agent) == expected
    assert player.log == reference.log
    assert player.warnings == reference.warnings


@both_agents
def test_the_ninth_late_hook_of_a_call_is_refused_and_the_reference_knows(
    make_agent: MakeAgent,
) -> None:
    scenario = Scenario((Script("hang", "hang", "hang"),) * 4, timed=True, hooks_raise=False)
    reference, player = Reference(scenario), Player(scenario)
    assert player.run(make_agent) == reference.run() == ("returned", ("model", 1))
    assert player.log == reference.log
    assert reference.log == [*(f"{index}.start" for index in range(4)), "forward 1"] + [
        f"{index}.end" for index in range(4)
    ]
    failing = Scenario(scenario.scripts, True, False, True, forward_fails=True)
    reference, player = Reference(failing), Player(failing)
    assert player.run(make_agent) == reference.run() == ("raised", ("forward", ""))
    assert player.log == reference.log
    assert len(reference.log) == 9
    assert player.warnings == reference.warnings == 12
