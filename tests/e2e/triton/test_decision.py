"""The decision model on the real server says what an agent in this process says."""

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

import drut
from e2e.triton.asking import (
    HURRY,
    PROTOCOLS,
    alike,
    ask,
    over_grpc,
    tensors,
    texts,
    together,
)
from tiny_checkpoint import ALL
from triton_helpers import some_batch
from triton_server import TritonServer

STATES: dict[str, Any] = {
    "text": "I was charged twice for the same invoice, please refund me today.",
    "empty": "",
    "scripts": "Η εφαρμογή κολλάει — приложение не работает 🙁",
    "object": {"subject": "refund", "messages": ["hello", {"from": "me", "n": 2}]},
    "list": [{"role": "user", "content": "it crashes"}, {"role": "agent", "content": "when?"}],
    "looks like JSON": "[see attachment] the total is {wrong}",
    "longer than the budget": "the invoice is wrong again " * 200,
}
WORDS = ["invoice", "refund", "late", "crash", "hello", "please"]
QUESTIONS: dict[str, Any] = {
    **ALL,
    "team of many": {
        "type": "choice",
        "instructions": {"task": "Which team?", "hint": "money goes to billing"},
        "criteria": {f"team {n}": f"topic number {n}" for n in range(9)},
        "option_order": [8, 7, 6, 5, 4, 3, 2, 1, 0],
    },
    "named": {
        "type": "noul",
        "instructions": "Done?",
        "labels": {"false": "open", "true": "closed"},
        "criteria": {"true": "all is well"},
    },
}


@pytest.fixture(scope="module")
def agents(served: Path) -> Iterator[dict[str, drut.Agent]]:
    opened = {
        name: drut.Agent(served / name, device="cpu", threads=1) for name in ("starter", "tiny")
    }
    yield opened
    for agent in opened.values():
        agent.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("model", ["starter", "tiny"])
def test_every_protocol_answers_every_type_as_in_process(
    protocol: str, model: str, triton: TritonServer, agents: dict[str, drut.Agent]
) -> None:
    state = STATES["text"]
    found = PROTOCOLS[protocol](triton, f"{model}_decision", state, QUESTIONS)
    alike(found, agents[model].predict(state, QUESTIONS))


@pytest.mark.parametrize("kind", STATES)
def test_states_of_every_kind_are_read_as_in_process(
    kind: str, triton: TritonServer, agents: dict[str, drut.Agent]
) -> None:
    state = STATES[kind]
    text = state if isinstance(state, str) else json.dumps(state, indent=1)
    found = over_grpc(triton, "tiny_decision", text, QUESTIONS)
    alike(found, agents["tiny"].predict(state, QUESTIONS))


@pytest.mark.parametrize(
    ("given", "state"),
    [
        ({"state_format": "json"}, "a text"),
        ({"state_format": "json"}, 12),
        ({"state_format": "text"}, '{"a": [1]}'),
    ],
)
def test_a_state_is_text_or_json_where_the_caller_says_so(
    given: dict[str, str],
    state: Any,
    triton: TritonServer,
    agents: dict[str, drut.Agent],
) -> None:
    text = state if given["state_format"] == "text" else json.dumps(state)
    found = over_grpc(triton, "tiny_decision", text, QUESTIONS, given)
    alike(found, agents["tiny"].predict(state, QUESTIONS))


def test_options_mean_what_they_mean_in_process(
    triton: TritonServer, agents: dict[str, drut.Agent]
) -> None:
    given = {
        "lang": "de",
        "max_len": 96,
        "head_max_len": 60,
        "min_confidence": {"noul:2": 0.9, "default": 0.2},
    }
    state = STATES["longer than the budget"]
    found = over_grpc(triton, "tiny_decision", state, ALL, given)
    expected = agents["tiny"].predict(state, ALL, **given)
    assert expected["usage"]["truncated"]
    assert {"passed", "abstained"} == {a["abstention"] for a in expected["answers"].values()}
    alike(found, expected)


def test_no_questions_have_no_answers(triton: TritonServer, agents: dict[str, drut.Agent]) -> None:
    alike(over_grpc(triton, "tiny_decision", "text", {}), agents["tiny"].predict("text", {}))


def test_one_request_may_hold_several_rows(
    triton: TritonServer, agents: dict[str, drut.Agent]
) -> None:
    asked = [("It crashes", HURRY), ("Refund me", ALL), ("", HURRY)]
    inputs = []
    for name, column in (("STATE", 0), ("QUESTIONS", 1)):
        values = [each[column] for each in asked]
        content = [v if isinstance(v, str) else json.dumps(v) for v in values]
        tensor = grpcclient.InferInput(name, [3, 1], "BYTES")
        tensor.set_data_from_numpy(np.array([[text.encode()] for text in content], np.object_))
        inputs.append(tensor)
    with grpcclient.InferenceServerClient(triton.grpc) as client:
        found = client.infer("tiny_decision", inputs).as_numpy("ANSWERS")
    assert found.shape == (3, 1)
    for text, (state, questions) in zip(found[:, 0], asked, strict=True):
        alike(json.loads(text), agents["tiny"].predict(state, questions))


