from typing import Any

import pytest

import drut
from drut.errors import InvalidRequestError, InvalidTypeError
from drut.runtimes.triton_options import (
    TlsOptions,
    TritonOptions,
    check_tls,
    checked_headers,
    parse_url,
    tls_options,
)
from fake_v2_server import FakeV2Server
from lifecycle_helpers import tiny as checkpoint
from tiny_checkpoint import NOUL


@pytest.mark.parametrize(
    ("url", "text", "secure", "grpc"),
    [
        ("http://host:8000", "http://host:8000", False, False),
        (" http://host/ ", "http://host:80", False, False),
        ("https://host/triton/a", "https://host:443/triton/a", True, False),
        ("grpc://host", "grpc://host:8001", False, True),
        ("grpcs://[::1]:9", "grpcs://[::1]:9", True, True),
        ("HTTP://Host:1", "http://host:1", False, False),
    ],
)
def test_urls(url: str, text: str, secure: bool, grpc: bool) -> None:
    address = parse_url(url)
    assert (str(address), address.secure, address.grpc) == (text, secure, grpc)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "host:8000",
        "ftp://host",
        "http://",
        "http://host:port",
        "http://host:99999",
        "http://user:secret@host",
        "http://host?x=1",
        "http://host#x",
        "grpc://host/path",
        "http://ho st",
        "http://host/a b",
        "http://b\u00fccher",
        "http://[::1",
    ],
)
def test_what_is_no_address_is_refused_without_showing_credentials(url: str) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        parse_url(url)
    assert "secret" not in str(raised.value)


def test_a_url_is_a_string() -> None:
    with pytest.raises(InvalidTypeError, match="bytes"):
        parse_url(b"http://host")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"version": 0}, InvalidRequestError),
        ({"version": True}, InvalidRequestError),
        ({"version": "newest"}, InvalidRequestError),
        ({"version": 1.5}, InvalidRequestError),
        ({"timeout": 0}, InvalidRequestError),
        ({"timeout": float("nan")}, InvalidRequestError),
        ({"timeout": float("inf")}, InvalidRequestError),
        ({"timeout": True}, InvalidTypeError),
        ({"timeout": "3"}, InvalidTypeError),
    ],
)
def test_absurd_options_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        TritonOptions("http://host", **options)


def test_tls_may_be_a_mapping() -> None:
    assert tls_options({"ca": "x.pem"}) == TlsOptions(ca="x.pem")
    assert tls_options(None) is None
    with pytest.raises(InvalidRequestError, match="cafile"):
        tls_options({"cafile": "x.pem"})
    with pytest.raises(InvalidTypeError):
        tls_options("x.pem")


@pytest.mark.parametrize(
    ("tls", "url", "told"),
    [
        (TlsOptions(), "http://host", "https://"),
        (TlsOptions(), "grpc://host", "grpcs://"),
        (TlsOptions(key="x"), "https://host", "no certificate"),
        (TlsOptions(insecure=True), "grpcs://host", "gRPC always checks"),
    ],
)
def test_tls_that_would_have_no_effect_is_refused(tls: TlsOptions, url: str, told: str) -> None:
    with pytest.raises(InvalidRequestError, match=told):
        check_tls(tls, parse_url(url))


def test_header_names_are_of_any_case() -> None:
    assert checked_headers({"X-Key": "a b"}) == {"x-key": "a b"}
    assert checked_headers(None) == {}
    assert checked_headers(lambda: {"a": "1"}) == {"a": "1"}


def test_the_address_may_come_from_the_environment(
    fake: FakeV2Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRUT_TRITON_URL", f" {fake.grpc} ")
    with drut.Agent(checkpoint(), runtime="triton", server_model="tiny") as agent:
        assert agent.runtime.info.details["url"] == fake.grpc
        assert agent.predict("x", NOUL)["answers"]
    with drut.Agent(
        checkpoint(), runtime="triton", server_model="tiny", url=fake.http
    ) as agent:  # what is passed wins
        assert agent.runtime.info.details["url"] == fake.http


def test_without_an_address_the_error_says_how_to_give_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DRUT_TRITON_URL", raising=False)
    with pytest.raises(InvalidRequestError, match="DRUT_TRITON_URL"):
        drut.Agent(checkpoint(), runtime="triton")


def test_a_name_is_needed_where_there_is_no_bundle() -> None:
    with pytest.raises(InvalidRequestError, match="server_model"):
        drut.Agent(checkpoint(), runtime="triton", url="http://127.0.0.1:9")


@pytest.mark.parametrize(
    "options",
    [
        {"url": "http://host"},
        {"headers": {}},
        {"tls": {}},
        {"server_model": "x"},
        {"server_version": 1},
        {"server_timeout": 1.0},
        {"server_load": True},
    ],
)
@pytest.mark.parametrize("runtime", ["onnxruntime", drut.FakeRuntime()])
def test_options_of_a_server_mean_nothing_to_other_runtimes(
    runtime: Any, options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRequestError, match=f"{next(iter(options))}.* no meaning"):
        drut.Agent(checkpoint(), runtime=runtime, **options)


def test_the_environment_alone_changes_no_other_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRUT_TRITON_URL", "grpc://127.0.0.1:9")
    assert drut.Agent(checkpoint(), runtime=drut.FakeRuntime()).runtime.info.name == "fake"


def test_an_agent_that_cannot_be_made_gives_back_what_it_opened(fake: FakeV2Server) -> None:
    fake.loaded = False
    with pytest.raises(InvalidRequestError, match="unknown_keys"):
        drut.Agent(
            checkpoint(),
            runtime="triton",
            url=fake.http,
            server_model="tiny",
            server_load=True,
            unknown_keys="maybe",  # type: ignore[arg-type]
        )
    assert fake.controls == ["load tiny", "unload tiny"]
