"""Between Triton's Python backend and the answers: every request gets one response."""

import asyncio
import json
import sys
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drut.runtimes.fake import rising_logits
from drut.tensors import Batch
from drut_export.pbtxt import render_decision_pbtxt
from lifecycle_helpers import wait_until
from tiny_checkpoint import ALL, NOUL, text_of
from triton_models import serve_bundle
from unit.triton_model import fake_pb_utils as fake

Server = Callable[[Any], Any]


LOADED: list[Any] = []


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A loaded decision model whose graph gives rising logits."""
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", fake)
    monkeypatch.delitem(sys.modules, "drut.triton_model.model", raising=False)
    monkeypatch.setattr(fake.Logger, "lines", [])
    fake.SERVER.asked = []
    fake.SERVER.answer = rising
    serve_bundle(tmp_path)
    yield load(tmp_path / "tiny_decision", target="cuda")
    while LOADED:
        LOADED.pop().finalize()


def load(directory: Path, **changes: str | None) -> Any:
    made = import_module("drut.triton_model.model").TritonPythonModel()
    made.initialize(arguments(directory, **changes))
    LOADED.append(made)
    return made


def arguments(directory: Path, **changes: str | None) -> dict[str, str]:
    given: dict[str, str | None] = {"graph": "tiny", "bundle_version": "1", **changes}
    parameters = {key: {"string_value": value} for key, value in given.items() if value is not None}
    return {
        "model_name": directory.name,
        "model_version": "1",
        "model_repository": str(directory),
        "model_config": json.dumps({"parameters": parameters}),
    }


def rising(request: Any) -> Any:
    fake.SERVER.asked.append(request)
    feed = {tensor.name: tensor.array for tensor in request.inputs}
    batch = Batch(**{**feed, "qtype": feed["qtype"][:, 0]})
    options, actions = rising_logits(batch)
    return fake.InferenceResponse(
        [fake.Tensor("logits", options), fake.Tensor("act_logits", actions)]
    )


def request(state: Any, questions: Any = NOUL, options: Any = None, **more: Any) -> Any:
    given = {"STATE": state, "QUESTIONS": questions, "OPTIONS": options}
    tensors = []
    for name, value in given.items():
        if value is not None:
            text = value if isinstance(value, str | bytes) else json.dumps(value)
            content = text if isinstance(text, bytes) else text.encode()
            tensors.append(fake.Tensor(name, np.array([[content]], np.object_)))
    return fake.Request(tensors, **more)


def execute(model: Any, *requests: Any) -> list[Any]:
    assert model.execute(list(requests)) == [None] * len(requests)
    responses = [each.sender.responses.get(timeout=10) for each in requests]
    assert all(each.sender.responses.empty() for each in requests)
    return responses


def answer(response: Any) -> Any:
    assert not response.has_error(), response.error().message()
    (tensor,) = response.tensors
    assert (tensor.name, tensor.array.shape) == ("ANSWERS", (1, 1))
    return json.loads(tensor.array.item())


def error(response: Any) -> tuple[int, str]:
    assert response.has_error()
    return response.error().code(), response.error().message()


def test_one_response_for_every_request_in_their_order(model: Any) -> None:
    good, bad, late, gone, last = execute(
        model,
        request("It crashes", ALL),
        request(b"\xff"),
        request("x", microseconds=1),
        request("x", cancelled=True),
        request("Refund", NOUL),
    )
    assert list(answer(good)["answers"]) == list(ALL)
    assert error(bad) == (fake.TritonError.INVALID_ARG, "STATE is not UTF-8 (byte 0xff at 0)")
    assert error(late)[0] == fake.TritonError.UNAVAILABLE
    assert error(gone) == (fake.TritonError.CANCELLED, "the caller cancelled the request")
    assert list(answer(last)["answers"]) == list(NOUL)
    assert len(fake.SERVER.asked) == 1, "one pass for all of them"


def test_the_graph_is_asked_in_its_own_terms(model: Any) -> None:
    execute(model, request("It crashes", ALL, microseconds=9_000_000))
    (asked,) = fake.SERVER.asked
    assert (asked.model_name, asked.model_version) == ("tiny", 1)
    assert {tensor.name: tensor.array.ndim for tensor in asked.inputs} == dict.fromkeys(
        ("input_ids", "attention_mask", "marker_pos", "marker_mask", "qtype"), 2
    )
    assert asked.requested_output_names == ["logits", "act_logits"]
    assert 8_000_000 < asked.timeout <= 9_000_000
    assert asked.preferred_memory == fake.PreferredMemory(fake.TRITONSERVER_MEMORY_CPU, 0)


@pytest.mark.parametrize(
    ("given", "passes"),
    [
        ({"target": "cuda"}, 1),
        ({"target": "cuda", "max_padding": "0"}, 2),
        ({"target": "cpu", "max_padding": "1"}, 1),
        ({"target": "cpu", "max_padding": "0.0"}, 2),
    ],
)
def test_how_full_passes_are_follows_the_config(
    given: dict[str, Any], passes: int, model: Any, tmp_path: Path
) -> None:
    made = load(tmp_path / "tiny_decision", **given)
    execute(made, request("a"), request(text_of(150)))
    assert len(fake.SERVER.asked) == passes


def test_rows_that_are_not_batch_invariant_run_alone(model: Any, tmp_path: Path) -> None:
    serve_bundle(tmp_path, "alone", batch_invariant=False)
    made = load(tmp_path / "alone_decision", graph="alone", target="cuda")
    execute(made, request("a", ALL), request("b"))
    assert [len(each.inputs[0].array) for each in fake.SERVER.asked] == [1] * 4


def test_a_request_too_many_is_refused_before_any_work(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = load(tmp_path / "tiny_decision", max_queue="3")
    go, begun = threading.Event(), threading.Event()
    encoded = []
    prepare = made._answerer.prepare
    monkeypatch.setattr(
        made._answerer, "prepare", lambda *given: encoded.append(given) or prepare(*given)
    )

    async def held(batch: Batch, seconds: float | None) -> Any:
        begun.set()
        while not go.is_set():
            await asyncio.sleep(0.002)
        return made._graph.forward(batch)

    made._line._forward = held
    first = [request(str(n)) for n in range(3)]
    made.execute(first)
    assert begun.wait(10)
    wait_until(lambda: fake.MetricFamily.told.get("tiny_decision") == 3)
    (refused,) = execute(made, request("too many"))
    assert error(refused)[0] == fake.TritonError.UNAVAILABLE
    assert "maximum queue size of 3 requests" in error(refused)[1]
    assert len(encoded) == 3
    go.set()
    assert all(answer(each.sender.responses.get(timeout=10))["answers"] for each in first)
    bad = execute(made, *[request(b"\xff") for _ in range(5)])
    assert {error(each)[0] for each in bad} == {fake.TritonError.INVALID_ARG}, "places came back"
    assert answer(execute(made, request("x"))[0])["answers"]
    wait_until(lambda: fake.MetricFamily.told["tiny_decision"] == 0)


def test_a_server_without_metrics_is_served_too(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake.MetricFamily, "broken", True)
    made = load(tmp_path / "tiny_decision")
    assert answer(execute(made, request("x"))[0])["answers"]
    assert any("drut_open_requests is not told: metrics are off" in e for e in fake.Logger.lines)


def test_nothing_is_left_of_a_model_that_was_unloaded(model: Any, tmp_path: Path) -> None:
    before = set(threading.enumerate())
    made = load(tmp_path / "tiny_decision")
    execute(made, request("x"))
    LOADED.remove(made)
    made.finalize()
    assert set(threading.enumerate()) <= before


def test_a_response_that_cannot_be_sent_is_logged_and_the_others_are(model: Any) -> None:
    lost, kept = request("x"), request("y")
    lost.sender.closed = True
    model.execute([lost, kept])
    assert answer(kept.sender.responses.get(timeout=10))["answers"]
    assert any("AssertionError" in line for line in fake.Logger.lines)


def test_without_a_timeout_none_is_sent(model: Any) -> None:
    execute(model, request("It crashes"))
    assert fake.SERVER.asked[0].timeout == 0


UNAVAILABLE, INTERNAL = fake.TritonError.UNAVAILABLE, fake.TritonError.INTERNAL


@pytest.mark.parametrize(
    ("said", "code", "expected"),
    [
        ("Exceeds maximum queue size", UNAVAILABLE, UNAVAILABLE),
        ("Request timeout expired", UNAVAILABLE, UNAVAILABLE),
        ("Server is stopping", UNAVAILABLE, UNAVAILABLE),
        ("Model 'tiny' is not ready.", INTERNAL, UNAVAILABLE),
        ("Error when running inference: Server not ready", INTERNAL, UNAVAILABLE),
        ("unknown model 'tiny'", fake.TritonError.NOT_FOUND, UNAVAILABLE),
        ("onnx runtime error 2: bad shape", INTERNAL, INTERNAL),
    ],
)
def test_the_graphs_errors_keep_their_meaning(
    said: str, code: int, expected: int, model: Any
) -> None:
    fake.SERVER.answer = lambda _: fake.InferenceResponse(error=fake.TritonError(said, code))
    (found,) = execute(model, request("x"))
    assert error(found) == (expected, f"tiny: {said}")


@pytest.mark.parametrize("kept", [[], ["logits"], ["act_logits"]])
def test_a_success_without_its_outputs_is_no_success(kept: list[str], model: Any) -> None:
    def cut(asked: Any) -> Any:
        whole = rising(asked)
        return fake.InferenceResponse([each for each in whole.tensors if each.name in kept])

    fake.SERVER.answer = cut
    (found,) = execute(model, request("x"))
    assert error(found)[0] == INTERNAL
    assert "without its output" in error(found)[1]


def test_a_bug_is_logged_told_without_its_inside_and_hangs_nobody(model: Any) -> None:
    def broken(asked: Any) -> Any:
        raise KeyError("secret")

    fake.SERVER.answer = broken
    found = execute(model, request("x"), request(b"\xff"), request("y"))
    assert [error(each)[0] for each in found] == [INTERNAL, fake.TritonError.INVALID_ARG, INTERNAL]
    assert "secret" not in error(found[0])[1]
    assert any("KeyError: 'secret'" in line for line in fake.Logger.lines)


def test_a_request_without_its_inputs_is_answered_too(model: Any) -> None:
    (found,) = execute(model, fake.Request([fake.Tensor("STATE", np.array([[b"x"]], np.object_))]))
    assert found.has_error()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"graph": None}, "lacks the parameter 'graph'"),
        ({"bundle_version": None}, "lacks the parameter 'bundle_version'"),
        ({"bundle_version": "7"}, "no bundle of version 7"),
        ({"graph": "other"}, "other"),
        ({"tokenizer_sha256": "00"}, "the config names the tokenizer 00"),
        ({"max_padding": "half"}, "max_padding must be a number from 0 to 1, got 'half'"),
        ({"max_padding": "1.5"}, "max_padding must be a number from 0 to 1"),
        ({"max_queue": "0"}, "max_queue must be a positive whole number, got '0'"),
        ({"max_queue": "many"}, "max_queue must be a positive whole number"),
    ],
)
def test_a_model_that_does_not_fit_its_bundle_is_not_loaded(
    changes: dict[str, Any], message: str, model: Any, tmp_path: Path
) -> None:
    with pytest.raises(fake.TritonModelException, match=message) as caught:
        load(tmp_path / "tiny_decision", **changes)
    assert str(caught.value).startswith("tiny_decision: ")


def test_the_bundle_may_lie_elsewhere(model: Any, tmp_path: Path) -> None:
    """Where Triton copies each model out of a store of its own, there is nothing beside it."""
    place = tmp_path / "copied" / "tiny_decision"
    made = load(place, bundle=str(tmp_path / "tiny"))
    assert answer(execute(made, request("x"))[0])["answers"]


def test_what_drut_writes_into_the_config_is_what_the_model_reads(
    model: Any, tmp_path: Path
) -> None:
    text = render_decision_pbtxt("tiny_decision", "tiny", {"version": 1})
    for key in ("graph", "bundle_version", "target", "max_queue"):
        assert f'key: "{key}"' in text


def test_the_graph_can_also_be_asked_and_waited_for(model: Any) -> None:
    import drut.triton_model.model as loaded

    feed = Batch(
        input_ids=np.ones((1, 3), np.int64),
        attention_mask=np.ones((1, 3), np.int64),
        marker_pos=np.zeros((1, 2), np.int64),
        marker_mask=np.ones((1, 2), np.bool_),
        qtype=np.zeros(1, np.int64),
    )
    graph = model._graph
    assert isinstance(graph, loaded.Graph)
    assert graph.forward(feed).options.tolist() == [[0.0, 1.0]]
    assert graph.info.name == "triton"
    graph.close()
