"""Routers over spied agents, for the lifecycle tests: stubs first, then real agents."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import drut
from lifecycle_helpers import NOUL, make_fake_agent, make_onnx_agent

EN, ML, TD = "english", "multilingual", "typed-decisions"


@dataclass
class Call:
    """One call of an agent, as it arrived."""

    agent: str
    method: str
    states: list[Any]
    questions: Any
    options: dict[str, Any]


def request(state: Any = "a", model: str | None = EN, questions: Any = NOUL, **keys: Any) -> Any:
    """One entry of a batch."""
    return {"state": state, "questions": questions, "model": model, **keys}


def ask(router: drut.Router, batch: bool, **keys: Any) -> Any:
    """Ask the same by `predict`, or by a batch of one."""
    if batch:
        return router.predict_batch([request(**keys)])[0]
    return router.predict("a", NOUL, model=EN, **keys)


def prediction(name: str = "stub", **entries: Any) -> dict[str, Any]:
    """A result without answers."""
    usage = {"input_tokens": 2, "output_tokens": 1}
    return {"model": name, "answers": {}, "usage": usage, **entries}


class StubAgent:
    """The least that can be attached to a Router."""

    def __init__(self, kit: "Kit", name: str) -> None:
        self.kit = kit
        self.name = name
        self.closed = 0

    def system_one(self, state: Any, questions: Any, max_len: Any = None) -> Any:
        self.kit.called(self, "one", [state], questions, max_len=max_len)
        return prediction(self.name, echo=state)

    def predict_batch(
        self,
        states: Any,
        questions: Any,
        batch_size: Any = None,
        max_len: Any = None,
        head_max_len: Any = None,
    ) -> Any:
        given = {"batch_size": batch_size, "max_len": max_len, "head_max_len": head_max_len}
        self.kit.called(self, "batch", states, questions, **given)
        return [prediction(self.name, echo=state) for state in states]

    def close(self) -> None:
        self.closed += 1


class SpiedAgent(drut.Agent):
    """A real agent that notes its calls."""

    kit: "Kit"
    name: str
    closed = 0

    def system_one(self, state: Any, questions: Any, lang: Any = None, **options: Any) -> Any:
        self.kit.called(self, "one", [state], questions, **options)
        return super().predict_batch([state], questions, lang=lang, **options)[0]

    def predict_batch(self, states: Any, questions: Any, *args: Any, **options: Any) -> Any:
        self.kit.called(self, "batch", states, questions, **options)
        return super().predict_batch(states, questions, *args, **options)

    def close(self) -> None:
        self.closed += 1


@dataclass
class Kit:
    """Makes routers and agents that write into one log, and remembers what happened."""

    kind: str = "stub"
    log: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    built: list[str] = field(default_factory=list)
    agents: dict[str, Any] = field(default_factory=dict)  # the latest of each name
    building: Callable[[str], object] = lambda name: None  # called in every build
    calling: Callable[[Call], object] = lambda call: None  # called in every agent call

    def agent(self, name: str = "own", **options: Any) -> Any:
        """An agent that logs `name.one` and `name.batch ROWS`."""
        if self.kind == "stub":
            return StubAgent(self, name)
        make = make_onnx_agent if self.kind == "onnxruntime" else make_fake_agent
        agent = make(agent_class=SpiedAgent, **options)
        agent.kit, agent.name = self, name
        return agent

    def router(self, **options: Any) -> drut.Router:
        return drut.Router(factory=self.build, **options)

    def build(self, name: str) -> Any:
        self.built.append(name)
        self.log.append(f"build {name}")
        self.building(name)
        self.agents[name] = self.agent(name)
        return self.agents[name]

    def called(self, agent: Any, method: str, states: Any, questions: Any, **options: Any) -> None:
        set_options = {key: value for key, value in options.items() if value is not None}
        call = Call(agent.name, method, list(states), questions, set_options)
        self.calls.append(call)
        self.log.append(f"{agent.name}.{method} {len(call.states)}")
        self.calling(call)


KINDS = ["stub", "fake", "onnxruntime"]
"""Stubs, agents over a fake runtime, agents over ONNX Runtime."""
REAL_KINDS = KINDS[1:]


def failing_on(agent: str, exc: BaseException) -> Callable[[Call], None]:
    """Raise in every call of one agent."""

    def calling(call: Call) -> None:
        if call.agent == agent:
            raise exc

    return calling


def per_state(log: list[str], name: str = "A", **actions: Callable[[Any], Any]) -> Any:
    """A hook that logs `name.event state`, then runs `actions[event]`."""

    def noting(event: str) -> Callable[[Any, Any], Any]:
        def method(self: Any, ctx: Any) -> Any:
            shown = ctx.states[0] if ctx.states else ctx.model
            log.append(f"{name}.{event} {shown}")
            self.contexts.append(ctx)
            return actions.get(event, lambda ctx: None)(ctx)

        return method

    events = {
        "start": "on_predict_start",
        "end": "on_predict_end",
        "error": "on_error",
        "route": "on_route",
        "load": "on_load",
        "evict": "on_evict",
    }
    methods = {events[event]: noting(event) for event in events}
    return type("PerState", (), {**methods, "contexts": []})()


def on_state(state: Any, action: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Run an action for one state only."""
    return lambda ctx: action(ctx) if ctx.states == [state] else None


def models_of(results: Sequence[Any]) -> list[str]:
    return [result["routing"]["model"] for result in results]
