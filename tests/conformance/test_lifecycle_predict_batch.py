"""The lifecycle page, Agent.predict_batch: requirements L1 to L34."""

import inspect
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import drut
from drut.errors import InvalidRequestError, InvalidTypeError
from drut.tensors import Batch
from lifecycle_helpers import (
    NOUL,
    Action,
    Hook,
    cached,
    context_chain,
    every_agent,
    nothing,
    noting,
    raising,
    setting,
    skipping,
    yes,
)

pytestmark = every_agent
MakeAgent = Callable[..., drut.Agent]

INFERENCE = ["tokenise", "forward 1"]
BOOM = RuntimeError("boom")
INTERRUPTS = [KeyboardInterrupt("ctrl-c"), SystemExit(3), GeneratorExit("gone")]


def failing(exc: BaseException) -> Callable[[Batch], None]:
    """What a runtime does before its pass: raise."""

    def before(batch: Batch) -> None:
        raise exc

    return before


def test_L001_system_one_and_predict_reach_inference_only_through_predict_batch(
    make_agent: MakeAgent,
) -> None:
    calls: list[Any] = []

    class Overridden(drut.Agent):
        def predict_batch(self, states: Sequence[Any], *args: Any, **options: Any) -> Any:
            calls.append(states)
            return [cached(), cached()]

    log: list[str] = []
    agent = make_agent(log, agent_class=Overridden)
    assert agent.system_one("a", NOUL) == cached()
    assert agent.predict("b", NOUL) == cached()
    assert (calls, log) == ([["a"], ["b"]], [])


def test_L002_takes_states_questions_batch_size_hooks_and_the_rest(make_agent: MakeAgent) -> None:
    agent = make_agent()
    parameters = list(inspect.signature(agent.predict_batch).parameters)
    assert parameters[:3] == ["states", "questions", "batch_size"]
    assert set(parameters[3:]) >= {
        "lang",
        "hooks",
        "on_predict_start",
        "on_predict_end",
        "hooks_raise",
        "hooks_timeout",
        "max_len",
        "head_max_len",
        "sort_by_length",
        "min_confidence",
    }
    log: list[str] = []
    results = agent.predict_batch(
        ["a", "b", "a"],
        NOUL,
        2,
        "en",
        hooks=[Hook(log)],
        on_predict_start=lambda ctx: log.append("function start"),
        on_predict_end=[lambda ctx: log.append("function end")],
        hooks_raise=True,
        hooks_timeout=30.0,
        max_len=64,
        head_max_len=64,
        sort_by_length=True,
        min_confidence=0.5,
    )
    unhooked = agent.predict_batch(states=["a", "b", "a"], questions=NOUL)
    assert yes(results) == pytest.approx(yes(unhooked), abs=2e-4)
    assert log == ["A.start", "function start", "A.end", "function end"]


def test_L003_installed_hooks_then_per_call_hooks(make_agent: MakeAgent) -> None:
    log: list[str] = []
    agent = make_agent(log, hooks=[Hook(log, "A"), Hook(log, "B")])
    agent.predict_batch(["a"], NOUL, hooks=[Hook(log, "C")])
    starts, ends = ["A.start", "B.start", "C.start"], ["A.end", "B.end", "C.end"]
    assert log == [*starts, *INFERENCE, *ends]


def test_L004_exactly_one_context_per_call(make_agent: MakeAgent) -> None:
    first, second = Hook([]), Hook([])
    agent = make_agent(hooks=[first, second])
    agent.predict_batch(["a", "b", "a"], NOUL, batch_size=1)
    assert len(first.contexts) == len(second.contexts) == 2
    assert len({*first.contexts, *second.contexts}) == 1


@pytest.mark.parametrize("states", [["a", "b"], ("a",), [], "a bare string", {"a": 1}, None])
def test_L005_start_sees_the_callers_own_states_and_questions(
    make_agent: MakeAgent, states: Any
) -> None:
    seen: list[Any] = []
    questions = dict(NOUL)
    hook = Hook([], start=lambda ctx: [noting(seen, "states", "questions")(ctx), ctx.skip(answer)])
    answer = [cached() for _ in states] if isinstance(states, list | tuple) else [cached()]
    make_agent(hooks=hook).predict_batch(states, questions)
    [(seen_states, seen_questions)] = seen
    assert seen_states is states
    assert seen_questions is questions


