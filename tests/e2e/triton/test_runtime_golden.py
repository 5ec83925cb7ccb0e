"""Every golden call again, with the graph on a real server, over HTTP and over gRPC."""

import shutil
import warnings
from collections.abc import Callable, Iterator

import pytest

import drut
from conformance.recording import RecordingRuntime
from conformance.test_golden_answers import (
    test_answer_equals_upstream,
)
from drut.batching import PassPolicy
from drut.checkpoint.bundle import Bundle
from drut.checkpoint.opened import open_bundle
from drut.execution.direct import DirectRunner
from drut.execution.passes import PassRunner
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
        recording = RecordingRuntime(TritonRuntime(TritonOptions(url), checkpoint))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # golden temperatures are clamped
            agent = drut.Agent(checkpoint, runtime=recording)
        # One pass per chunk and every row in it, as upstream: its batches are compared.
        whole = PassRunner(
            recording, PassPolicy(max_tokens=1 << 40), pad_id=checkpoint.tokenizer.pad_id
        )
        agent._pipeline.runner = DirectRunner(whole)
        agents[name] = (agent, recording)
    yield agents
    for agent, _ in agents.values():
        agent.close()
