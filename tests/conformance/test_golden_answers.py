"""Every golden call: what the model is fed, what it returns, and the whole answer."""

import warnings
from typing import Any

import numpy as np
import pytest

import drut
from conformance.golden_compare import differences
from conformance.recording import RecordingRuntime
from drut.errors import DrutError, InvalidRequestError
from golden_values import golden_cases, restore

LOGITS = 1e-4
"""Largest difference of a logit; what it comes from is in docs/decisions/0005-tolerances.md."""

STRICTER = {
    "extra-keys": "an unknown key of a question is refused unless unknown_keys='ignore'",
    "bool-batch-size": "True is no batch size",
    "max-len-small/True": "True is no token budget",
}
"""Calls that upstream accepts, or refuses later, and why drut refuses them."""

CALLS = [
    case
    for name in ("single.json", "batch.json", "truncation.json", "long.json")
    for case in golden_cases(name)
]
ERRORS = golden_cases("errors.json")


def call(agent: drut.Agent, case: dict[str, Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # windows cut to the room; see below
        return getattr(agent, case["call"])(*restore(case["args"]), **restore(case["kwargs"]))


@pytest.mark.parametrize("case", CALLS, ids=[case["id"] for case in CALLS])
def test_answer_equals_upstream(
    case: dict[str, Any], golden_agent: dict[str, tuple[drut.Agent, RecordingRuntime]]
) -> None:
    agent, runtime = golden_agent[case["checkpoint"]]
    runtime.clear()
    if case["id"] in STRICTER:
        with pytest.raises(InvalidRequestError):
            call(agent, case)
        return
    if "error" in case:
        check_error(agent, case)
        return
    result = call(agent, case)
    assert list(differences(result, restore(case["result"]))) == []
    if "forward_shapes" in case:
        assert runtime.shapes() == case["forward_shapes"]
    for batch, logits, forward in zip(
        runtime.batches, runtime.logits, case.get("forwards", ()), strict=False
    ):
        assert [*batch.input_ids.shape, batch.marker_pos.shape[1]] == forward["shape"]
        for index, row in enumerate(forward["rows"]):
            tokens, options = len(row["ids"]), len(row["markers"])
            assert batch.input_ids[index, :tokens].tolist() == row["ids"]
            assert batch.attention_mask[index].sum() == tokens
            assert batch.marker_pos[index, :options].tolist() == row["markers"]
            assert batch.marker_mask[index].sum() == options
            assert batch.qtype[index] == row["qtype"]
            assert np.abs(logits.options[index, :options] - row["logits"]).max() < LOGITS
            assert np.abs(logits.actions[index] - row["act_logits"]).max() < LOGITS
    if "forwards" in case:
        assert len(runtime.batches) == len(case["forwards"])


@pytest.mark.parametrize("case", ERRORS, ids=[case["id"] for case in ERRORS])
def test_error_equals_upstream(
    case: dict[str, Any], golden_agent: dict[str, tuple[drut.Agent, RecordingRuntime]]
) -> None:
    agent, runtime = golden_agent[case["checkpoint"]]
    runtime.clear()
    check_error(agent, case)
    assert runtime.batches == []


def check_error(agent: drut.Agent, case: dict[str, Any]) -> None:
    """The error is typed, derives from upstream's type, and names what upstream's names."""
    with pytest.raises(DrutError) as caught:
        call(agent, case)
    expected = case["error"]["type"]
    assert expected in {base.__name__ for base in type(caught.value).__mro__}
    if case["id"] in STRICTER:
        return
    message = str(caught.value)
    names = [mention for mention in case["error"]["mentions"] if mention.startswith("'")]
    assert [name for name in names if name not in message] == []


def test_unknown_keys_can_be_ignored(
    golden_agent: dict[str, tuple[drut.Agent, RecordingRuntime]],
) -> None:
    case = next(case for case in CALLS if case["id"] == "extra-keys")
    agent, runtime = golden_agent[case["checkpoint"]]
    with pytest.warns(RuntimeWarning, match="temperatures"):  # golden ones are clamped
        lenient = drut.Agent(agent.checkpoint, runtime=runtime, unknown_keys="ignore")
    assert list(differences(call(lenient, case), restore(case["result"]))) == []
