"""What callers see of a server that is busy, slow, stopping, restarted or wrong."""

import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from e2e.triton.asking import HURRY, ask, over_grpc, texts, together
from triton_models import behave, edit_config, serve_puppet, wait_busy
from triton_server import TritonServer, triton_server

DECISION = "tiny_decision"


@pytest.fixture(scope="module")
def puppet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory whose graph does what it is told, with room for four in its queue."""
    model = serve_puppet(tmp_path_factory.mktemp("puppet"))
    for each in (model, model.with_name(DECISION)):
        edit_config(each, "max_queue_size: 256", "max_queue_size: 4")
        edit_config(each, "max_batch_size: 64", "max_batch_size: 1")
    text = (model / "config.pbtxt").read_text(encoding="utf-8")
    (model / "config.pbtxt").write_text(text[: text.index("model_warmup")], encoding="utf-8")
    return model


@pytest.fixture(scope="module")
def server(puppet: Path) -> Iterator[TritonServer]:
    with triton_server(puppet.parent) as running:
        yield running


@pytest.fixture(autouse=True)
def obedient(puppet: Path) -> Iterator[None]:
    behave(puppet)
    yield
    behave(puppet)


def status(exc: Any) -> tuple[str, str]:
    assert isinstance(exc, InferenceServerException), exc
    return exc.status(), exc.message()


def test_a_full_queue_refuses_at_once_and_answers_everybody_else(
    puppet: Path, server: TritonServer
) -> None:
    behave(puppet, seconds=0.3)
    with grpcclient.InferenceServerClient(server.grpc) as client:
        found = together([lambda: ask(client, DECISION, "x", HURRY)] * 16)
    refused = [each for each in found if isinstance(each, Exception)]
    assert 0 < len(refused) < 16
    assert {status(each)[0] for each in refused} == {"StatusCode.UNAVAILABLE"}
    assert {"maximum queue size" in status(each)[1] for each in refused} == {True}
    assert all("urgent" in each["answers"] for each in found if isinstance(each, dict))


def test_a_full_queue_is_503_over_http(puppet: Path, server: TritonServer) -> None:
    behave(puppet, seconds=0.3)
    body = {"STATE": "x", "QUESTIONS": json.dumps(HURRY)}
    found = together([lambda: server.status(f"models/{DECISION}/generate", body)] * 16)
    assert {code for code, _ in found} == {200, 503}


def test_a_timeout_is_kept_in_the_queue_and_in_the_pass(puppet: Path, server: TritonServer) -> None:
    behave(puppet, seconds=0.5)
    with grpcclient.InferenceServerClient(server.grpc) as client:
        calls = [lambda: ask(client, DECISION, "x", HURRY, timeout=200_000)] * 2
        found = together(calls)
    told = sorted(status(each)[1] for each in found)
    assert {status(each)[0] for each in found} == {"StatusCode.UNAVAILABLE"}
    assert "timeout" in told[0]
    assert "timeout" in told[1]


def test_a_timeout_that_is_long_enough_changes_nothing(puppet: Path, server: TritonServer) -> None:
    behave(puppet, seconds=0.2)
    assert over_grpc(server, DECISION, "x", HURRY, timeout=20_000_000)["answers"]


def test_a_cancelled_request_costs_no_pass(puppet: Path, server: TritonServer) -> None:
    behave(puppet, seconds=1.0)
    before = server.statistics("tiny")["rows"]
    done = threading.Event()
    errors: list[Any] = []

    def finished(result: Any, error: Any) -> None:
        errors.append(error)
        done.set()

    with grpcclient.InferenceServerClient(server.grpc) as client:
        first = threading.Thread(target=lambda: ask(client, DECISION, "x", HURRY))
        first.start()
        wait_busy(puppet)
        second = client.async_infer(DECISION, texts("y", HURRY, kind=grpcclient), finished)
        server.wait_waiting(DECISION, 1)
        second.cancel()
        assert done.wait(20)
        first.join()
        third = ask(client, DECISION, "z", HURRY)
    assert errors[0].status() == "StatusCode.CANCELLED"
    assert third["answers"]
    assert server.statistics("tiny")["rows"] == before + 2


def test_a_graph_that_fails_is_a_fault_of_the_server_and_passes(
    puppet: Path, server: TritonServer
) -> None:
    behave(puppet, fails=True)
    with pytest.raises(InferenceServerException) as caught:
        over_grpc(server, DECISION, "x", HURRY)
    assert caught.value.status() == "StatusCode.INTERNAL"
    assert "the puppet fails" in caught.value.message()
    behave(puppet)
    assert over_grpc(server, DECISION, "x", HURRY)["answers"]


def test_a_server_told_to_stop_finishes_its_pass_and_sends_the_others_away(
    tmp_path: Path,
) -> None:
    model = serve_puppet(tmp_path)
    found: list[Any] = []
    with triton_server(tmp_path, "--exit-timeout-secs=20") as server:
        behave(model, seconds=2.0)
        with grpcclient.InferenceServerClient(server.grpc) as client:
            first = threading.Thread(target=lambda: found.append(ask(client, DECISION, "x", HURRY)))
            first.start()
            wait_busy(model)
            calls = [lambda: ask(client, DECISION, "x", HURRY)] * 7
            others = threading.Thread(target=lambda: found.extend(together(calls)))
            others.start()
            server.wait_waiting(DECISION, 7)
            behave(model)
            server.terminate()
            first.join()
            others.join()
        assert server.process.wait(30) == 0
    assert found[0]["answers"]
    assert len(found) == 8
    assert {status(each)[0] for each in found[1:]} == {"StatusCode.UNAVAILABLE"}


def test_32_callers_with_one_question_each_fill_passes(tmp_path: Path) -> None:
    """What the server does not do by itself: it joins only neighbours of equal shape."""
    model = serve_puppet(tmp_path)
    chance = random.Random(5)
    words = ["invoice", "refund", "late", "crash", "hello", "please"]
    states = [" ".join(chance.choices(words, k=int(2 * 40 ** chance.random()))) for _ in range(96)]
    with triton_server(tmp_path) as server:
        behave(model, seconds=0.1)
        before = server.statistics("tiny")
        with grpcclient.InferenceServerClient(server.grpc) as client:

            def ask_three(number: int) -> None:
                for state in states[number::32]:
                    assert ask(client, DECISION, state, HURRY)["answers"]

            assert together([lambda n=number: ask_three(n) for number in range(32)]) == [None] * 32
        after = server.statistics("tiny")
    assert after["rows"] - before["rows"] == 96
    assert (after["rows"] - before["rows"]) / (after["passes"] - before["passes"]) >= 8


def test_a_poisoned_response_cache_is_no_answer(tmp_path: Path) -> None:
    model = serve_puppet(tmp_path)
    edit_config(model, "max_batch_size: 64", "max_batch_size: 64\nresponse_cache { enable: true }")
    with triton_server(tmp_path, "--cache-config=local,size=4194304") as server:
        behave(model, fails=True)
        for _ in range(3):
            with pytest.raises(InferenceServerException) as caught:
                over_grpc(server, DECISION, "x", HURRY)
            assert caught.value.status() == "StatusCode.INTERNAL"
        assert "without its output" in caught.value.message()
