from collections.abc import Iterator
from pathlib import Path

import pytest

from bundles import write_bundle
from drut.checkpoint.bundle import read_bundle
from drut.cli.server import examine_server
from fake_v2_server import FakeV2Server, fake_v2_server


@pytest.fixture
def fake() -> Iterator[FakeV2Server]:
    with fake_v2_server() as server:
        yield server


def test_models_are_compared_with_the_bundles_of_their_name_and_version(
    fake: FakeV2Server, tmp_path: Path
) -> None:
    fake.versions = ["1", "2"]
    health = examine_server(fake.http, [read_bundle(write_bundle(tmp_path))])
    assert health.fault is None
    assert [(each.version, each.fits) for each in health.models] == [("1", True), ("2", None)]
    assert health.rows()[0] == (fake.http, "", "", "Triton 0.0")


def test_a_model_that_is_not_the_bundle_is_told(fake: FakeV2Server, tmp_path: Path) -> None:
    fake.config["parameters"] = {"tokenizer_sha256": {"string_value": "ab" * 32}}
    (model,) = examine_server(fake.grpc, [read_bundle(write_bundle(tmp_path))]).models
    assert model.fits is False
    assert "ab" * 32 in model.detail


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "not a url"])
def test_an_address_without_a_server_is_a_fault(url: str) -> None:
    health = examine_server(url, [])
    assert health.version is None
    assert health.fault
    assert health.as_dict()["models"] == []
