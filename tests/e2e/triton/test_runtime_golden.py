"""Every golden call again, with the graph on a real server, over HTTP and over gRPC."""

import shutil
from collections.abc import Callable, Iterator

import pytest

import drut
from conformance.recording import RecordingRuntime, recorded_agent
from conformance.test_golden_answers import (
    test_answer_equals_upstream,
)
from drut.checkpoint.bundle import Bundle
from drut.checkpoint.opened import open_bundle
from drut.runtimes.triton import TritonRuntime
from drut.runtimes.triton_options import TritonOptions
from exports import CHECKPOINTS, exported
from triton_server import TritonServer, triton_server

__all__ = ["exported", "test_answer_equals_upstream"]


@pytest.fixture(scope="module")
def golden_server(
    tmp_path_factory: pytest.TempPathFactory, exported: Callable[[str], Bundle]
) -> Iterator[TritonServer]:
    repository = tmp_path_factory.mktemp("golden")
    for name in CHECKPOINTS:
        shutil.copytree(exported(name).directory.parent, repository / name)
    with triton_server(repository) as server:
        yield server


@pytest.fixture(scope="module", params=["http", "grpc"])
def golden_agent(
    request: pytest.FixtureRequest, golden_server: TritonServer
) -> Iterator[dict[str, tuple[drut.Agent, RecordingRuntime]]]:
    """An agent per golden checkpoint, with its graph on the server."""
    url = golden_server.url if request.param == "http" else f"grpc://{golden_server.grpc}"
    agents = {}
    for name in CHECKPOINTS:
        checkpoint = open_bundle(golden_server.repository / name)
        agents[name] = recorded_agent(checkpoint, TritonRuntime(TritonOptions(url), checkpoint))
    yield agents
    for agent, _ in agents.values():
        agent.close()
