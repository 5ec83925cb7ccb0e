"""Servers for the tests that leave them as they were; the others start their own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from drut_export.pbtxt import QueueBounds
from triton_models import bound_decision, edit_config, move_to_cpu, serve_bundle, serve_puppet
from triton_server import ROOT, TritonServer, tail, triton_server

SHIPPED = ROOT / "model_repository"

ROOM: Final = 4
"""Requests that wait for the bounded puppets at most."""

_RUNNING: list[TritonServer] = []


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the committed `starter` and the stand-in `tiny`, each with its decisions.

    Nothing else that may lie in the developer's own repository.
    """
    repository = tmp_path_factory.mktemp("served")
    for name in ("starter", "starter_decision"):
        (repository / name).symlink_to(SHIPPED / name)
    serve_bundle(repository, "tiny")
    return repository


@pytest.fixture(scope="session")
def triton(served: Path) -> Iterator[TritonServer]:
    """A server over that repository."""
    with _shown(served) as server:
        yield server


@pytest.fixture(scope="session")
def puppets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """A server with a response cache, and graphs that sleep or fail as they are told.

    `tiny` has a decision model with room for four requests, `wide` one as it is written; the
    server's own queue for `bounded` has room for four; `cached` uses the cache.
    """
    repository = tmp_path_factory.mktemp("puppets")
    bound_decision(serve_puppet(repository, "tiny"), ROOM)
    serve_puppet(repository, "wide")
    serve_puppet(repository, "bounded", bounds=QueueBounds(ROOM, 60.0))
    cached = serve_puppet(repository, "cached")
    edit_config(cached, "max_batch_size: 64", "max_batch_size: 64\nresponse_cache { enable: true }")
    with _shown(repository, "--cache-config=local,size=4194304") as server:
        yield server


@pytest.fixture(scope="session")
def explicit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """A server that loads what it is told, with all it may be told to load.

    `tiny` has two versions and serves both. Only `tiny` is loaded.
    """
    repository = tmp_path_factory.mktemp("explicit")
    for name in ("english", "multilingual", "rolled"):
        serve_bundle(repository, name)
    for target in ("cuda", "tensorrt"):
        move_to_cpu(serve_bundle(repository, target, target=target))
    serve_bundle(repository, "parallel", parallel=True)
    serve_bundle(repository, "alone", batch_invariant=False)
    serve_bundle(repository, "tiny", 1)
    tiny = serve_bundle(repository, "tiny", 2)
    edit_config(tiny, "version_policy { latest { num_versions: 1 } }", "version_policy { all { } }")
    with _shown(repository, "--model-control-mode=explicit", "--load-model=tiny") as server:
        yield server


@pytest.fixture
def loaded(explicit: TritonServer) -> Iterator[Callable[[str], None]]:
    """Loads a bundle's two models, and unloads them after the test."""
    names: list[str] = []

    def load(bundle: str) -> None:
        for name in (bundle, f"{bundle}_decision"):
            explicit.load(name)
            explicit.wait_ready(name)
            names.append(name)

    yield load
    for name in reversed(names):
        explicit.unload(name)


@contextmanager
def _shown(repository: Path, *args: str) -> Iterator[TritonServer]:
    """A server whose log is shown beside failures. It is killed: others test how servers end."""
    with triton_server(repository, *args) as server:
        _RUNNING.append(server)
        yield server
        _RUNNING.remove(server)
        server.kill()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> object:
    """Show the logs of the shared servers beside a failure."""
    report = yield
    if report.failed:
        report.sections += [("tritonserver", tail(server.log())) for server in _RUNNING]
    return report
