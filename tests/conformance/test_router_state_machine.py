"""The Router against a plain interpreter of the lifecycle page: the same events in every case."""

import threading
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from drut.errors import HookTimeoutError
from lifecycle_helpers import NOUL, cached
from property_settings import examples
from router_helpers import EN, ML, TD, Call, Kit
from router_reference import Action, Asked, Key, Planned, Reference, outcome_of, perform

NAMES = [EN, ML, TD]
STATES = ["1", "2", "3"]
QUESTIONS = {"Q1": NOUL, "Q2": {"m": NOUL["n"]}}
EVENTS = {
    "route": "on_route",
    "start": "on_predict_start",
    "error": "on_error",
    "end": "on_predict_end",
    "load": "on_load",
    "evict": "on_evict",
}


class Real:
    """A real Router driven like the reference: same operations, plan and log."""

    def __init__(self, capacity: int, kind: str = "stub", **options: Any) -> None:
        self.kit = Kit(kind)
        self.plan: dict[Key, Action] = {}
        self.handed_out: list[Any] = []
        self.kit.building = lambda name: perform(
            self, self.plan.pop(("build",) * 2 + (name,), None)
        )
        self.kit.called = self.called  # type: ignore[method-assign]
        hooks = [self.hook("A"), self.hook("B")]
        self.router = self.kit.router(max_loaded=capacity, hooks=hooks, **options)

    @property
    def log(self) -> list[str]:
        return self.kit.log

    @property
    def resident(self) -> list[str]:
        return self.router.loaded

    def hook(self, name: str) -> Any:
        methods = {method: self.method(name, event) for event, method in EVENTS.items()}
        return type("Planned", (), methods)()

    def method(self, name: str, event: str) -> Any:
        def method(hook: Any, ctx: Any) -> None:
            key = ctx.states[0] if ctx.states else ctx.model
            self.log.append(f"{name}.{event} {key}")
            self.act_on(ctx, self.plan.pop((name, event, key), None))

        return method

    def act_on(self, ctx: Any, action: Action | None) -> None:
        kind = action[0] if action else None
        if kind == "skip":
            ctx.skip([cached()])
        elif kind == "rewrite":
            ctx.states = [action[1]]  # type: ignore[index]
        elif kind == "ask":
            ctx.questions = QUESTIONS[action[1]]  # type: ignore[index]
        elif kind == "retarget":
            ctx.decision = {"model": action[1]}  # type: ignore[index]
        else:
            perform(self, action)

    def called(self, agent: Any, method: str, states: Any, questions: Any, **options: Any) -> None:
        asked = next(key for key, value in QUESTIONS.items() if value == questions)
        self.log.append(f"{agent.name}.{method} {asked}: {' '.join(states)}")
        self.kit.calls.append(Call(agent.name, method, states, questions, options))
        for state in states:
            perform(self, self.plan.pop(("agent", "call", state), None))

    def predict(self, asked: Asked, hooks: Any = ()) -> list[str]:
        state, model, questions = asked
        result = self.router.predict(
            state, QUESTIONS[questions], model=model, hooks=[self.hook(name) for name in hooks]
        )
        return [self.router.resolve(result["routing"]["model"])]

    def predict_batch(self, batch: list[Asked], hooks: Any = ()) -> list[str]:
        results = self.router.predict_batch(
            [{"state": s, "model": m, "questions": QUESTIONS[q]} for s, m, q in batch],
            hooks=[self.hook(name) for name in hooks],
        )
        return [self.router.resolve(result["routing"]["model"]) for result in results]

    def load(self, name: str) -> None:
        self.handed_out.append(self.router.load(name))

    def unload(self, name: str) -> None:
        self.router.unload(name)

    def unload_all(self) -> None:
        self.router.unload()

    def attach(self, name: str) -> None:
        self.handed_out.append(self.router.attach(name, self.kit.agent(name)))


def general_actions() -> st.SearchStrategy[Action]:
    names = st.sampled_from(NAMES)
    return st.one_of(
        st.tuples(st.just("raise"), st.sampled_from("xy")),
        st.tuples(st.just("interrupt"), st.just("z")),
        st.tuples(st.just("predict"), st.just("nested"), names),
        st.tuples(st.just("load"), names),
        st.tuples(st.just("unload"), names),
        st.just(("unload_all",)),
        st.tuples(st.just("attach"), names),
    )


@st.composite
def plan_entries(draw: st.DrawFn) -> tuple[Key, Action]:
    event = draw(st.sampled_from([*EVENTS, "call", "build"]))
    if event in ("call", "build"):
        key = draw(st.sampled_from(STATES if event == "call" else NAMES))
        hook = "agent" if event == "call" else "build"
        return (hook, event, key), ("raise", "w")
    hook = draw(st.sampled_from("ABC"))
    key = draw(st.sampled_from(NAMES if event in ("load", "evict") else STATES))
    own: list[st.SearchStrategy[Action]] = [general_actions()]
    if event == "start":
        own.append(st.sampled_from([("skip",), ("rewrite", "4"), ("ask", "Q2")]))
    if event == "route":
        own.append(st.tuples(st.just("retarget"), st.sampled_from([*NAMES, "ml"])))
    return (hook, event, key), draw(st.one_of(*own))


