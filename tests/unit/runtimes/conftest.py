"""Fixtures of the runtimes' tests."""

from collections.abc import Iterator

import pytest

from fake_v2_server import FakeV2Server, fake_v2_server


@pytest.fixture
def fake() -> Iterator[FakeV2Server]:
    """A server that speaks HTTP and gRPC and does what its script says."""
    with fake_v2_server() as server:
        yield server
