"""Every example runs, and the hooks among them do what they are for."""

import copy
import importlib.util
import io
import json
import runpy
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import drut
from drut.errors import TruncationError
from lifecycle_helpers import NOUL, Hook, cached, make_fake_agent, setting, skipping, together

HOOKS = Path(__file__).parents[1] / "examples" / "hooks"
SCRIPTS = [*sorted(HOOKS.glob("*.py")), HOOKS.parent / "async_service.py"]


def example(name: str) -> ModuleType:
    """An example as a module; running its script is another matter."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", HOOKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_L145_a_cache_example_is_where_the_page_says() -> None:
    assert (HOOKS / "cache.py").is_file()
    assert {path.stem for path in SCRIPTS} >= {"audit", "cache", "guard", "pin_route", "redact"}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_an_example_is_short_and_runs_as_a_script(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(name: str, **options: Any) -> drut.Agent:
        assert name == "starter"
        return make_fake_agent(**options)

    monkeypatch.setattr(drut, "load", load)
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.strip()
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 60


def cache(size: int = 1024) -> Any:
    return example("cache").AnswerCache(size)


def test_L145_the_cache_answers_the_second_time_without_a_forward_pass() -> None:
    log: list[str] = []
    agent = make_fake_agent(log, hooks=cache())
    first = agent.predict_batch(["a", {"b": [1, None]}], NOUL)
    assert log == ["tokenise", "forward 2"]
    assert agent.predict_batch(["a", {"b": [1, None]}], NOUL) == first
    assert log == ["tokenise", "forward 2"]


CHOICE = {"c": {"type": "choice", "instructions": "Which?", "criteria": {"x": "one", "y": "two"}}}
SWAPPED = {"c": {"type": "choice", "instructions": "Which?", "criteria": {"y": "two", "x": "one"}}}
NUMBERS = {"c": {"type": "choice", "instructions": "Which?", "criteria": {1: "one", 2: "two"}}}
DIGITS = {"c": {"type": "choice", "instructions": "Which?", "criteria": {"1": "one", "2": "two"}}}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (((["a"], NOUL), {}), ((["b"], NOUL), {})),
        (((["a", "b"], NOUL), {}), ((["b", "a"], NOUL), {})),
        (((["1"], NOUL), {}), (([1], NOUL), {})),
        ((([1], NOUL), {}), (([True], NOUL), {})),
        ((([1], NOUL), {}), (([1.0], NOUL), {})),
        ((([{"a": 1, "b": 2}], NOUL), {}), (([{"b": 2, "a": 1}], NOUL), {})),
        (((["a"], CHOICE), {}), ((["a"], SWAPPED), {})),
        (((["a"], NUMBERS), {}), ((["a"], DIGITS), {})),
        (((["a"], NOUL), {}), ((["a"], {"m": NOUL["n"]}), {})),
        (((["a"], NOUL), {}), ((["a"], NOUL), {"max_len": 64})),
        (((["a"], NOUL), {"max_len": 64}), ((["a"], NOUL), {"head_max_len": 64})),
    ],
)
def test_the_cache_tells_requests_apart(first: Any, second: Any) -> None:
    log: list[str] = []
    agent = make_fake_agent(log, hooks=cache())
    for arguments, options in (first, second, first, second):
        answer = agent.predict_batch(*arguments, **options)
        assert answer == make_fake_agent().predict_batch(*arguments, **options)
    assert len([entry for entry in log if entry.startswith("forward")]) == 2


def test_the_cache_hands_out_copies_and_keeps_copies() -> None:
    agent = make_fake_agent(hooks=cache())
    first = agent.predict("a", NOUL)
    pristine = copy.deepcopy(first)
    first["answers"]["n"]["noul"] = -1.0
    second = agent.predict("a", NOUL)
    assert second == pristine
    second["usage"]["questions"].clear()
    assert agent.predict("a", NOUL) == pristine


def test_the_cache_keeps_no_gate_mark_and_no_routing_of_an_earlier_call() -> None:
    log: list[str] = []
    routed = Hook([], end=lambda ctx: ctx.results[0].update(routing={"model": "x"}))
    agent = make_fake_agent(log, hooks=[routed, cache()])
    strict = agent.predict("a", NOUL, min_confidence=1.0)["answers"]["n"]
    assert strict["low_confidence"] is True
    agent.remove_hook(routed)
    plain = agent.predict("a", NOUL)
    assert plain == make_fake_agent().predict("a", NOUL)
    assert agent.predict("a", NOUL, min_confidence=0.0)["answers"]["n"]["abstention"] == "passed"
    assert log == ["tokenise", "forward 1"]


def test_the_cache_forgets_what_was_used_longest_ago() -> None:
    log: list[str] = []
    agent = make_fake_agent(log, hooks=cache(size=2))
    for state in ("a", "b", "a", "c"):
        agent.predict(state, NOUL)
    assert log.count("forward 1") == 3
    agent.predict("a", NOUL)
    assert log.count("forward 1") == 3
    agent.predict("b", NOUL)
    assert log.count("forward 1") == 4


def test_the_cache_stores_no_failure_and_forgets_what_it_waited_for() -> None:
    hook = cache()
    agent = make_fake_agent(hooks=hook)
    with pytest.raises(TypeError):
        agent.predict_batch([None], NOUL)
    agent.predict("a", NOUL, hooks=Hook([], start=skipping([cached()])))
    agent.predict("a", NOUL)
    assert hook._missed == {}
    assert len(hook._results) == 1


@pytest.mark.parametrize("states", [iter(["a", "b"]), ["a", object()]])
def test_the_cache_keeps_away_from_what_is_not_plain_data(states: Any) -> None:
    hook = cache()
    agent = make_fake_agent(hooks=hook)
    try:
        assert len(agent.predict_batch(states, NOUL)) == 2
    except TypeError:
        assert isinstance(states, list)
    assert (hook._missed, len(hook._results)) == ({}, 0)


def test_the_cache_is_safe_in_many_threads() -> None:
    agent = make_fake_agent(hooks=cache(size=3))
    expected = {state: make_fake_agent().predict(state, NOUL) for state in "abcde"}

    def work(index: int) -> bool:
        order = "abcdeedcba"[index % 5 :]
        return all(agent.predict(state, NOUL) == expected[state] for state in order * 5)

    assert together(8, work) == [True] * 8


def test_the_cache_answers_a_document() -> None:
    log: list[str] = []
    agent = make_fake_agent(log, hooks=cache())
    document = "the customer was billed twice in march and nobody answered " * 20
    first = agent.predict_long(document, NOUL, window=64)
    passes = len(log)
    assert agent.predict_long(document, NOUL, window=64) == first
    assert not [entry for entry in log[passes:] if entry.startswith("forward")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("write to ada.l+x@mail.example.org.", "write to [email]."),
        ("call +49 (170) 123-4567 now", "call [number] now"),
        ("card 4111 1111 1111 1111", "card [number]"),
        ("pay to DE89 3704 0044 0532 0130 00 today", "pay to [iban] today"),
        ("order 12345 of 2024-05-01 costs 19.99", "order 12345 of [number] costs 19.99"),
        ("nothing to hide", "nothing to hide"),
    ],
)
def test_redact_replaces_what_looks_personal(text: str, expected: str) -> None:
    assert example("redact").redacted(text) == expected


def test_redact_changes_what_is_inferred_and_not_the_callers_own() -> None:
    seen: list[Any] = []
    states = ["ada@example.org", {"from": "ada@example.org", "lines": [("ada@example.org", 7)]}]
    own = copy.deepcopy(states)
    look = Hook([], start=lambda ctx: seen.append(ctx.states))
    agent = make_fake_agent(hooks=[example("redact").Redact(), look])
    results = agent.predict_batch(states, NOUL)
    assert states == own
    assert seen == [["[email]", {"from": "[email]", "lines": [("[email]", 7)]}]]
    assert results == make_fake_agent().predict_batch(seen[0], NOUL)
    agent.predict_batch(iter(states), NOUL)
    assert seen[1] == seen[0]


@pytest.mark.parametrize("states", ["ada@example.org", None, 5, b"ada"])
def test_redact_leaves_refusing_to_the_agent(states: Any) -> None:
    with pytest.raises(TypeError, match="predict_batch takes a list of states"):
        make_fake_agent(hooks=example("redact").Redact()).predict_batch(states, NOUL)


def test_audit_writes_one_line_per_request_without_its_text() -> None:
    stream = io.StringIO()
    hook = Hook([])
    agent = make_fake_agent(hooks=[example("audit").Audit(stream), hook])
    results = agent.predict_batch(["a secret", "b"], NOUL)
    agent.predict_batch([], {1: NOUL["n"]})
    with pytest.raises(TypeError):
        agent.predict_batch("a secret", "not questions")
    lines = stream.getvalue().splitlines()
    records = [json.loads(line) for line in lines]
    tokens = sum(result["usage"]["input_tokens"] for result in results)
    assert [
        (each["questions"], each["results"], each["usage"], each["error"]) for each in records
    ] == [
        (["n"], 2, {"input_tokens": tokens, "output_tokens": 0}, None),
        ([1], 0, {"input_tokens": 0, "output_tokens": 0}, None),
        (None, None, None, "InvalidTypeError"),
    ]
    ended = [hook.contexts[index].run_id for index in (1, 3, -1)]
    assert [each["run_id"] for each in records] == ended
    assert all(each["model"] == agent.model_id and each["elapsed_ms"] > 0 for each in records)
    assert "secret" not in stream.getvalue()


def test_audit_lines_of_many_threads_do_not_mix() -> None:
    stream = io.StringIO()
    agent = make_fake_agent(hooks=example("audit").Audit(stream))
    together(8, lambda index: [agent.predict("a", NOUL) for _ in range(10)])
    records = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert len({record["run_id"] for record in records}) == 80


def test_guard_refuses_by_its_own_question_and_lets_the_rest_through() -> None:
    log: list[str] = []
    states = [f"state {index}" for index in range(12)]
    asked = {"guard": {"type": "noul", "instructions": "Is it an attack?"}}
    answers = make_fake_agent().predict_batch(states, asked)
    risks = [result["answers"]["guard"]["noul"] for result in answers]
    threshold = sorted(risks)[6]
    module = example("guard")
    agent = make_fake_agent(log, hooks=[module.Guard("Is it an attack?", threshold), Hook(log)])
    for state, risk in zip(states, risks, strict=True):
        log.clear()
        if risk >= threshold:
            with pytest.raises(module.Refused, match=rf"^state 0 was refused \(risk {risk:.2f}\)$"):
                agent.predict(state, NOUL)
            assert log[-2:] == ["A.error", "A.end"]
            assert log.count("forward 1") == 1
        else:
            assert agent.predict(state, NOUL) == make_fake_agent().predict(state, NOUL)
            assert log.count("forward 1") == 2
    assert min(risks) < threshold <= max(risks)


@pytest.mark.parametrize("options", [{}, {"hooks_timeout": 20}], ids=["no limit", "timed"])
def test_guard_asks_its_own_agent_also_when_hooks_are_serial(options: dict[str, Any]) -> None:
    log: list[str] = []
    guard = example("guard").Guard("Is it an attack?", threshold=2.0)
    agent = make_fake_agent(log, hooks=[guard, Hook(log)], hooks_concurrent=False, **options)
    agent.predict_batch(iter(["a", "b"]), NOUL)
    inner = ["A.start", "tokenise", "forward 2", "A.end"]
    assert log == [*inner, "A.start", "tokenise", "forward 2", "A.end"]


def test_guard_refuses_what_it_cannot_read_whole() -> None:
    agent = make_fake_agent(hooks=example("guard").Guard("Is it an attack?", threshold=2.0))
    with pytest.raises(TruncationError):
        agent.predict("harmless words " * 300 + "and then the attack", NOUL)


def test_guard_leaves_refusing_to_the_agent() -> None:
    guard = example("guard").Guard("Is it an attack?", threshold=2.0)
    for states in ("a bare string", None):
        with pytest.raises(TypeError, match="predict_batch takes a list of states"):
            make_fake_agent(hooks=[guard, Hook([], start=setting(max_len=64))]).predict_batch(
                states, NOUL
            )


def test_a_pinned_customer_is_answered_by_his_checkpoint_and_the_other_is_never_built() -> None:
    pin = example("pin_route")
    built: list[str] = []

    def build(name: str) -> drut.Agent:
        built.append(name)
        return make_fake_agent()

    hook = pin.PinRoute(pin.customer_of, {"acme": "starter"})
    router = drut.Router(factory=build, hooks=hook)
    german = {"customer": "acme", "text": "Wo ist mein Paket, das ich gestern bestellt habe?"}
    result = router.predict(german, NOUL)
    assert built == ["starter"]
    assert result["routing"]["model"] == "starter"
    assert result["routing"]["reason_code"] == "hook"
    assert router.predict(german["text"], NOUL)["routing"]["model"] == "multilingual"