plans = st.lists(plan_entries(), max_size=4).map(dict)
requests = st.tuples(st.sampled_from(STATES), st.sampled_from(NAMES), st.sampled_from(["Q1", "Q2"]))
call_hooks = st.sampled_from(["", "C"])


class RouterMachine(RuleBasedStateMachine):
    """Every rule does the same to both and compares results, errors, events and what is loaded."""

    @initialize(capacity=st.integers(1, 3))
    def begin(self, capacity: int) -> None:
        self.real = Real(capacity)
        self.reference = Reference(capacity)

    def both(self, operation: str, plan: dict[Key, Action], *arguments: Any) -> None:
        for side in (self.real, self.reference):
            side.plan.clear()
            side.plan.update(plan)
            side.log.clear()
        expected = outcome_of(getattr(self.reference, operation), *arguments)
        actual = outcome_of(getattr(self.real, operation), *arguments)
        assert self.real.log == self.reference.log
        assert actual == expected

    @rule(asked=requests, plan=plans, hooks=call_hooks)
    def predict(self, asked: Asked, plan: dict[Key, Action], hooks: str) -> None:
        self.both("predict", plan, asked, hooks)

    @rule(batch=st.lists(requests, max_size=4), plan=plans, hooks=call_hooks)
    def predict_batch(self, batch: list[Asked], plan: dict[Key, Action], hooks: str) -> None:
        self.both("predict_batch", plan, batch, hooks)

    @rule(name=st.sampled_from(NAMES), plan=plans)
    def load(self, name: str, plan: dict[Key, Action]) -> None:
        self.both("load", plan, name)

    @rule(name=st.sampled_from(NAMES), plan=plans)
    def unload(self, name: str, plan: dict[Key, Action]) -> None:
        self.both("unload", plan, name)

    @rule(plan=plans)
    def unload_all(self, plan: dict[Key, Action]) -> None:
        self.both("unload_all", plan)

    @rule(name=st.sampled_from(NAMES))
    def attach(self, name: str) -> None:
        self.both("attach", {}, name)

    @invariant()
    def the_same_checkpoints_are_resident(self) -> None:
        assert self.real.resident == self.reference.resident
        assert self.real.router.max_loaded == self.reference.capacity


TestRouterMachine = RouterMachine.TestCase
TestRouterMachine.settings = settings(examples(30), stateful_step_count=20)


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("event", EVENTS)
def test_a_hook_that_times_out_is_like_one_that_raises(event: str, batch: bool) -> None:
    go_on = threading.Event()
    real, reference = Real(1, hooks_timeout=0.5), Reference(1)
    key = EN if event == "evict" else ML if event == "load" else "1"
    entry: Key = ("A", event, key)
    for side in (real, reference):
        side.load(EN)
        side.log.clear()
        if event == "error":
            side.plan["agent", "call", "1"] = ("raise", "call")
    reference.plan[entry] = ("raise", "late")
    real.plan[entry] = ("wait",)
    real.wait = lambda: go_on.wait(20)  # type: ignore[attr-defined]
    asked: Any = ("1", ML, "Q1")
    operation, argument = ("predict_batch", [asked]) if batch else ("predict", asked)
    try:
        expected = outcome_of(getattr(reference, operation), argument)
        with pytest.raises((HookTimeoutError, Planned)) as caught:
            getattr(real, operation)(argument)
    finally:
        go_on.set()
    assert real.log == reference.log
    assert expected == ("Planned", "call" if event == "error" else "late")
    assert isinstance(caught.value, Planned if event == "error" else HookTimeoutError)


@pytest.mark.parametrize("kind", ["fake", "onnxruntime"])
def test_the_reference_holds_for_real_agents(kind: str) -> None:
    plan: dict[Key, Action] = {
        ("A", "start", "2"): ("skip",),
        ("B", "start", "3"): ("rewrite", "4"),
        ("C", "route", "1"): ("retarget", "ml"),
        ("B", "end", "2"): ("predict", "nested", TD),
        ("A", "evict", EN): ("raise", "evict"),
    }
    batch = [("1", EN, "Q1"), ("2", EN, "Q1"), ("3", ML, "Q2"), ("1", EN, "Q2")]
    real, reference = Real(1, kind), Reference(1)
    for side in (real, reference):
        side.plan.update(plan)
    expected = outcome_of(reference.predict_batch, batch, "C")
    assert outcome_of(real.predict_batch, batch, "C") == expected
    assert real.log == reference.log
