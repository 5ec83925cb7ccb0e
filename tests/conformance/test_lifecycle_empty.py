"""The lifecycle page, Empty inputs: requirements L146 to L151."""

from collections.abc import Callable
from typing import Any

import pytest

import drut
from lifecycle_helpers import NOUL, Hook, every_agent, noting

MakeAgent = Callable[..., drut.Agent]
pytestmark = every_agent

EMPTY = {
    "model": "laya-rl-agent",
    "answers": {},
    "usage": {"input_tokens": 0, "output_tokens": 0},
}
ZEROS = {"input_tokens": 0, "output_tokens": 0}


@pytest.mark.parametrize("options", [{}, {"batch_size": 2}, {"sort_by_length": True}])
@pytest.mark.parametrize(
    ("states", "questions", "expected"),
    [
        pytest.param([], NOUL, [], id="L146-no-states"),
        pytest.param((), NOUL, [], id="L146-empty-tuple"),
        pytest.param(iter(()), NOUL, [], id="L146-empty-iterator"),
        pytest.param(["a"], {}, [EMPTY], id="L147-no-questions"),
        pytest.param(["a", {"b": 1}, ""], {}, [EMPTY] * 3, id="L147-no-questions-three-states"),
        pytest.param([], {}, [], id="L151-nothing-at-all"),
    ],
)
def test_L146_L147_L149_L150_L151_empty_inputs_of_predict_batch(
    make_agent: MakeAgent, states: Any, questions: Any, expected: Any, options: dict[str, Any]
) -> None:
    log: list[str] = []
    seen: list[Any] = []
    note = noting(seen, "results", "usage", "error")
    agent = make_agent(log, hooks=Hook(log, start=note, end=note))
    assert agent.predict_batch(states, questions, **options) == expected
    assert seen == [(None, None, None), (expected, ZEROS, None)]
    assert log == ["A.start", "A.end"]


@pytest.mark.parametrize("method", ["system_one", "predict"])
@pytest.mark.parametrize("state", ["a", "", {"a": 1}, [], 0])
def test_L148_L149_L150_no_questions_about_one_state(
    make_agent: MakeAgent, method: str, state: Any
) -> None:
    log: list[str] = []
    seen: list[Any] = []
    agent = make_agent(log, hooks=Hook(log, end=noting(seen, "results", "usage", "elapsed_ms")))
    assert getattr(agent, method)(state, {}) == EMPTY
    [(results, usage, elapsed_ms)] = seen
    assert (results, usage) == ([EMPTY], ZEROS)
    assert elapsed_ms > 0
    assert log == ["A.start", "A.end"]


def test_L147_the_payloads_do_not_share_their_dicts(make_agent: MakeAgent) -> None:
    first, second = make_agent().predict_batch(["a", "b"], {})
    first["answers"]["changed"] = first["usage"]["input_tokens"] = 1
    assert second == EMPTY
    assert make_agent().predict("a", {}) == EMPTY


def test_L147_a_state_that_is_none_is_refused_even_without_questions(make_agent: MakeAgent) -> None:
    log: list[str] = []
    with pytest.raises(TypeError, match="a state is None"):
        make_agent(log, hooks=Hook(log)).predict_batch([None], {})
    assert log == ["A.start", "A.error", "A.end"]
