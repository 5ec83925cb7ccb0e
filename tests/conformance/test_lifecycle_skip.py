"""The lifecycle page, Caching with skip: requirements L141 to L144, and what skip accepts."""

from collections.abc import Callable
from typing import Any

import pytest

import drut
from drut.errors import InvalidRequestError, InvalidTypeError
from lifecycle_helpers import NOUL, Hook, cached, every_agent, noting, skipping

MakeAgent = Callable[..., drut.Agent]
pytestmark = every_agent


class Memory(Hook):
    """The smallest cache: fills in end, answers in start."""

    def __init__(self, log: list[str]) -> None:
        super().__init__(log, "cache")
        self.held: dict[str, Any] = {}

    def on_predict_start(self, ctx: drut.PredictContext) -> None:
        super().on_predict_start(ctx)
        if repr(ctx.states) in self.held:
            ctx.skip(self.held[repr(ctx.states)])

    def on_predict_end(self, ctx: drut.PredictContext) -> None:
        super().on_predict_end(ctx)
        if ctx.error is None:
            self.held[repr(ctx.states)] = ctx.results


def test_L141_L142_a_skip_means_no_forward_but_an_end(make_agent: MakeAgent) -> None:
    log: list[str] = []
    hooks = [Hook(log, "A", start=skipping([cached()])), Hook(log, "B")]
    assert make_agent(log, hooks=hooks).predict("a", NOUL) == cached()
    assert log == ["A.start", "B.start", "A.end", "B.end"]


def test_L143_a_bare_agent_adds_no_routing_to_a_skipped_result(make_agent: MakeAgent) -> None:
    agent = make_agent(hooks=Hook([], start=skipping([cached()])))
    assert "routing" not in agent.predict("a", NOUL)
    routed = {**cached(), "routing": {"model": "mine"}}
    agent = make_agent(hooks=Hook([], start=skipping([routed])))
    assert agent.predict("a", NOUL)["routing"] == {"model": "mine"}


def test_L144_on_a_miss_the_end_hook_stores_what_the_next_call_gets(make_agent: MakeAgent) -> None:
    log: list[str] = []
    agent = make_agent(log, hooks=Memory(log))
    first = agent.predict("a", NOUL)
    assert log == ["cache.start", "tokenise", "forward 1", "cache.end"]
    assert agent.predict("a", NOUL) is first
    assert log[4:] == ["cache.start", "cache.end"]
    agent.predict("b", NOUL)
    assert log[6:] == ["cache.start", "tokenise", "forward 1", "cache.end"]


def test_L144_duplicates_within_one_call_are_no_matter_of_the_cache(make_agent: MakeAgent) -> None:
    log: list[str] = []
    first, second = make_agent(log, hooks=Memory(log)).predict_batch(["a", "a"], NOUL)
    # Inferred, both of them, by one row: equal rows are computed once, without any hook.
    assert log == ["cache.start", "tokenise", "forward 1", "cache.end"]
    assert first == second
    assert first is not second


def test_the_last_skip_wins_and_later_start_hooks_still_run(make_agent: MakeAgent) -> None:
    log: list[str] = []
    seen: list[Any] = []
    hooks = [
        Hook(log, "A", start=skipping([cached(0.1)])),
        Hook(log, "B", start=noting(seen, "results")),
        Hook(log, "C", start=skipping([cached(0.2)])),
    ]
    assert make_agent(log, hooks=hooks).predict("a", NOUL) == cached(0.2)
    assert seen == [([cached(0.1)],)]
    assert log == ["A.start", "B.start", "C.start", "A.end", "B.end", "C.end"]


@pytest.mark.parametrize("results", [None, "x", ({},), {"answers": {}}, 5])
def test_skip_takes_a_list_only(make_agent: MakeAgent, results: Any) -> None:
    log: list[str] = []
    agent = make_agent(log, hooks=Hook(log, start=skipping(results)))
    with pytest.raises(InvalidTypeError, match="skip takes a list with one result per state"):
        agent.predict("a", NOUL)
    assert log == ["A.start", "A.error", "A.end"]


def test_one_result_for_two_states_is_refused(make_agent: MakeAgent) -> None:
    agent = make_agent(hooks=Hook([], start=skipping([cached()])))
    with pytest.raises(InvalidRequestError, match="1 results for 2 states; give one per state"):
        agent.predict_batch(["a", "b"], NOUL)


def test_states_that_only_reading_would_count_are_not_counted(make_agent: MakeAgent) -> None:
    log: list[str] = []
    for answer in ([cached(0.1), cached(0.2)], []):
        agent = make_agent(log, hooks=Hook(log, start=skipping(answer)))
        states = iter(["a", "b"])
        assert agent.predict_batch(states, NOUL) is answer
        assert list(states) == ["a", "b"]
    assert log == ["A.start", "A.end"] * 2


@pytest.mark.parametrize("count", [1, None], ids=["one for all", "one per window"])
def test_a_document_is_answered_as_a_whole_or_window_by_window(
    make_agent: MakeAgent, count: int | None
) -> None:
    log: list[str] = []

    def answer(ctx: drut.PredictContext) -> None:
        assert len(ctx.states) > 2
        ctx.skip([cached(0.9) for _ in range(count or len(ctx.states))])

    agent = make_agent(log, hooks=Hook(log, start=answer))
    result = agent.predict_long("a b c d e f g " * 40, NOUL, window=64)
    assert result["answers"]["n"]["noul"] == 0.9
    assert log == ["tokenise", "A.start", "A.end"]


def test_a_document_is_not_answered_by_any_other_number(make_agent: MakeAgent) -> None:
    agent = make_agent(hooks=Hook([], start=skipping([cached(), cached()])))
    with pytest.raises(InvalidRequestError, match=r"2 results for \d+ states"):
        agent.predict_long("a b c d e f g " * 40, NOUL, window=64)


def test_the_gate_marks_a_skipped_result_and_replaces_a_stale_mark(make_agent: MakeAgent) -> None:
    held = cached(0.75)
    agent = make_agent(hooks=Hook([], start=skipping([held])))
    strict = dict(agent.predict("a", NOUL, min_confidence=0.9)["answers"]["n"])
    assert (strict["abstention"], strict["low_confidence"]) == ("abstained", True)
    lax = agent.predict("a", NOUL, min_confidence=0.1)["answers"]["n"]
    assert lax["abstention"] == "passed"
    assert "low_confidence" not in lax
