"""What a Router is told about the runtime reaches every agent it builds."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import drut
from bundles import write_bundle
from drut.errors import InvalidRequestError
from drut.routing.building import with_runtime
from fake_v2_server import FakeV2Server, fake_v2_server
from tiny_checkpoint import NOUL


@pytest.fixture
def fake() -> Iterator[FakeV2Server]:
    with fake_v2_server() as server:
        yield server


def test_only_what_is_given_is_added() -> None:
    assert with_runtime({"threads": 1}, {"runtime": None, "url": None}) == {"threads": 1}
    assert with_runtime({}, {"runtime": "onnxruntime"}) == {"runtime": "onnxruntime"}


def test_a_router_over_triton_loads_models_unless_it_is_told_not_to() -> None:
    assert with_runtime({}, {"runtime": "triton"})["server_load"] is True
    kept = with_runtime({"server_load": False}, {"runtime": "triton"})
    assert kept["server_load"] is False


@pytest.mark.parametrize("name", ["runtime", "url", "headers", "tls"])
def test_saying_it_twice_is_refused(name: str) -> None:
    given: dict[str, Any] = {name: {}}
    with pytest.raises(InvalidRequestError, match=name):
        with_runtime(dict(given), given)


def test_a_factory_has_no_runtime() -> None:
    with pytest.raises(InvalidRequestError, match="no effect beside factory"):
        drut.Router(runtime="triton", factory=lambda name: None)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_evicting_unloads_what_was_loaded(
    fake: FakeV2Server, protocol: str, tmp_path: Path
) -> None:
    fake.loaded = False
    write_bundle(tmp_path, "tiny")
    with drut.Router(
        {"tiny": "tiny"},
        runtime="triton",
        url=fake.url(protocol),
        headers={"x-key": "k"},
        model_repository=tmp_path,
    ) as router:
        assert router.predict("x", NOUL, model="tiny")["answers"]
        assert fake.controls == ["load tiny"]
        router.unload("tiny")
        assert fake.controls == ["load tiny", "unload tiny"]
    assert {each["x-key"] for each in fake.headers} == {"k"}
