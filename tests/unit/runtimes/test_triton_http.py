import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import drut
from drut.errors import (
    DeadlineExceededError,
    RuntimeUnavailableError,
    ServerFaultError,
    ServerRefusedError,
    ServerUnreachableError,
)
from drut.runtimes import triton_pool
from drut.runtimes.triton_errors import AttemptError
from drut.runtimes.triton_options import parse_url
from drut.runtimes.triton_pool import HttpPool, Request
from fake_v2_server import Act, FakeV2Server, Handler, expected_logits, raw, status
from lifecycle_helpers import wait_until
from triton_helpers import runtime, some_batch


def truncated(handler: Handler, head: bytes, binary: bytes) -> None:
    """Announce everything, send half of it, and hang up."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(head) + len(binary)))
    handler.send_header("Inference-Header-Content-Length", str(len(head)))
    handler.end_headers()
    handler.wfile.write(head + binary[: len(binary) // 2])


def reset_within(handler: Handler, head: bytes, binary: bytes) -> None:
    truncated(handler, head, binary)
    handler.wfile.flush()
    time.sleep(0.05)  # what was sent must arrive before the reset overtakes it
    handler.reset()


def short_binary(handler: Handler, head: bytes, binary: bytes) -> None:
    """A complete HTTP response whose tensors are shorter than it says."""
    handler.send_binary(head, binary[:-4])


def no_binary(handler: Handler, head: bytes, binary: bytes) -> None:
    handler.send_binary(head.replace(b'_size": ', b'_size": 0'), b"")


def garbage(handler: Handler, head: bytes, binary: bytes) -> None:
    handler.send_binary(b"\xff{not json", binary)


def not_an_object(handler: Handler, head: bytes, binary: bytes) -> None:
    handler.send_binary(b"[1, 2]", b"")


def wrong_length(handler: Handler, head: bytes, binary: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(head) + len(binary)))
    handler.send_header("Inference-Header-Content-Length", str(len(head) + 5))
    handler.end_headers()
    handler.wfile.write(head + binary)


def length_is_a_word(handler: Handler, head: bytes, binary: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(head)))
    handler.send_header("Inference-Header-Content-Length", "many")
    handler.end_headers()
    handler.wfile.write(head)


def compressed(handler: Handler, head: bytes, binary: bytes) -> None:
    handler.send_binary(head, binary, Content_Encoding="br")


def not_http(handler: Handler, head: bytes, binary: bytes) -> None:
    handler.wfile.write(b"\x00\x01 I speak something else\r\n\r\n")


def endless_headers(handler: Handler, head: bytes, binary: bytes) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n" + b"x-more: 1\r\n" * 200 + b"\r\n")


def endless_body(handler: Handler, head: bytes, binary: bytes) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    for _ in range(64):
        handler.wfile.write(b" " * 4096)


FAULTS = [
    truncated,
    reset_within,
    short_binary,
    no_binary,
    garbage,
    not_an_object,
    wrong_length,
    length_is_a_word,
    compressed,
    not_http,
    endless_headers,
    endless_body,
]


@pytest.mark.parametrize("send", FAULTS, ids=[each.__name__ for each in FAULTS])
def test_a_broken_response_is_a_fault_asked_for_once(
    fake: FakeV2Server,
    send: Callable[[Handler, bytes, bytes], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(triton_pool, "LONGEST_ANSWER", 1 << 16)
    fake.script.extend([raw(send)] * 9)
    batch = some_batch()
    with runtime(fake.http) as opened:
        with pytest.raises(ServerFaultError):
            opened.forward(batch)
        assert fake.inferences == 1
        fake.script.clear()
        found = opened.forward(batch)
    assert (found.options == expected_logits(batch).options).all()


def test_chunks_of_any_size_make_a_response(fake: FakeV2Server) -> None:
    def chunked(handler: Handler, head: bytes, binary: bytes) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.send_header("Inference-Header-Content-Length", str(len(head)))
        handler.end_headers()
        content = head + binary
        for start in range(0, len(content), 7):
            piece = content[start : start + 7]
            handler.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        handler.wfile.write(b"0\r\n\r\n")

    fake.script.append(raw(chunked))
    batch = some_batch()
    with runtime(fake.http) as opened:
        assert (opened.forward(batch).options == expected_logits(batch).options).all()


def test_a_redirect_is_not_followed(fake: FakeV2Server) -> None:
    def redirect(handler: Handler, head: bytes, binary: bytes) -> None:
        handler.send_response(307)
        handler.send_header("Location", fake.http)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    fake.script.append(raw(redirect))
    with runtime(fake.http) as opened, pytest.raises(ServerRefusedError, match="307"):
        opened.forward(some_batch())
    assert fake.inferences == 1


def test_a_reset_before_the_response_is_repeated_on_a_fresh_connection_at_once(
    fake: FakeV2Server,
) -> None:
    fake.script.append(raw(lambda handler, head, binary: handler.reset()))
    batch = some_batch()
    with runtime(fake.http) as opened:
        start = time.monotonic()
        assert (opened.forward(batch).options == expected_logits(batch).options).all()
    assert time.monotonic() - start < 0.1  # no pause: a kept connection may end at any time
    assert fake.inferences == 2


@pytest.mark.parametrize("how", ["reset", "hang up"])
def test_resets_without_end_are_given_up(fake: FakeV2Server, how: str) -> None:
    def end(handler: Handler, head: bytes, binary: bytes) -> None:
        if how == "reset":
            handler.reset()

    fake.script.extend([raw(end)] * 9)
    with runtime(fake.http) as opened, pytest.raises(ServerUnreachableError):
        opened.forward(some_batch())
    assert fake.inferences == 4  # on the kept connection, and three attempts


def test_a_response_byte_by_byte_ends_at_the_deadline(fake: FakeV2Server) -> None:
    def drip(handler: Handler, head: bytes, binary: bytes) -> None:
        for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n" * 9:
            handler.wfile.write(bytes([byte]))
            time.sleep(0.02)

    fake.script.append(raw(drip))
    with runtime(fake.http) as opened, drut.deadline(0.3):
        start = time.monotonic()
        with pytest.raises(DeadlineExceededError):
            opened.forward(some_batch())
    assert 0.25 < time.monotonic() - start < 0.6
    assert fake.inferences == 1


@contextmanager
def listening(backlog: int = 8) -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=backlog) as listener:
        yield listener


def test_a_server_that_reads_nothing_ends_at_the_deadline() -> None:
    with listening() as listener:
        pool = HttpPool(parse_url(f"http://127.0.0.1:{listener.getsockname()[1]}"), None)
        start = time.monotonic()
        with pytest.raises(AttemptError) as raised:
            pool.send(Request("POST", "/v2", {}, b"x" * (64 << 20)), 0.3)
        pool.close()
    assert isinstance(raised.value.error, DeadlineExceededError)
    assert not raised.value.again
    assert time.monotonic() - start < 5


def test_connections_are_reused_and_closed_when_idle(fake: FakeV2Server) -> None:
    before = threading.active_count()
    pool = HttpPool(parse_url(fake.http), None, idle_seconds=0.15)
    for _ in range(3):
        assert pool.send(Request("GET", "/v2", {}), 5).status == 200
    assert fake.connections == 1
    wait_until(lambda: pool._idle == [], 2)
    wait_until(lambda: pool._timer is None, 2)
    pool.send(Request("GET", "/v2", {}), 5)
    assert fake.connections == 2
    pool.close()
    wait_until(lambda: threading.active_count() <= before + 1)


def test_a_connection_that_the_server_closed_is_not_tried(fake: FakeV2Server) -> None:
    pool = HttpPool(parse_url(fake.http), None)
    pool.send(Request("GET", "/v2", {}), 5)
    kept = pool._idle[0]
    kept._socket.shutdown(socket.SHUT_RDWR)
    assert pool.send(Request("GET", "/v2", {}), 5).status == 200
    assert fake.connections == 2
    pool.close()


def test_a_pool_that_is_closed_keeps_nothing(fake: FakeV2Server) -> None:
    pool = HttpPool(parse_url(fake.http), None)
    pool.close()
    assert pool.send(Request("GET", "/v2", {}), 5).status == 200
    assert pool._idle == []
    assert pool._timer is None


def test_a_path_in_front_and_names_with_slashes_are_sent_as_they_are(fake: FakeV2Server) -> None:
    with pytest.raises(RuntimeUnavailableError):
        with runtime(f"{fake.http}/triton/", model="a/b c"):
            pass
    assert fake.headers[0]["host"] == f"127.0.0.1:{fake.http_port}"


@pytest.mark.parametrize("body", [b"", b"<html>busy</html>", b"[]", b'{"error": null}', b"\xff"])
def test_an_error_of_a_proxy_is_told_as_it_is(fake: FakeV2Server, body: bytes) -> None:
    def gateway(handler: Handler, head: bytes, binary: bytes) -> None:
        handler.send_response(502)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    fake.script.extend([raw(gateway)] * 9)
    with runtime(fake.http) as opened, pytest.raises(ServerFaultError, match="502"):
        opened.forward(some_batch())
    assert fake.inferences == 1


def test_a_long_message_of_the_server_is_shortened(fake: FakeV2Server) -> None:
    fake.script.append(status(400, "x" * 5000))
    with runtime(fake.http) as opened, pytest.raises(ServerRefusedError) as raised:
        opened.forward(some_batch())
    assert len(str(raised.value)) < 500


def test_tensors_as_json_are_understood(fake: FakeV2Server) -> None:
    batch = some_batch()
    wanted = expected_logits(batch)

    def as_json(handler: Handler, head: bytes, binary: bytes) -> None:
        told = json.loads(head)
        for each, values in zip(told["outputs"], wanted, strict=True):
            each["data"] = values.flatten().tolist()
            del each["parameters"]
        handler.send_json(told)

    fake.script.append(Act(raw=as_json))
    with runtime(fake.http) as opened:
        assert (opened.forward(batch).options == wanted.options).all()
