"""A Router over a real server: it loads what it needs there, and unloads what it evicts."""

from pathlib import Path
from typing import Any

import pytest

import drut
from drut.errors import RuntimeUnavailableError
from tiny_checkpoint import NOUL
from triton_models import serve_bundle
from triton_server import TritonServer

PROTOCOLS = ("http", "grpc")
both = pytest.mark.parametrize("protocol", PROTOCOLS)


class Log:
    def __init__(self, server: TritonServer) -> None:
        self.events: list[tuple[str, str, bool]] = []
        self._server = server

    def on_load(self, ctx: Any) -> None:
        self._note("load", ctx.model)

    def on_evict(self, ctx: Any) -> None:
        self._note("evict", ctx.model)

    def _note(self, event: str, model: str) -> None:
        self.events.append((event, model, self._server.is_ready(model)))


def router_of(server: TritonServer, protocol: str, **options: Any) -> drut.Router:
    url = server.url if protocol == "http" else f"grpc://{server.grpc}"
    return drut.Router(runtime="triton", url=url, model_repository=server.repository, **options)


@both
def test_models_come_and_go_on_the_server_with_the_router(
    explicit: TritonServer, protocol: str
) -> None:
    log = Log(explicit)
    with router_of(explicit, protocol, max_loaded=1, hooks=[log]) as router:
        first = router.predict("Please cancel my order today", NOUL)
        assert first["routing"]["model"] == "english"
        assert router.loaded == ["english"]
        second = router.predict("нужна помощь", NOUL)
        assert second["routing"]["model"] == "multilingual"
    assert log.events == [
        ("load", "english", True),
        ("evict", "english", False),
        ("load", "multilingual", True),
        ("evict", "multilingual", False),
    ]
    assert not any(explicit.is_ready(name) for name in ("english", "multilingual"))


@both
def test_a_model_that_others_loaded_is_not_unloaded(explicit: TritonServer, protocol: str) -> None:
    explicit.load("english")
    with router_of(explicit, protocol) as router:
        router.predict("Please cancel my order today", NOUL)
    assert explicit.is_ready("english")
    explicit.unload("english")


@both
def test_preload_opens_the_named_models(explicit: TritonServer, protocol: str) -> None:
    with router_of(explicit, protocol, preload=["english", "multilingual"]) as router:
        assert router.loaded == ["english", "multilingual"]
        assert explicit.is_ready("english")
        assert explicit.is_ready("multilingual")


@both
def test_a_server_that_loads_for_nobody_serves_what_it_has(
    triton: TritonServer, tmp_path: Path, protocol: str
) -> None:
    """To the router its bundle is English, and there is one more that it does not serve."""
    repository = tmp_path / "routed"
    for name in ("tiny", "multilingual"):
        serve_bundle(repository, name)
    models = {"english": "tiny", "multilingual": "multilingual"}
    url = triton.url if protocol == "http" else f"grpc://{triton.grpc}"
    with drut.Router(models, runtime="triton", url=url, model_repository=repository) as router:
        assert router.predict("Please cancel my order", NOUL)["routing"]["model"] == "english"
        with pytest.raises(RuntimeUnavailableError, match=r"not allowed.*It has: .*tiny 1"):
            router.predict("нужна помощь", NOUL)
    assert triton.is_ready("tiny")
