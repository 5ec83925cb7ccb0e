"""A real server that is busy, changes, or dies, and the agents that ask it."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

import drut
from drut.errors import (
    DeadlineExceededError,
    ForwardError,
    GraphContractError,
    OverloadedError,
    RuntimeUnavailableError,
    ServerFaultError,
    ServerNotReadyError,
    ServerUnreachableError,
)
from drut.loading import open_by_name
from drut.runtimes.triton import TritonRuntime
from drut.runtimes.triton_options import TritonOptions
from drut.tensors import Batch
from e2e.triton.asking import tensors
from lifecycle_helpers import wait_until
from tiny_checkpoint import ALL
from triton_helpers import some_batch
from triton_models import behave, edit_config, serve_bundle, wait_busy
from triton_server import TritonServer, triton_server

PROTOCOLS = ("http", "grpc")
both = pytest.mark.parametrize("protocol", PROTOCOLS)


def url_of(server: TritonServer, protocol: str) -> str:
    return server.url if protocol == "http" else f"grpc://{server.grpc}"


def open_tiny(
    server: TritonServer, protocol: str, name: str = "tiny", **options: Any
) -> TritonRuntime:
    checkpoint = open_by_name(name, server.repository, version=options.pop("bundle", None))
    return TritonRuntime(TritonOptions(url_of(server, protocol), **options), checkpoint)


class Callers:
    """Threads that ask until they are told to stop, and note every outcome."""

    def __init__(self, ask: Callable[[int], str], count: int = 8) -> None:
        self.outcomes: Counter[str] = Counter()
        self.asked = 0
        self._ask = ask
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(i,), daemon=True) for i in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> "Callers":
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()  # also where the test failed

    def wait_for(self, outcome: str, more: int) -> None:
        """Wait until so many more calls have ended this way."""
        wanted = self.outcomes[outcome] + more
        wait_until(lambda: self.outcomes[outcome] >= wanted, 30)

    def _run(self, number: int) -> None:
        step = number
        while not self._stop.is_set():
            step += len(self._threads)
            with self._lock:
                self.asked += 1
            try:
                outcome = self._ask(step)
            except Exception as exc:
                outcome = type(exc).__name__
            with self._lock:
                self.outcomes[outcome] += 1

    def stop(self) -> Counter[str]:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()
        assert self.asked == self.outcomes.total()  # every call ended, one way or the other
        return self.outcomes


@pytest.fixture
def puppet(puppets: TritonServer) -> Iterator[tuple[TritonServer, Path]]:
    """A server whose model sleeps or fails as it is told, with a queue of four."""
    model = puppets.repository / "bounded"
    behave(model)
    yield puppets, model
    behave(model)


@both
def test_a_full_queue_refuses_at_once_and_answers_the_others(
    puppet: tuple[TritonServer, Path], protocol: str
) -> None:
    server, model = puppet
    behave(model, seconds=0.2)
    runtime = open_tiny(server, protocol, "bounded")

    def ask(number: int) -> str:
        try:
            # Of different shapes, so that each needs a pass of its own.
            batch = some_batch(1, 4 + number)
            assert runtime.forward(batch).options.shape == (1, 3)
        except OverloadedError:
            return "refused"
        return "answered"

    start = time.monotonic()
    with ThreadPoolExecutor(24) as pool:
        outcomes = Counter(pool.map(ask, range(24)))
    runtime.close()
    assert outcomes.total() == 24
    assert outcomes["refused"] > 0
    assert outcomes["answered"] >= 5  # one that runs, and four that wait
    assert time.monotonic() - start < 8


def is_answered(runtime: TritonRuntime) -> bool:
    try:
        runtime.forward(some_batch(1, 99))
    except OverloadedError:
        return False
    return True


@pytest.mark.parametrize(
    ("protocol", "name"), [("http", "bounded"), ("grpc", "bounded"), ("grpc", "wide")]
)
def test_what_waits_in_the_servers_queue_is_dropped_when_its_caller_gives_up(
    puppets: TritonServer, protocol: str, name: str
) -> None:
    """By its timeout where the queue keeps one, by the end of its call over gRPC everywhere."""
    server, model = puppets, puppets.repository / name
    behave(model, seconds=0.6)
    runtime = open_tiny(server, protocol, name)
    before = server.statistics(name)["passes"]

    def ask(number: int) -> str:
        try:
            with drut.deadline(0.3):
                runtime.forward(some_batch(1, 40 + number))
        except (DeadlineExceededError, OverloadedError) as exc:
            return type(exc).__name__
        return "answered"

    with ThreadPoolExecutor(8) as pool:
        outcomes = Counter(pool.map(ask, range(8)))
    behave(model)
    # Behind everything that is still in the queue, which stays full until the pass in flight ends.
    wait_until(lambda: is_answered(runtime))
    runtime.close()
    assert outcomes["answered"] == 0
    # One was running when its caller gave up, and a queue without bounds had formed two passes in
    # advance; the others that waited were never run.
    assert server.statistics(name)["passes"] - before <= (3 if name == "bounded" else 4)


@both
def test_a_failing_model_is_a_fault_and_the_agent_stays_usable(
    puppet: tuple[TritonServer, Path], protocol: str
) -> None:
    server, model = puppet
    behave(model, fails=True)
    runtime = open_tiny(server, protocol, "bounded")
    with pytest.raises(ServerFaultError, match="the puppet fails"):
        runtime.forward(some_batch())
    behave(model)
    assert runtime.forward(some_batch()).options.shape == (2, 3)
    runtime.close()


def test_the_servers_own_queue_keeps_a_callers_timeout_where_it_has_bounds(
    puppet: tuple[TritonServer, Path],
) -> None:
    server, model = puppet
    behave(model, seconds=0.6)
    running = threading.Thread(target=lambda: infer(server, "bounded", some_batch(1, 30)))
    running.start()
    wait_busy(model)
    with pytest.raises(InferenceServerException) as caught:
        infer(server, "bounded", some_batch(1, 31), timeout=100_000)
    running.join()
    assert caught.value.status() == "StatusCode.UNAVAILABLE"
    assert "timeout expired" in caught.value.message()


def infer(server: TritonServer, model: str, batch: Batch, **options: Any) -> Any:
    """Ask the graph as a client does that knows nothing of drut."""
    with grpcclient.InferenceServerClient(server.grpc) as client:
        return client.infer(model, tensors(batch), **options)


@both
def test_a_cache_that_stored_a_failure_gives_no_answer(
    puppet: tuple[TritonServer, Path], protocol: str
) -> None:
    server, model = puppet
    cached = model.parent / "cached"
    behave(cached, fails=True)
    checkpoint = open_by_name("cached", model.parent)
    runtime = TritonRuntime(TritonOptions(url_of(server, protocol)), checkpoint)
    batch = some_batch(3, 11 if protocol == "http" else 12)
    with pytest.raises(ServerFaultError, match="the puppet fails"):
        runtime.forward(batch)
    behave(cached)
    with pytest.raises(ServerFaultError, match="response cache"):
        runtime.forward(batch)
    assert runtime.forward(some_batch(3, 17)).options.shape == (3, 3)
    runtime.close()


@both
def test_versions_can_be_pinned_followed_and_rolled_back(
    explicit: TritonServer, protocol: str
) -> None:
    batch = some_batch()
    old, new = open_tiny(explicit, protocol, bundle=1), open_tiny(explicit, protocol)
    latest = open_tiny(explicit, protocol, version="latest")
    assert old.info.details["model_version"] == "1"
    assert new.info.details["model_version"] == "2"
    assert latest.info.details["served_versions"] in (["1", "2"], ["2", "1"])
    wanted = old.forward(batch)
    assert np.array_equal(new.forward(batch).options, wanted.options)
    model = explicit.repository / "tiny"
    edit_config(model, "all { }", "specific { versions: [ 1 ] }")
    try:
        explicit.load("tiny")
        wait_until(lambda: not explicit.is_ready("tiny", 2))
        assert np.array_equal(old.forward(batch).options, wanted.options)
        assert np.array_equal(latest.forward(batch).options, wanted.options)
        with pytest.raises(ServerNotReadyError, match="version 2"):
            new.forward(batch)
        with pytest.raises(RuntimeUnavailableError, match=r"'tiny' version 2\. It has: .*tiny 1"):
            open_tiny(explicit, protocol)
    finally:
        edit_config(model, "specific { versions: [ 1 ] }", "all { }")
        explicit.load("tiny")
    assert np.array_equal(new.forward(batch).options, wanted.options)
    for each in (old, new, latest):
        each.close()


@both
def test_a_model_unloaded_under_load_is_missed_and_comes_back(
    explicit: TritonServer, protocol: str
) -> None:
    runtime = open_tiny(explicit, protocol)
    wanted = {step: runtime.forward(some_batch(2, 5, seed=step)).options for step in range(4)}

    def ask(step: int) -> str:
        found = runtime.forward(some_batch(2, 5, seed=step % 4)).options
        return "right" if np.array_equal(found, wanted[step % 4]) else "wrong"

    with Callers(ask, 4) as callers:
        callers.wait_for("right", 20)
        explicit.unload("tiny")
        callers.wait_for("ServerNotReadyError", 5)
        explicit.load("tiny")
        callers.wait_for("right", 20)
        outcomes = callers.stop()
    runtime.close()
    assert set(outcomes) <= {"right", "ServerNotReadyError"}


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """A server that is killed and started again."""
    repository = tmp_path_factory.mktemp("mortal")
    serve_bundle(repository, "tiny")
    with triton_server(repository, "--exit-timeout-secs=20") as server:
        yield server


@both
def test_a_server_killed_under_load_loses_no_answer_and_is_found_again(
    mortal: TritonServer, protocol: str, record_property: Callable[[str, object], None]
) -> None:
    runtime = open_tiny(mortal, protocol, timeout=20.0)
    agent = drut.Agent(open_by_name("tiny", mortal.repository), runtime=runtime)
    texts = ["one", "two two", "three three three", "four four four four"]
    wanted = [agent.predict(text, ALL)["answers"] for text in texts]

    def ask(step: int) -> str:
        place = step % len(texts)
        found = agent.predict(texts[place], ALL)["answers"]
        return "right" if found == wanted[place] else "wrong"

    with Callers(ask) as callers:
        callers.wait_for("right", 40)
        mortal.kill()
        callers.wait_for("ServerUnreachableError", 8)
        mortal.restart()
        callers.wait_for("right", 40)
        outcomes = callers.stop()
    record_property("outcomes", dict(outcomes))
    assert agent.predict(texts[0], ALL)["answers"] == wanted[0]
    agent.close()
    assert set(outcomes) <= {"right", "ServerUnreachableError", "ServerNotReadyError"}


def test_idle_agents_do_not_keep_the_server_from_ending(mortal: TritonServer) -> None:
    opened = [open_tiny(mortal, protocol) for protocol in PROTOCOLS]
    for runtime in opened:
        runtime.forward(some_batch())
    start = time.monotonic()
    mortal.terminate()
    assert mortal.process.wait(30) == 0
    assert time.monotonic() - start < 12
    for runtime in opened:
        with pytest.raises(ServerUnreachableError):
            runtime.forward(some_batch())
        runtime.close()


@both
def test_another_graph_under_the_same_name_is_refused(
    explicit: TritonServer, tmp_path: Path, protocol: str
) -> None:
    serve_bundle(tmp_path, "tiny", 1, parallel=True)
    with pytest.raises(GraphContractError, match="position_ids"):
        TritonRuntime(TritonOptions(url_of(explicit, protocol)), open_by_name("tiny", tmp_path, 1))


def test_every_error_of_these_is_one_that_a_caller_can_catch_as_forward_error() -> None:
    for kind in (OverloadedError, ServerFaultError, ServerNotReadyError, ServerUnreachableError):
        assert issubclass(kind, ForwardError)