FAULTS: dict[str, tuple[tuple[Any, ...], str]] = {
    "state not UTF-8": ((b"caf\xe9", HURRY), "STATE is not UTF-8 (byte 0xe9 at 3)"),
    "questions not UTF-8": (("x", b"\xff{}"), "QUESTIONS is not UTF-8"),
    "questions not JSON": (("x", "{urgent}"), "QUESTIONS is not JSON"),
    "questions no object": (("x", [1]), "questions must be a dict"),
    "questions too deep": (("x", "[" * 100_000), "QUESTIONS is not JSON"),
    "a name twice": (("x", '{"a": {}, "a": {}}'), "'a' is there twice"),
    "not a number": (("x", '{"a": NaN}'), "NaN is not a JSON number"),
    "unknown type": (("x", {"q": {"type": "nuol", "instructions": "?"}}), "did you mean 'noul'"),
    "a null state": (("null", HURRY, {"state_format": "json"}), "a state is None"),
    "unknown option": (("x", HURRY, {"language": "de"}), "unknown key 'language'"),
    "options no object": (("x", HURRY, [1]), "OPTIONS must be a JSON object"),
    "option of another type": (("x", HURRY, {"max_len": "9"}), "max_len must be an 'int'"),
    "state format": (("x", HURRY, {"state_format": "xml"}), "state_format must be"),
    "language": (("x", HURRY, {"lang": 1}), "lang must be a language code"),
    "confidence": (("x", HURRY, {"min_confidence": 2}), "number from 0 to 1"),
    "no room": (("x", ALL, {"max_len": 8}), "options fit"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_mistake_of_the_caller_is_told_as_such(fault: str, triton: TritonServer) -> None:
    given, message = FAULTS[fault]
    with pytest.raises(InferenceServerException) as caught:
        over_grpc(triton, "tiny_decision", *given)
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
    assert message in caught.value.message()


def test_over_http_it_is_a_400(triton: TritonServer) -> None:
    code, text = triton.status(
        "models/tiny_decision/generate", {"STATE": "x", "QUESTIONS": "nonsense"}
    )
    assert (code, "QUESTIONS is not JSON" in text) == (400, True)


def test_64_callers_of_mixed_lengths_share_passes_and_none_gets_anothers_answer(
    triton: TritonServer, agents: dict[str, drut.Agent]
) -> None:
    chance = random.Random(3)
    states = [" ".join(chance.choices(WORDS, k=chance.randint(1, 60))) for _ in range(64)]
    expected = agents["tiny"].predict_batch(states, ALL)
    before = triton.statistics("tiny")
    with grpcclient.InferenceServerClient(triton.grpc) as client:
        found = together([lambda s=state: ask(client, "tiny_decision", s, ALL) for state in states])
    after = triton.statistics("tiny")
    for one, other in zip(found, expected, strict=True):
        alike(one, other)
    assert after["rows"] - before["rows"] == 64 * len(ALL)
    assert (after["rows"] - before["rows"]) / (after["passes"] - before["passes"]) >= 8


@pytest.mark.parametrize("model", ["tiny", "tiny_decision"])
def test_requests_that_meet_others_do_not_wait_for_the_servers_poll(
    model: str, triton: TritonServer
) -> None:
    """With any bound of its queue, server 2.51 looks at it every half a second only."""
    seconds: list[float] = []
    with grpcclient.InferenceServerClient(triton.grpc) as client:
        inputs = tensors(some_batch(1)) if model == "tiny" else texts("x", HURRY, kind=grpcclient)

        def ask_some(callers: int) -> None:
            for _ in range(60 // callers):
                start = time.monotonic()
                client.infer(model, inputs)
                seconds.append(time.monotonic() - start)

        for callers in (2, 8):
            calls = [lambda count=callers: ask_some(count)] * callers
            assert together(calls) == [None] * callers
    assert sum(each > 0.4 for each in seconds) < 0.05 * len(seconds)


def test_a_faulty_request_among_good_ones_fails_alone(
    triton: TritonServer, agents: dict[str, drut.Agent]
) -> None:
    good = [("It crashes", ALL), ("Refund me", ALL)] * 8
    bad = [(b"\xff", ALL), ("x", "{"), ("x", {"q": 1})] * 2
    mixed: list[tuple[Any, Any]] = [*good, *bad]
    random.Random(1).shuffle(mixed)
    with grpcclient.InferenceServerClient(triton.grpc) as client:
        found = together(
            [lambda given=each: ask(client, "tiny_decision", *given) for each in mixed]
        )
    for given, result in zip(mixed, found, strict=True):
        if given in good:
            alike(result, agents["tiny"].predict(*given))
        else:
            assert result.status() == "StatusCode.INVALID_ARGUMENT"


def test_the_models_ids_travel_with_the_config(triton: TritonServer, served: Path) -> None:
    manifest = json.loads((served / "tiny" / "1" / "manifest.json").read_text(encoding="utf-8"))
    for model in ("tiny", "tiny_decision"):
        told = triton.call(f"models/{model}/config")["parameters"]
        assert told["tokenizer_sha256"]["string_value"] == manifest["tokenizer_sha256"]


def test_a_missing_input_is_refused_by_the_server(triton: TritonServer) -> None:
    (state, _) = texts("x", HURRY, kind=grpcclient)
    with grpcclient.InferenceServerClient(triton.grpc) as client:
        with pytest.raises(InferenceServerException, match="QUESTIONS"):
            client.infer("tiny_decision", [state])
