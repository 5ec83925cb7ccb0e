"""What an agent must have, and what is passed to it."""

from typing import Any

import pytest

import drut
from drut.errors import ForwardError, InvalidTypeError
from drut.routing.agents import AgentProtocol, as_handle
from lifecycle_helpers import make_fake_agent


class Minimal:
    def system_one(self, state: Any, questions: Any) -> Any:
        return {"one": state}

    def predict_batch(self, states: Any, questions: Any) -> Any:
        return [{"one": state} for state in states]


class Everything(Minimal):
    def system_one(self, state: Any, questions: Any, **options: Any) -> Any:
        return options

    def predict_batch(self, states: Any, questions: Any, *, lang: Any = None, **rest: Any) -> Any:
        return [{"lang": lang, **rest} for _ in states]

    def predict_long(self, state: Any, questions: Any, window: Any) -> Any:
        return {"window": window}


@pytest.mark.parametrize("agent", [object(), None, "agent", Minimal, lambda: None])
def test_what_is_no_agent_is_refused_by_name(agent: Any) -> None:
    with pytest.raises(InvalidTypeError, match=r"it needs the methods system_one\(state, quest"):
        as_handle(agent)


def test_drut_agents_follow_the_protocol() -> None:
    assert isinstance(make_fake_agent(), AgentProtocol)


def test_only_what_is_accepted_is_passed() -> None:
    handle = as_handle(Minimal())
    assert handle.system_one("s", {}, {"lang": "de"}) == {"one": "s"}
    with pytest.warns(RuntimeWarning, match="Minimal takes no max_len or head_max_len"):
        handle.predict_batch(["s"], {}, {"lang": "de", "max_len": 5, "head_max_len": 3})


def test_keyword_catch_alls_get_everything() -> None:
    handle = as_handle(Everything())
    assert handle.system_one("s", {}, {"lang": "de", "max_len": 5}) == {"lang": "de", "max_len": 5}
    assert handle.predict_long("s", {}, {"window": 9}) == {"window": 9}


def test_an_agent_without_long_states_says_so() -> None:
    with pytest.raises(InvalidTypeError, match="Minimal has no predict_long"):
        as_handle(Minimal()).predict_long("s", {}, {})


@pytest.mark.parametrize("answer", [[], [{}, {}], {"a": 1}, None, "x"])
def test_an_agent_must_answer_one_result_per_state(answer: Any) -> None:
    agent = Minimal()
    agent.predict_batch = lambda states, questions: answer  # type: ignore[method-assign]
    with pytest.raises(ForwardError, match="one"):
        as_handle(agent).predict_batch(["s"], {}, {})


def test_methods_without_a_signature_get_nothing_extra() -> None:
    agent = Minimal()
    agent.system_one = type(
        "Odd",
        (),
        {  # type: ignore[method-assign]
            "__signature__": "no signature",
            "__call__": lambda self, state, questions: "answer",
        },
    )()
    assert as_handle(agent).system_one("s", {}, {"lang": "de"}) == "answer"


@pytest.mark.parametrize(("temperatures", "differs"), [({}, False), ({"de": None}, True)])
def test_language_matters_where_there_are_temperatures_for_one(
    temperatures: Any, differs: bool
) -> None:
    agent = make_fake_agent(lang_temperatures=temperatures)
    assert as_handle(agent).by_language is differs


def test_language_may_matter_where_an_agent_does_not_say() -> None:
    silent, upstream = Everything(), Everything()
    upstream.lang_temperatures = {}  # type: ignore[attr-defined]
    assert as_handle(silent).by_language is True
    assert as_handle(upstream).by_language is False
    assert as_handle(Minimal()).by_language is False


def test_drut_agents_take_every_option_of_the_router() -> None:
    handle = as_handle(make_fake_agent())
    options = ["lang", "max_len", "head_max_len", "on_truncation"]
    assert all(name in handle.one for name in options)
    assert all(name in handle.batch for name in [*options, "batch_size", "sort_by_length"])
    assert handle.long is not None
    assert all(n in handle.long for n in ("window", "stride", "aggregate", "batch_size", "lang"))
    assert drut.Agent.system_one is drut.Agent.predict