def test_L006_start_sees_the_agents_model_id(make_agent: MakeAgent) -> None:
    seen: list[Any] = []
    agent = make_agent(hooks=Hook([], start=noting(seen, "model")))
    agent.predict_batch(["a"], NOUL)
    assert seen == [(agent.model_id,)]
    assert agent.model_id


def test_L007_start_sees_the_agent_but_no_router_and_no_decision(make_agent: MakeAgent) -> None:
    seen: list[Any] = []
    agent = make_agent(hooks=Hook([], start=noting(seen, "agent", "router", "decision")))
    agent.predict_batch(["a"], NOUL)
    assert seen == [(agent, None, None)]


@pytest.mark.parametrize(
    ("states", "questions"), [(["a"], NOUL), (["a"], None), ("a bare string", NOUL), (None, 5)]
)
def test_L008_start_is_the_first_event_before_validation_and_tokenising(
    make_agent: MakeAgent, states: Any, questions: Any
) -> None:
    log: list[str] = []
    seen: list[Any] = []
    fields = ("results", "usage", "elapsed_ms", "error")
    agent = make_agent(log, hooks=Hook(log, start=noting(seen, *fields)))
    try:
        agent.predict_batch(states, questions)
    except InvalidTypeError:
        assert log == ["A.start", "A.error", "A.end"]
    else:
        assert log == ["A.start", *INFERENCE, "A.end"]
    assert seen == [(None, None, None, None)]


def test_L009_a_start_hook_replaces_the_states(make_agent: MakeAgent) -> None:
    log: list[str] = []
    expected = make_agent().predict_batch(["b", "the app crashes"], NOUL)
    agent = make_agent(log)
    hook = Hook(log, start=setting(states=["b", "the app crashes"]))
    assert agent.predict_batch(["a"], NOUL, hooks=hook) == expected
    assert log == ["A.start", "tokenise", "forward 2", "A.end"]


def test_L010_a_start_hook_replaces_the_questions(make_agent: MakeAgent) -> None:
    log: list[str] = []
    other = {"other": {"type": "choice", "instructions": "Which?", "criteria": ["x", "y"]}}
    expected = make_agent().predict_batch(["a"], other)
    hook = Hook(log, start=setting(questions=other))
    results = make_agent(log).predict_batch(["a"], NOUL, hooks=hook)
    assert results == expected
    assert list(results[0]["answers"]) == ["other"]
    assert log == ["A.start", *INFERENCE, "A.end"]


@pytest.mark.parametrize(
    ("field", "value", "rows"), [("max_len", 33, 33), ("head_max_len", 20, 30), ("max_len", 34, 34)]
)
def test_L011_L012_a_start_hook_sets_the_token_budget(
    make_agent: MakeAgent, field: str, value: int, rows: int
) -> None:
    lengths: list[int] = []
    agent = make_agent(before=lambda batch: lengths.append(int(batch.attention_mask.sum(1).max())))
    hook = Hook([], start=setting(**{field: value}))
    state = "the customer was billed twice in march and nobody answered"
    hooked = agent.predict_batch([state], NOUL, hooks=hook)
    assert hooked == agent.predict_batch([state], NOUL, **{field: value})
    assert hooked != agent.predict_batch([state], NOUL)
    assert lengths[0] == lengths[1]
    if field == "max_len":
        assert lengths[0] == rows


def test_L011_a_start_hook_overrides_the_budget_of_the_call(make_agent: MakeAgent) -> None:
    seen: list[Any] = []
    lengths: list[int] = []
    agent = make_agent(before=lambda batch: lengths.append(int(batch.attention_mask.sum(1).max())))
    look = Hook([], "A", start=noting(seen, "max_len", "head_max_len"))
    change = Hook([], "B", start=setting(max_len=34, head_max_len=None))
    agent.predict_batch(["a b c d e f g"], NOUL, hooks=[look, change], max_len=200, head_max_len=90)
    assert (seen, lengths) == ([(200, 90)], [34])


def test_L013_skip_sets_the_results(make_agent: MakeAgent) -> None:
    seen: list[Any] = []
    answer = [cached(), cached(0.5)]
    hooks = [Hook([], "A", start=skipping(answer)), Hook([], "B", start=noting(seen, "results"))]
    results = make_agent(hooks=hooks).predict_batch(["a", "b"], NOUL)
    assert seen[0][0] is answer
    assert results is answer


