"""The lifecycle page, Agent.system_one and predict: requirements L35 to L39."""

from collections.abc import Callable
from typing import Any

import pytest

import drut
from drut.tensors import Batch
from lifecycle_helpers import (
    NOUL,
    Hook,
    cached,
    context_chain,
    every_agent,
    noting,
    raising,
    setting,
    skipping,
)

MakeAgent = Callable[..., drut.Agent]
pytestmark = [every_agent, pytest.mark.parametrize("method", ["system_one", "predict"])]

STATES = [
    "the customer was billed twice",
    {"subject": "cancel", "lines": [1, 2.5, None, True]},
    [{"role": "user", "content": "the app crashes on start"}],
    "",
    7,
    0,
    False,
]


@pytest.mark.parametrize("state", STATES, ids=repr)
def test_L035_L038_equals_predict_batch_of_one_state(
    make_agent: MakeAgent, method: str, state: Any
) -> None:
    agent = make_agent()
    options: dict[str, Any] = {"lang": "en", "max_len": 64, "min_confidence": 0.9}
    result = getattr(agent, method)(state, NOUL, **options)
    assert result == agent.predict_batch([state], NOUL, **options)[0]
    assert result["answers"]["n"]["abstention"] in ("passed", "abstained")


@pytest.mark.parametrize("state", STATES, ids=repr)
def test_L036_the_contexts_states_are_the_one_state(
    make_agent: MakeAgent, method: str, state: Any
) -> None:
    seen: list[Any] = []
    agent = make_agent(hooks=Hook([], start=noting(seen, "states"), end=noting(seen, "states")))
    getattr(agent, method)(state, NOUL)
    assert seen == [([state],), ([state],)]
    assert seen[0][0][0] is state


def test_L037_per_call_hook_arguments_work_as_on_predict_batch(
    make_agent: MakeAgent, method: str
) -> None:
    log: list[str] = []
    agent = make_agent(log, hooks=Hook(log, "A"))
    getattr(agent, method)(
        "a",
        NOUL,
        hooks=[Hook(log, "B"), Hook(log, "C")],
        on_predict_start=[lambda ctx: log.append("first"), lambda ctx: log.append("second")],
        on_predict_end=lambda ctx: log.append("last"),
    )
    starts = ["A.start", "B.start", "C.start", "first", "second"]
    assert log == [*starts, "tokenise", "forward 1", "A.end", "B.end", "C.end", "last"]


def test_L037_per_call_hooks_raise_and_hooks_timeout(make_agent: MakeAgent, method: str) -> None:
    log: list[str] = []
    agent = make_agent(log)
    call = getattr(agent, method)
    faulty = Hook(log, start=raising(ValueError("boom")))
    with pytest.warns(RuntimeWarning, match=r"Hook\.on_predict_start failed: ValueError: boom"):
        call("a", NOUL, hooks=faulty, hooks_raise=False)
    with pytest.raises(ValueError, match="boom"):
        call("a", NOUL, hooks=faulty, hooks_raise=True)
    with pytest.raises(ValueError, match="hooks_timeout must be a positive"):
        call("a", NOUL, hooks=faulty, hooks_timeout=0)
    assert log == [
        *("A.start", "tokenise", "forward 1", "A.end"),
        *("A.start", "A.error", "A.end"),
    ]


@pytest.mark.parametrize("stage", ["start", "validation", "forward", "malformed"])
@pytest.mark.parametrize("exc", [RuntimeError("boom"), KeyboardInterrupt()], ids=repr)
def test_L039_the_failure_path_is_that_of_predict_batch(
    make_agent: MakeAgent, method: str, stage: str, exc: BaseException
) -> None:
    def before(batch: Batch) -> None:
        if stage == "forward":
            raise exc

    log: list[str] = []
    seen: list[Any] = []
    mistake = ZeroDivisionError()
    note = noting(seen, "error", "results", "usage")
    start = {
        "start": raising(exc),
        "validation": setting(questions="nonsense"),
        "malformed": skipping([["not a result"]]),
    }.get(stage, noting([], "states"))
    hooks = [
        Hook(log, "A", start=start, error=note, end=note),
        Hook(log, "B", end=raising(mistake)),
    ]
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - looked at below
        getattr(make_agent(before=before, hooks=hooks), method)("a", NOUL)
    failure = caught.value
    assert isinstance(failure, type(exc) if stage in ("start", "forward") else TypeError)
    starts = ["A.start"] if stage == "start" else ["A.start", "B.start"]
    assert log == [*starts, "A.error", "B.error", "A.end", "B.end"]
    left = [["not a result"]] if stage == "malformed" else None
    assert seen == [(failure, left, None)] * 2
    assert context_chain(failure)[:2] == [failure, mistake]


def test_L035_indexes_what_the_end_hooks_left(make_agent: MakeAgent, method: str) -> None:
    agent = make_agent()
    left = [cached(0.1), cached(0.2)]
    assert getattr(agent, method)("a", NOUL, hooks=Hook([], end=setting(results=left))) is left[0]
    with pytest.raises(IndexError):
        getattr(agent, method)("a", NOUL, hooks=Hook([], end=setting(results=[])))
