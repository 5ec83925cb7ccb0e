"""Agents on a real server answer like agents in this process."""

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import drut
from drut.aio import AsyncAgent
from drut.cli.main import main
from drut.errors import GraphContractError, RuntimeUnavailableError
from drut.loading import open_by_name
from lifecycle_helpers import wait_until
from tiny_checkpoint import ALL
from triton_server import TritonServer

STATES = [
    "Please refund me, I was charged twice!",
    "ok",
    "",
    {"subject": "App crashes", "body": "It crashes whenever I open the settings. " * 5},
    "My parcel is late. " * 30,
    ["first message", "second message"],
]
MIXED = ["word " * count for count in (1, 3, 9, 17, 30, 44, 71, 100)]
PROTOCOLS = ("http", "grpc")


def url_of(server: TritonServer, protocol: str) -> str:
    return server.url if protocol == "http" else f"grpc://{server.grpc}"


@pytest.fixture(scope="module")
def local() -> Iterator[drut.Agent]:
    with drut.load("starter", "cpu", threads=1) as agent:
        yield agent


@pytest.fixture(params=PROTOCOLS)
def remote(request: pytest.FixtureRequest, triton: TritonServer) -> Iterator[drut.Agent]:
    url = url_of(triton, request.param)
    with drut.load("starter", runtime="triton", url=url) as agent:
        yield agent


@pytest.fixture(scope="module")
def small_local(served: Path) -> Iterator[drut.Agent]:
    """The bundle whose graph costs nothing, for tests of many calls."""
    with drut.load("tiny", "cpu", threads=1, model_repository=served) as agent:
        yield agent


@pytest.fixture(params=PROTOCOLS)
def small_remote(
    request: pytest.FixtureRequest, triton: TritonServer, served: Path
) -> Iterator[drut.Agent]:
    url = url_of(triton, request.param)
    with drut.load("tiny", runtime="triton", url=url, model_repository=served) as agent:
        yield agent


def rounded(result: Any) -> Any:
    """A result whose numbers are coarse enough to be compared."""
    return json.loads(json.dumps(result), parse_float=lambda text: round(float(text), 3))


def test_every_type_of_question_is_answered_alike(local: drut.Agent, remote: drut.Agent) -> None:
    here = local.predict_batch(STATES, ALL)
    there = remote.predict_batch(STATES, ALL)
    for mine, theirs in zip(here, there, strict=True):
        assert mine["usage"] == theirs["usage"]
        for name, answer in mine["answers"].items():
            other = theirs["answers"][name]
            assert answer["type"] == other["type"]
            assert answer.get("choice") == other.get("choice")
            assert answer.get("noul", 0) == pytest.approx(other.get("noul", 0), abs=2e-4)
            assert answer.get("score", 0) == pytest.approx(other.get("score", 0), abs=1e-3)


def test_logits_differ_by_less_than_rounding(local: drut.Agent, remote: drut.Agent) -> None:
    here, there = local.logits(STATES, ALL), remote.logits(STATES, ALL)
    for name, values in here.items():
        assert abs(values - there[name]).max() < 1e-4


def test_a_long_state_and_a_single_one_are_answered_alike(
    local: drut.Agent, remote: drut.Agent
) -> None:
    text = "The invoice is wrong and nobody answers the phone. " * 80
    here, there = local.predict_long(text, ALL), remote.predict_long(text, ALL)
    assert here["usage"]["windows"] == there["usage"]["windows"] > 1
    assert rounded(here["answers"]["team"]["choice"]) == there["answers"]["team"]["choice"]
    assert local.predict("ok", ALL).keys() == remote.predict("ok", ALL).keys()


def test_the_agent_says_where_it_runs(remote: drut.Agent) -> None:
    info = remote.runtime.info
    assert (info.name, info.device, info.max_rows) == ("triton", "cpu", 64)
    assert info.details["tokenizer"] == "the same"
    assert info.details["model_version"] == "1"
    assert remote.describe()["runtime"] == "triton"


def test_sixty_four_callers_of_mixed_lengths_get_their_own_answers(
    small_local: drut.Agent, small_remote: drut.Agent
) -> None:
    wanted = [rounded(each["answers"]) for each in small_local.predict_batch(MIXED, ALL)]

    def ask(caller: int) -> list[bool]:
        places = [(caller + step) % len(MIXED) for step in range(3)]
        return [
            close(small_remote.predict(MIXED[place], ALL)["answers"], wanted[place])
            for place in places
        ]

    with ThreadPoolExecutor(64) as pool:
        assert all(all(each) for each in pool.map(ask, range(64)))