@pytest.mark.parametrize("count", [0, 1, 3])
def test_L013_skip_refuses_another_number_of_results_inside_the_hook(
    make_agent: MakeAgent, count: int
) -> None:
    log: list[str] = []
    hook = Hook(log, start=skipping([cached() for _ in range(count)]))
    with pytest.raises(ValueError, match=rf"{count} results for 2 states") as caught:
        make_agent(log, hooks=hook).predict_batch(["a", "b"], NOUL)
    assert caught.traceback[-2].name == "<lambda>"
    assert log == ["A.start", "A.error", "A.end"]
    assert hook.contexts[0].results is None


def test_L014_after_a_skip_nothing_is_tokenised_and_no_forward_runs(make_agent: MakeAgent) -> None:
    log: list[str] = []
    hooks = [Hook(log, "A", start=skipping([cached()])), Hook(log, "B")]
    make_agent(log, hooks=hooks).predict_batch(["a"], NOUL)
    assert log == ["A.start", "B.start", "A.end", "B.end"]


@pytest.mark.parametrize("states", ["a bare string", {"a": 1}, None, 5, [None]])
@pytest.mark.parametrize("questions", [None, {}, {"n": {"type": "no such type"}}, "nonsense"])
def test_L015_after_a_skip_nothing_is_validated(
    make_agent: MakeAgent, states: Any, questions: Any
) -> None:
    log: list[str] = []
    agent = make_agent(log, hooks=Hook(log, start=skipping([cached()])))
    assert agent.predict_batch(states, questions, max_len="nonsense") == [cached()]
    assert log == ["A.start", "A.end"]


@pytest.mark.parametrize(
    "exc", [BOOM, StopIteration("spent"), *INTERRUPTS], ids=lambda exc: type(exc).__name__
)
def test_L016_a_raising_start_hook_aborts_the_call(
    make_agent: MakeAgent, exc: BaseException
) -> None:
    log: list[str] = []
    hooks = [Hook(log, "A"), Hook(log, "B", start=raising(exc)), Hook(log, "C")]
    with pytest.raises(type(exc)) as caught:
        make_agent(log, hooks=hooks).predict_batch(["a"], NOUL)
    assert caught.value is exc
    failure = ["A.error", "B.error", "C.error", "A.end", "B.end", "C.end"]
    assert log == ["A.start", "B.start", *failure]


@pytest.mark.parametrize("states", ["text", b"bytes", {"a": 1}, 5, None, [None], ["a", None]])
def test_L017_without_a_skip_states_must_be_a_list_of_states(
    make_agent: MakeAgent, states: Any
) -> None:
    log: list[str] = []
    with pytest.raises(TypeError, match="state"):
        make_agent(log).predict_batch(states, NOUL)
    assert log == []


@pytest.mark.parametrize("kind", [tuple, iter, lambda states: (state for state in states)])
def test_L017_any_other_iterable_is_a_list_of_states(
    make_agent: MakeAgent, kind: Callable[[list[str]], Any]
) -> None:
    agent = make_agent()
    states = ["a", "b", "the app crashes"]
    assert agent.predict_batch(kind(states), NOUL) == agent.predict_batch(states, NOUL)


def test_L018_validation_looks_at_what_the_start_hooks_left(make_agent: MakeAgent) -> None:
    log: list[str] = []
    agent = make_agent(log)
    wrap = Hook(log, start=lambda ctx: setting(states=[ctx.states])(ctx))
    assert agent.predict_batch("b", NOUL, hooks=wrap) == make_agent().predict_batch(["b"], NOUL)
    assert log == ["A.start", *INFERENCE, "A.end"]
    unwrap = Hook(log, "B", start=setting(states="b"))
    with pytest.raises(TypeError, match="list of states"):
        agent.predict_batch(["b"], NOUL, hooks=unwrap)
    assert log[4:] == ["B.start", "B.error", "B.end"]


@pytest.mark.parametrize(
    ("states", "questions", "options"),
    [
        ("text", NOUL, {}),
        ([None], NOUL, {}),
        (["a"], None, {}),
        (["a"], {"n": {"type": "no such type"}}, {}),
        (["a"], NOUL, {"batch_size": "two"}),
        (["a"], NOUL, {"max_len": 5}),
        (["a"], NOUL, {"lang": 7}),
        (["a\ud800"], NOUL, {}),
    ],
)
def test_L019_a_validation_failure_is_an_ordinary_failure(
    make_agent: MakeAgent, states: Any, questions: Any, options: dict[str, Any]
) -> None:
    log: list[str] = []
    hook = Hook(log)
    with pytest.raises(InvalidRequestError) as caught:
        make_agent(log, hooks=hook).predict_batch(states, questions, **options)
    assert [event for event in log if event != "tokenise"] == ["A.start", "A.error", "A.end"]
    assert hook.contexts[-1].error is caught.value


