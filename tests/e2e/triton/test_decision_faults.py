"""What callers see of a server that is busy, slow, stopping, restarted or wrong."""

import json
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from e2e.triton.asking import HURRY, ask, over_grpc, texts, together
from e2e.triton.conftest import ROOM
from lifecycle_helpers import wait_until
from triton_models import behave, serve_puppet, wait_busy
from triton_server import TritonServer, triton_server

DECISION = "tiny_decision"


@pytest.fixture
def server(puppets: TritonServer) -> TritonServer:
    return puppets


@pytest.fixture
def puppet(puppets: TritonServer) -> Path:
    """The model directory of a graph that does what it is told."""
    return puppets.repository / "tiny"


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
    assert {"maximum queue size of 4" in status(each)[1] for each in refused} == {True}
    assert len(refused) >= 16 - 2 * ROOM
    assert all("urgent" in each["answers"] for each in found if isinstance(each, dict))


def test_a_full_queue_is_503_over_http(puppet: Path, server: TritonServer) -> None:
    behave(puppet, seconds=0.3)
    given = {"STATE": "x", "QUESTIONS": json.dumps(HURRY)}
    inputs = [
        {"name": name, "shape": [1, 1], "datatype": "BYTES", "data": [text]}
        for name, text in given.items()
    ]
    calls = [lambda: server.status(f"models/{DECISION}/infer", {"inputs": inputs})] * 16
    assert {code for code, _ in together(calls)} == {200, 503}


def test_the_servers_metrics_say_how_many_requests_are_held(
    puppet: Path, server: TritonServer
) -> None:
    behave(puppet, seconds=1.0)
    with grpcclient.InferenceServerClient(server.grpc) as client:
        calls = [lambda: ask(client, DECISION, "x", HURRY)] * 3
        asking = threading.Thread(target=together, args=(calls,))
        asking.start()
        wait_until(lambda: server.held(DECISION) == 3)
        asking.join()
        wait_until(lambda: server.held(DECISION) == 0)


def test_generate_tells_a_full_queue_by_its_words(puppet: Path, server: TritonServer) -> None:
    """Server 2.51 has one code for every error that a model answers there."""
    behave(puppet, seconds=0.3)
    given = {"STATE": "x", "QUESTIONS": json.dumps(HURRY)}
    found = together([lambda: server.status(f"models/{DECISION}/generate", given)] * 16)
    refused = [text for code, text in found if code != 200]
    assert 0 < len(refused) < 16
    assert all("maximum queue size" in text for text in refused)


def test_a_timeout_is_kept_to_the_moment_in_the_line_and_in_the_pass(
    puppet: Path, server: TritonServer
) -> None:
    behave(puppet, seconds=1.5)
    start = time.monotonic()
    with grpcclient.InferenceServerClient(server.grpc) as client:
        calls = [lambda: ask(client, DECISION, "x", HURRY, timeout=200_000)] * 2
        found = together(calls)
    assert time.monotonic() - start < 1.4, "they did not wait for the pass"
    assert {status(each)[0] for each in found} == {"StatusCode.UNAVAILABLE"}
    assert all("timeout passed" in status(each)[1] for each in found)


def test_a_timeout_that_is_long_enough_changes_nothing(puppet: Path, server: TritonServer) -> None:
    behave(puppet, seconds=0.2)
    assert over_grpc(server, DECISION, "x", HURRY, timeout=20_000_000)["answers"]


def test_a_cancelled_request_costs_no_pass(puppet: Path, server: TritonServer) -> None:
    behave(puppet, seconds=1.0)
    before, taken = server.statistics("tiny")["rows"], server.statistics(DECISION)["rows"]
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
        server.wait_taken(DECISION, taken + 2)
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
            server.wait_taken(DECISION, 8)
            behave(model)
            server.terminate()
            first.join()
            others.join()
        assert server.process.wait(30) == 0
    assert found[0]["answers"]
    assert len(found) == 8
    assert {status(each)[0] for each in found[1:]} == {"StatusCode.UNAVAILABLE"}


def test_32_callers_with_one_question_each_fill_passes(server: TritonServer) -> None:
    """What the server does not do by itself: it joins only neighbours of equal shape."""
    model = server.repository / "wide"
    chance = random.Random(5)
    words = ["invoice", "refund", "late", "crash", "hello", "please"]
    states = [" ".join(chance.choices(words, k=int(2 * 40 ** chance.random()))) for _ in range(160)]
    behave(model, seconds=0.05)
    before = server.statistics("wide")
    with grpcclient.InferenceServerClient(server.grpc) as client:

        def ask_five(number: int) -> None:
            for state in states[number::32]:
                assert ask(client, "wide_decision", state, HURRY)["answers"]

        assert together([lambda n=number: ask_five(n) for number in range(32)]) == [None] * 32
    after = server.statistics("wide")
    assert after["rows"] - before["rows"] == 160
    assert (after["rows"] - before["rows"]) / (after["passes"] - before["passes"]) >= 8


def test_a_poisoned_response_cache_is_no_answer(server: TritonServer) -> None:
    behave(server.repository / "cached", fails=True)
    for _ in range(3):
        with pytest.raises(InferenceServerException) as caught:
            over_grpc(server, "cached_decision", "x", HURRY)
        assert caught.value.status() == "StatusCode.INTERNAL"
    behave(server.repository / "cached")
    assert "without its output" in caught.value.message()
