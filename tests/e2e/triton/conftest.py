"""One server for the tests that leave it as it was; the others start their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from triton_models import serve_bundle
from triton_server import ROOT, TritonServer, tail, triton_server

SHIPPED = ROOT / "model_repository"
_RUNNING: dict[str, TritonServer] = {}


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
    """A server over that repository, shared by all tests of a worker: leave it as it was."""
    with triton_server(served) as server:
        _RUNNING["shared"] = server
        yield server
    del _RUNNING["shared"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> object:
    """Show the shared server's log beside a failure."""
    report = yield
    if report.failed and "shared" in _RUNNING:
        report.sections.append(("tritonserver", tail(_RUNNING["shared"].log())))
    return report