@pytest.mark.parametrize(
    ("states", "batch_size", "passes"),
    [
        (3, 2, ["tokenise", "forward 2", "tokenise", "forward 1"]),
        (4, 2, ["tokenise", "forward 2"] * 2),
        (3, 1, ["tokenise", "forward 1"] * 3),
        (3, 3, ["tokenise", "forward 3"]),
        (3, 99, ["tokenise", "forward 3"]),
        (3, None, ["tokenise", "forward 3"]),
        (3, 0, ["tokenise", "forward 3"]),
        (3, -1, ["tokenise", "forward 3"]),
    ],
)
def test_L020_states_go_chunk_by_chunk_through_encode_and_forward(
    make_agent: MakeAgent, states: int, batch_size: int | None, passes: list[str]
) -> None:
    log: list[str] = []
    agent = make_agent(log, hooks=Hook(log))
    agent.predict_batch([f"state {index}" for index in range(states)], NOUL, batch_size=batch_size)
    assert log == ["A.start", *passes, "A.end"]


def test_L021_answers_are_decoded_after_each_forward(
    make_agent: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    from drut import pipeline

    log: list[str] = []
    decode = pipeline.decode_answers

    def logged(*args: Any) -> Any:
        log.append("decode")
        return decode(*args)

    monkeypatch.setattr(pipeline, "decode_answers", logged)
    hook = Hook(log)
    results = make_agent(log, hooks=hook).predict_batch(["a", "b", "a"], NOUL, batch_size=2)
    chunks = ["tokenise", "forward 2", "decode", "tokenise", "forward 1", "decode"]
    assert log == ["A.start", *chunks, "A.end"]
    assert hook.contexts[-1].results is results


@pytest.mark.parametrize("sort_by_length", [False, True])
@pytest.mark.parametrize("batch_size", [1, 2, None])
def test_L022_one_result_per_state_in_input_order(
    make_agent: MakeAgent, batch_size: int | None, sort_by_length: bool
) -> None:
    agent = make_agent()
    states = ["the customer was billed twice in march", "b", "our team wants to cancel", "a", "b c"]
    alone = [agent.predict(state, NOUL) for state in states]
    results = agent.predict_batch(
        states, NOUL, batch_size=batch_size, sort_by_length=sort_by_length
    )
    assert [result["usage"] for result in results] == [result["usage"] for result in alone]
    assert len({result["usage"]["input_tokens"] for result in results}) > 3
    assert yes(results) == pytest.approx(yes(alone), abs=2e-4)


STAGES: dict[str, tuple[Action, Any, dict[str, Any], BaseException]] = {
    "start": (raising(BOOM), nothing, {}, BOOM),
    "tokenise": (setting(states=["a\ud800"]), nothing, {}, InvalidTypeError("surrogate")),
    "validation": (setting(questions=None), nothing, {}, InvalidTypeError("questions")),
    "forward": (nothing, failing(BOOM), {}, BOOM),
    "malformed": (skipping(["x"]), nothing, {}, InvalidTypeError("result 0")),
    **{
        f"{type(exc).__name__} in forward": (nothing, failing(exc), {}, exc)
        for exc in (StopIteration("spent"), *INTERRUPTS)
    },
}
every_failure = pytest.mark.parametrize(
    ("start", "before", "options", "exc"), STAGES.values(), ids=STAGES
)


@every_failure
def test_L023_L026_L034_a_failure_is_the_contexts_error_and_raised_again(
    make_agent: MakeAgent, start: Action, before: Any, options: dict[str, Any], exc: BaseException
) -> None:
    log: list[str] = []
    errors: list[Any] = []
    hook = Hook(log, start=start, error=noting(errors, "error"), end=noting(errors, "error"))
    with pytest.raises(type(exc)) as caught:
        make_agent(before=before, hooks=hook).predict_batch(["a"], NOUL, **options)
    assert log == ["A.start", "A.error", "A.end"]
    assert [error is caught.value for (error,) in errors] == [True, True]
    if exc in (BOOM, *INTERRUPTS):
        assert caught.value is exc


def test_L023_decoding_belongs_to_what_may_fail(
    make_agent: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decode(*args: Any) -> None:
        raise BOOM

    monkeypatch.setattr("drut.pipeline.decode_answers", decode)
    log: list[str] = []
    hook = Hook(log)
    with pytest.raises(RuntimeError) as caught:
        make_agent(log, hooks=hook).predict_batch(["a"], NOUL)
    assert caught.value is BOOM
    assert log == ["A.start", *INFERENCE, "A.error", "A.end"]
    assert hook.contexts[-1].error is BOOM


@pytest.mark.parametrize("exc", INTERRUPTS, ids=lambda exc: type(exc).__name__)
def test_L024_keyboard_interrupt_in_forward_runs_error_and_end(
    make_agent: MakeAgent, exc: BaseException
) -> None:
    log: list[str] = []
    hook = Hook(log)
    with pytest.raises(type(exc)) as caught:
        make_agent(log, failing(exc), hooks=hook).predict_batch(["a"], NOUL)
    assert caught.value is exc
    assert log == ["A.start", *INFERENCE, "A.error", "A.end"]
    assert hook.contexts[-1].error is exc


def test_L025_all_error_hooks_run_before_the_first_end_hook(make_agent: MakeAgent) -> None:
    log: list[str] = []
    agent = make_agent(log, failing(BOOM), hooks=[Hook(log, "A"), Hook(log, "B")])
    with pytest.raises(RuntimeError, match="boom"):
        agent.predict_batch(["a"], NOUL)
    assert log[4:] == ["A.error", "B.error", "A.end", "B.end"]


@pytest.mark.parametrize("event", ["error", "end"])
def test_L026_a_raising_hook_never_masks_the_failure_but_is_linked(
    make_agent: MakeAgent, event: str
) -> None:
    failure, mistake = BufferError("forward"), ZeroDivisionError("a hook's mistake")
    actions = {event: raising(mistake)}
    agent = make_agent(before=failing(failure), hooks=Hook([], **actions))
    with pytest.raises(BufferError) as caught:
        agent.predict_batch(["a"], NOUL)
    assert caught.value is failure
    assert context_chain(failure) == [failure, mistake]


@pytest.mark.parametrize("outcome", ["success", "failure", "skip"])
def test_L027_elapsed_ms_is_set_before_error_and_end(make_agent: MakeAgent, outcome: str) -> None:
    def slow(batch: Batch) -> None:
        time.sleep(0.02)
        if outcome == "failure":
            raise BOOM

    seen: list[Any] = []

    def start(ctx: drut.PredictContext) -> None:
        noting(seen, "elapsed_ms")(ctx)
        if outcome == "skip":
            time.sleep(0.02)
            ctx.skip([cached()])

    note = noting(seen, "elapsed_ms", "started_at")
    before = time.perf_counter()
    try:
        make_agent(before=slow, hooks=Hook([], start=start, error=note, end=note)).predict_batch(
            ["a"], NOUL
        )
    except RuntimeError:
        assert outcome == "failure"
    wall = (time.perf_counter() - before) * 1000
    assert seen[0] == (None,)
    assert len(seen) == (3 if outcome == "failure" else 2)
    for elapsed, started_at in seen[1:]:
        assert 20 <= elapsed <= wall
        assert before <= started_at


def test_L027_elapsed_ms_does_not_depend_on_what_a_hook_does_to_the_clock(
    make_agent: MakeAgent,
) -> None:
    log: list[str] = []
    seen: list[Any] = []
    hook = Hook(log, start=setting(started_at="no number"), end=noting(seen, "elapsed_ms"))
    make_agent(hooks=hook).predict_batch(["a"], NOUL)
    assert log == ["A.start", "A.end"]
    assert seen[0][0] > 0


def test_L028_L029_usage_is_the_sum_over_all_results(make_agent: MakeAgent) -> None:
    seen: list[Any] = []
    agent = make_agent(hooks=Hook([], end=noting(seen, "usage")))
    results = agent.predict_batch(["a", "b c d", "our team wants to cancel"], NOUL, batch_size=2)
    per_state = [result["usage"]["input_tokens"] for result in results]
    assert len(set(per_state)) == 3
    assert seen == [({"input_tokens": sum(per_state), "output_tokens": 0},)]


@pytest.mark.parametrize(
    ("results", "usage"),
    [
        ([cached(input_tokens=7, output_tokens=2), cached(input_tokens=4)], (11, 2)),
        ([{"answers": {}}, {"answers": {}, "usage": None}], (0, 0)),
        ([], (0, 0)),
    ],
)
def test_L028_usage_of_skipped_results_is_summed_and_what_is_missing_is_nothing(
    make_agent: MakeAgent, results: list[Any], usage: tuple[int, int]
) -> None:
    seen: list[Any] = []
    hook = Hook([], start=skipping(results), end=noting(seen, "usage"))
    make_agent(hooks=hook).predict_batch(["a", "b"][: len(results)], NOUL)
    assert seen == [({"input_tokens": usage[0], "output_tokens": usage[1]},)]


def test_L028_a_failed_call_without_results_has_no_usage(make_agent: MakeAgent) -> None:
    seen: list[Any] = []
    agent = make_agent(before=failing(BOOM), hooks=Hook([], end=noting(seen, "results", "usage")))
    with pytest.raises(RuntimeError):
        agent.predict_batch(["a"], NOUL)
    assert seen == [(None, None)]


def test_L028_a_failed_call_with_results_has_usage(make_agent: MakeAgent) -> None:
    seen: list[Any] = []
    hooks = [
        Hook([], "A", start=skipping([cached(input_tokens=7)]), end=noting(seen, "usage")),
        Hook([], "B", start=raising(BOOM)),
    ]
    with pytest.raises(RuntimeError):
        make_agent(hooks=hooks).predict_batch(["a"], NOUL)
    assert seen == [({"input_tokens": 7, "output_tokens": 0},)]


@pytest.mark.parametrize("end", [nothing, raising(ZeroDivisionError())], ids=["", "raising end"])
@every_failure
def test_L030_exactly_one_end_on_every_failing_path(
    make_agent: MakeAgent,
    start: Action,
    before: Any,
    options: dict[str, Any],
    exc: BaseException,
    end: Action,
) -> None:
    log: list[str] = []
    hooks = [Hook(log, "A", end=end), Hook(log, "B", start=start), Hook(log, "C")]
    with pytest.raises(type(exc)):
        make_agent(before=before, hooks=hooks).predict_batch(["a"], NOUL, **options)
    assert [log.count(f"{name}.end") for name in "ABC"] == [1, 1, 1]
    assert log[-6:] == ["A.error", "B.error", "C.error", "A.end", "B.end", "C.end"]


@pytest.mark.parametrize("start", [nothing, skipping([cached()])], ids=["answered", "skipped"])
def test_L030_exactly_one_end_on_success_and_on_a_skip(
    make_agent: MakeAgent, start: Action
) -> None:
    log: list[str] = []
    make_agent(hooks=[Hook(log, "A", start=start), Hook(log, "B")]).predict_batch(["a"], NOUL)
    assert log == ["A.start", "B.start", "A.end", "B.end"]


def test_L031_returns_the_results_as_the_end_hooks_left_them(make_agent: MakeAgent) -> None:
    seen: list[Any] = []
    left = [cached(0.5)]
    hooks = [Hook([], end=setting(results=left)), Hook([], end=noting(seen, "results"))]
    assert make_agent(hooks=hooks).predict_batch(["a"], NOUL) is left
    assert seen[0][0] is left

    def in_place(ctx: drut.PredictContext) -> None:
        ctx.results[0]["answers"]["n"]["noul"] = -1.0

    assert yes(make_agent(hooks=Hook([], end=in_place)).predict_batch(["a"], NOUL)) == [-1.0]


def test_L032_the_same_context_goes_through_start_error_and_end(make_agent: MakeAgent) -> None:
    hook = Hook([])
    with pytest.raises(RuntimeError):
        make_agent(before=failing(BOOM), hooks=hook).predict_batch(["a"], NOUL)
    start, error, end = hook.contexts
    assert start is error is end


def test_L033_run_id_is_constant_in_a_call_and_differs_between_calls(
    make_agent: MakeAgent,
) -> None:
    seen: list[Any] = []
    agent = make_agent(hooks=Hook([], start=noting(seen, "run_id"), end=noting(seen, "run_id")))
    for _ in range(20):
        agent.predict_batch([], NOUL)
    ids = [run_id for (run_id,) in seen]
    assert ids[::2] == ids[1::2]
    assert len(set(ids)) == 20
    assert all(re.fullmatch(r"[0-9a-f]{32}", run_id) for run_id in ids)


def test_L034_error_is_none_in_end_on_success(make_agent: MakeAgent) -> None:
    seen: list[Any] = []
    make_agent(hooks=Hook([], end=noting(seen, "error"))).predict_batch(["a"], NOUL)
    assert seen == [(None,)]