def close(found: Any, wanted: Any) -> bool:
    """Whether two JSON values are equal but for the last digit of their numbers."""
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(close(found[k], wanted[k]) for k in wanted)
    if isinstance(wanted, float):
        return abs(found - wanted) < 2e-3
    return bool(found == wanted)


def test_two_hundred_tasks_run_and_half_of_them_may_be_cancelled(
    small_local: drut.Agent, small_remote: drut.Agent
) -> None:
    wanted = [rounded(each["answers"]) for each in small_local.predict_batch(MIXED, ALL)]

    async def work() -> list[Any]:
        agent = AsyncAgent(small_remote)
        tasks = [
            asyncio.create_task(agent.predict(MIXED[index % len(MIXED)], ALL))
            for index in range(200)
        ]
        await asyncio.sleep(0)  # all have begun: as many as there are threads, the others wait
        for task in tasks[1::2]:
            task.cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = asyncio.run(work())
    for index, result in enumerate(results[::2]):
        assert close(result["answers"], wanted[2 * index % len(MIXED)])
    for index, result in enumerate(results[1::2]):
        place = (2 * index + 1) % len(MIXED)
        assert isinstance(result, asyncio.CancelledError) or close(result["answers"], wanted[place])
    assert sum(isinstance(each, asyncio.CancelledError) for each in results) > 50


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_is_left_after_close(triton: TritonServer, protocol: str) -> None:
    before = set(threading.enumerate())
    with drut.load("starter", runtime="triton", url=url_of(triton, protocol)) as agent:
        agent.predict("ok", ALL)
    wait_until(lambda: set(threading.enumerate()) <= before)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_another_models_tokenizer_is_refused(triton: TritonServer, protocol: str) -> None:
    options = {"runtime": "triton", "url": url_of(triton, protocol)}
    with pytest.raises(GraphContractError, match="tokenizer"):
        drut.load("starter", server_model="tiny", **options)
    with pytest.raises(GraphContractError, match="input_ids"):
        drut.load("starter", server_model="starter_decision", **options)
    with pytest.raises(RuntimeUnavailableError, match=r"does not serve model 'starter' version 9"):
        drut.load("starter", server_version=9, **options)


def test_a_checkpoint_without_a_graph_is_enough(triton: TritonServer) -> None:
    bundle = open_by_name("starter")
    thin = drut.open_checkpoint(bundle.directory)
    with drut.Agent(thin, runtime="triton", url=triton.url, server_model="starter") as agent:
        assert agent.predict("ok", ALL)["answers"].keys() == ALL.keys()


def test_the_command_line_asks_the_server(
    triton: TritonServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"grpc://{triton.grpc}"
    assert main(["predict", "--url", url, "--json", "--checkpoint", "starter", "refund me"]) == 0
    told = json.loads(capsys.readouterr().out)
    monkeypatch.setenv("DRUT_TRITON_URL", triton.url)
    command = ["predict", "--runtime", "triton", "--json", "--checkpoint", "starter", "refund me"]
    assert main(command) == 0
    assert close(json.loads(capsys.readouterr().out)["answers"], rounded(told["answers"]))


def test_the_doctor_compares_the_servers_models_with_the_bundles(
    triton: TritonServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from drut.cli.probe import DeviceCheck

    def attempt(directory: Any, device: str) -> tuple[DeviceCheck, list[str]]:
        return DeviceCheck(device, True, "fine"), ["CPUExecutionProvider"]

    monkeypatch.setattr("drut.cli.health.examine.__defaults__", (attempt,))
    main(["doctor", "--json", "--url", triton.url])
    server = json.loads(capsys.readouterr().out)["server"]
    models = {each["name"]: each for each in server["models"]}
    assert server["version"].startswith("2.")
    assert models["starter"]["fits"] is True
    assert models["tiny"]["fits"] is None
    assert main(["doctor", "--json", "--url", "http://127.0.0.1:9"]) == 1
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert any("127.0.0.1:9" in each["what"] for each in problems)


def test_one_client_survives_many_event_loops(small_remote: drut.Agent) -> None:
    async def once() -> Any:
        return await AsyncAgent(small_remote).predict("ok", ALL)

    first, second = asyncio.run(once()), asyncio.run(once())
    assert first["answers"] == second["answers"]


@pytest.mark.skipif(sys.platform != "linux", reason="counts files the Linux way")
def test_threads_that_come_and_go_leave_no_open_file(small_remote: drut.Agent) -> None:
    def files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    def burst() -> None:
        threads = [
            threading.Thread(target=small_remote.predict, args=("ok", ALL), daemon=True)
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    burst()
    before = files()
    for _ in range(4):
        burst()
    assert files() <= before + 8  # at most one kept connection per caller at a time
