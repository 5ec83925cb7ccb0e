import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import trustme

import drut
from drut.errors import (
    DeadlineExceededError,
    DeviceUnavailableError,
    DrutError,
    ForwardError,
    GraphContractError,
    InvalidRequestError,
    InvalidTypeError,
    OverloadedError,
    RuntimeClosedError,
    RuntimeUnavailableError,
    ServerFaultError,
    ServerNotReadyError,
    ServerRefusedError,
    ServerUnreachableError,
)
from drut.runtimes.triton import CONCURRENT_PASSES
from fake_v2_server import (
    Act,
    FakeV2Server,
    altered,
    expected_logits,
    fake_v2_server,
    missing,
    slow,
    status,
)
from tiny_checkpoint import tokenizer
from triton_helpers import PROTOCOLS, runtime, some_batch

both = pytest.mark.parametrize("protocol", PROTOCOLS)


def same(found: drut.tensors.Logits, wanted: drut.tensors.Logits) -> bool:
    return np.array_equal(found.options, wanted.options) and np.array_equal(
        found.actions, wanted.actions
    )


def established(server: FakeV2Server) -> int:
    """Connections of this process to the fake, seen from the client's side."""
    ports = {server.http_port, server.grpc_port}
    return sum(
        each.raddr.port in ports and each.status == psutil.CONN_ESTABLISHED
        for each in psutil.Process().net_connections("tcp")
        if each.raddr
    )


def wait_until(condition: Any, seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


@both
def test_the_answer_is_the_servers(fake: FakeV2Server, protocol: str) -> None:
    batch = some_batch()
    with runtime(fake.url(protocol)) as opened:
        found = opened.forward(batch)
    assert same(found, expected_logits(batch))
    assert found.options.dtype == found.actions.dtype == np.float32
    assert found.options.flags.writeable


@both
def test_info_says_what_the_server_told(fake: FakeV2Server, protocol: str) -> None:
    with runtime(fake.url(protocol)) as opened:
        info = opened.info
    assert (info.name, info.device, info.requested_device) == ("triton", "cpu", "auto")
    assert (info.max_rows, info.actions, info.parallel) == (8, 2, False)
    assert info.concurrent_passes == CONCURRENT_PASSES
    assert info.details["url"] == fake.url(protocol)
    assert info.details["version"] == "0.0"
    assert info.details["model"] == "tiny"
    assert info.details["model_version"] == "latest"
    assert info.details["tokenizer"].startswith("not compared")


@both
def test_a_long_batch_is_sent_in_parts_and_comes_back_in_order(
    fake: FakeV2Server, protocol: str
) -> None:
    batch = some_batch(20)
    with runtime(fake.url(protocol)) as opened:
        assert same(opened.forward(batch), expected_logits(batch))
    assert [each["rows"] for each in fake.asked] == [8, 8, 4]


@both
def test_many_threads_share_a_runtime_and_get_their_own_answers(
    fake: FakeV2Server, protocol: str
) -> None:
    with runtime(fake.url(protocol)) as opened:

        def ask(seed: int) -> bool:
            batches = [
                some_batch(1 + seed % 4, 3 + seed % 7, seed=100 * seed + i) for i in range(10)
            ]
            return all(same(opened.forward(each), expected_logits(each)) for each in batches)

        with ThreadPoolExecutor(32) as pool:
            assert all(pool.map(ask, range(32)))
    assert fake.inferences == 320
    assert fake.connections <= 33


FAILURES = [
    (400, "a shape is wrong", ServerRefusedError, 1),
    (400, "Model version not ready", ServerNotReadyError, 1),
    (401, "who are you", ServerRefusedError, 1),
    (404, "Request for unknown model", ServerNotReadyError, 1),
    (429, "slow down", OverloadedError, 1),
    (500, "onnx runtime error: shape", ServerFaultError, 1),
    (503, "Exceeds maximum queue size", OverloadedError, 3),
    (503, "Request timeout expired", OverloadedError, 3),
    (503, "Server is stopping, scheduler for model has stopped", ServerNotReadyError, 3),
]


@both
@pytest.mark.parametrize(
    ("code", "said", "error", "attempts"), FAILURES, ids=[f"{c} {s}" for c, s, _, _ in FAILURES]
)
def test_every_failure_has_its_error_and_its_number_of_attempts(
    fake: FakeV2Server,
    protocol: str,
    code: int,
    said: str,
    error: type[DrutError],
    attempts: int,
) -> None:
    fake.script.extend([status(code, said)] * 9)
    with runtime(fake.url(protocol)) as opened, pytest.raises(error, match=said[:10]) as raised:
        opened.forward(some_batch())
    assert type(raised.value) is error
    assert fake.inferences == attempts


@both
def test_a_busy_server_is_asked_again_and_answers(fake: FakeV2Server, protocol: str) -> None:
    fake.script.extend([status(503, "Exceeds maximum queue size")] * 2)
    batch = some_batch()
    with runtime(fake.url(protocol)) as opened:
        assert same(opened.forward(batch), expected_logits(batch))
    assert fake.inferences == 3


@both
def test_no_attempt_begins_that_the_deadline_has_no_room_for(
    fake: FakeV2Server, protocol: str
) -> None:
    fake.script.extend([status(503, "Exceeds maximum queue size")] * 9)
    with runtime(fake.url(protocol)) as opened, drut.deadline(0.07):
        with pytest.raises(OverloadedError):
            opened.forward(some_batch())
    assert fake.inferences == 1


@both
def test_closing_ends_the_pause_before_the_next_attempt(fake: FakeV2Server, protocol: str) -> None:
    fake.script.extend([status(503, "Exceeds maximum queue size")] * 9)
    with runtime(fake.url(protocol)) as opened:
        caught: list[BaseException] = []

        def ask() -> None:
            try:
                opened.forward(some_batch())
            except ForwardError as exc:
                caught.append(exc)

        thread = threading.Thread(target=ask)
        thread.start()
        wait_until(lambda: fake.inferences == 2)
        opened.close()
        thread.join(5)
    assert [type(each) for each in caught] == [RuntimeClosedError]


BROKEN = {
    "one output missing": missing("act_logits"),
    "success without any output": missing("logits", "act_logits"),
    "another dtype": altered("logits", lambda values: values.astype(np.float16), "FP16"),
    "too few rows": altered("logits", lambda values: values[:-1]),
    "too many rows": altered("act_logits", lambda values: np.repeat(values, 2, axis=0)),
    "too few options": altered("logits", lambda values: values[:, :-1]),
    "another rank": altered("act_logits", lambda values: values[:, 0]),
    "the answer to another request": Act(header={"id": "somebody-else"}),
}


@both
@pytest.mark.parametrize("act", BROKEN.values(), ids=BROKEN)
def test_an_answer_that_is_not_complete_is_a_fault_and_is_not_asked_for_again(
    fake: FakeV2Server, protocol: str, act: Act
) -> None:
    fake.script.extend([act] * 9)
    with runtime(fake.url(protocol)) as opened, pytest.raises(ServerFaultError):
        opened.forward(some_batch())
    assert fake.inferences == 1


@both
def test_a_slow_server_meets_the_callers_deadline(fake: FakeV2Server, protocol: str) -> None:
    fake.script.append(slow(1.0))
    with runtime(fake.url(protocol)) as opened:
        start = time.monotonic()
        with drut.deadline(0.2), pytest.raises(DeadlineExceededError):
            opened.forward(some_batch())
        assert time.monotonic() - start < 0.8
        batch = some_batch(seed=1)
        assert same(opened.forward(batch), expected_logits(batch))  # not the late one
    assert fake.inferences == 2


@both
def test_without_a_deadline_the_runtimes_own_limit_holds(fake: FakeV2Server, protocol: str) -> None:
    with runtime(fake.url(protocol), timeout=0.3) as opened:
        fake.script.append(slow(1.0))
        with pytest.raises(DeadlineExceededError, match="server_timeout"):
            opened.forward(some_batch())


@both
def test_the_server_is_told_how_long_the_request_may_wait(
    fake: FakeV2Server, protocol: str
) -> None:
    with runtime(fake.url(protocol), timeout=20) as opened:
        opened.forward(some_batch())
        with drut.deadline(3):
            opened.forward(some_batch())
    first, second = (each["timeout"] for each in fake.asked)
    assert 15_000_000 < first <= 20_000_000
    assert 2_000_000 < second <= 3_000_000


@both
def test_a_deadline_that_has_passed_sends_nothing(fake: FakeV2Server, protocol: str) -> None:
    with runtime(fake.url(protocol)) as opened, drut.deadline(0.01):
        time.sleep(0.02)
        with pytest.raises(DeadlineExceededError):
            opened.forward(some_batch())
    assert fake.inferences == 0


@both
def test_headers_go_with_every_request(fake: FakeV2Server, protocol: str) -> None:
    with runtime(fake.url(protocol), headers={"Authorization": "Bearer s3cret"}) as opened:
        opened.forward(some_batch())
    assert {each["authorization"] for each in fake.headers} == {"Bearer s3cret"}


@both
def test_a_function_gives_each_request_its_headers(fake: FakeV2Server, protocol: str) -> None:
    numbers = count()
    with runtime(fake.url(protocol), headers=lambda: {"x-token": str(next(numbers))}) as opened:
        opened.forward(some_batch())
    tokens = [each["x-token"] for each in fake.headers]
    assert len(tokens) > 1
    assert tokens == sorted(set(tokens), key=int)


@both
@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ({"a b": "x"}, InvalidRequestError),
        ({"x": "one\r\nhost: two"}, InvalidRequestError),
        ({"x": "s\u00e9cret"}, InvalidRequestError),
        ({"Content-Length": "3"}, InvalidRequestError),
        ({"x": 3}, InvalidTypeError),
        ("x: y", InvalidTypeError),
    ],
)
def test_headers_that_cannot_be_sent_are_refused_without_showing_them(
    protocol: str, headers: Any, error: type[Exception]
) -> None:
    with pytest.raises(error) as raised, runtime(f"{protocol}://127.0.0.1:9", headers=headers):
        pass
    assert "cret" not in str(raised.value)


def ours(thread: threading.Thread) -> bool:
    """Not one of the pool in which the fake answers gRPC, which stays."""
    return not thread.name.startswith("ThreadPoolExecutor")


@both
def test_close_is_final_and_leaves_no_connection(fake: FakeV2Server, protocol: str) -> None:
    before = set(threading.enumerate())
    with runtime(fake.url(protocol)) as opened:
        opened.forward(some_batch())
        assert established(fake) > 0
        opened.close()
        opened.close()
        with pytest.raises(RuntimeClosedError):
            opened.forward(some_batch())
    wait_until(lambda: established(fake) == 0)
    wait_until(lambda: not [each for each in set(threading.enumerate()) - before if ours(each)])


@both
def test_a_pass_in_flight_survives_close(fake: FakeV2Server, protocol: str) -> None:
    fake.script.append(slow(0.3))
    batch = some_batch()
    with runtime(fake.url(protocol)) as opened, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(opened.forward, batch)
        wait_until(lambda: fake.inferences == 1)
        opened.close()
        assert same(answer.result(5), expected_logits(batch))
    wait_until(lambda: established(fake) == 0)


@both
def test_a_forked_child_is_told_to_open_its_own(
    fake: FakeV2Server, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with runtime(fake.url(protocol)) as opened:
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)
            with pytest.raises(ForwardError, match="forked"):
                opened.forward(some_batch())
            opened.close()
        assert established(fake) > 0  # the parent's connection is not the child's to close
    assert fake.inferences == 0


@pytest.mark.parametrize("layout", ["parallel"])
def test_a_batch_of_the_other_layout_is_not_sent(fake: FakeV2Server, layout: str) -> None:
    batch = some_batch()
    zeros = np.zeros_like(batch.input_ids)
    parallel = drut.tensors.Batch(**batch.feed(), position_ids=zeros, option_ids=zeros)
    with runtime(fake.http) as opened, pytest.raises(ForwardError, match=r"layouts"):
        opened.forward(parallel)
    assert fake.inferences == 0


@both
def test_nobody_there_is_said_on_opening(protocol: str) -> None:
    with pytest.raises(RuntimeUnavailableError, match=r"127\.0\.0\.1:9") as raised:
        with runtime(f"{protocol}://127.0.0.1:9"):
            pass
    assert type(raised.value.__cause__) is ServerUnreachableError


@both
def test_a_server_that_went_away_is_unreachable_and_its_successor_answers(protocol: str) -> None:
    with fake_v2_server() as first:
        opened = runtime(first.url(protocol))
        client = opened.__enter__()
        client.forward(some_batch())
        ports = first.http_port, first.grpc_port
    with pytest.raises(ServerUnreachableError):
        client.forward(some_batch())
    with fake_v2_server(ports=ports) as second:
        assert same(client.forward(some_batch()), expected_logits(some_batch()))
        assert second.inferences == 1
        opened.__exit__(None, None, None)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def certificate(authority: trustme.CA) -> trustme.LeafCert:
    return authority.issue_cert("localhost", "127.0.0.1")


@both
def test_tls_needs_an_issuer_that_is_trusted(
    protocol: str, authority: trustme.CA, certificate: trustme.LeafCert, tmp_path: Path
) -> None:
    issuer = tmp_path / "issuer.pem"
    authority.cert_pem.write_to_path(str(issuer))
    with fake_v2_server(tls=certificate) as server:
        with pytest.raises(RuntimeUnavailableError):
            with runtime(server.url(protocol), timeout=3):
                pass
        assert server.headers == []
        trusting = drut.runtimes.triton_options.TlsOptions(ca=issuer)
        with runtime(server.url(protocol), tls=trusting) as opened:
            assert same(opened.forward(some_batch()), expected_logits(some_batch()))


def test_tls_without_any_check_has_to_be_asked_for(certificate: trustme.LeafCert) -> None:
    careless = drut.runtimes.triton_options.TlsOptions(insecure=True)
    with fake_v2_server(tls=certificate) as server:
        with runtime(server.http, tls=careless) as opened:
            assert same(opened.forward(some_batch()), expected_logits(some_batch()))
        with pytest.raises(InvalidRequestError, match="gRPC always checks"):
            with runtime(server.grpc, tls=careless):
                pass


@both
def test_a_device_is_a_promise_about_the_server(fake: FakeV2Server, protocol: str) -> None:
    with runtime(fake.url(protocol), device="cpu") as opened:
        assert opened.info.requested_device == "cpu"
    with pytest.raises(DeviceUnavailableError, match="runs it on 'cpu'"):
        with runtime(fake.url(protocol), device="cuda"):
            pass
    fake.config["instance_group"] = [{"kind": "KIND_GPU", "count": 1, "gpus": [1]}]
    with runtime(fake.url(protocol), device="cuda:1") as opened:
        assert opened.info.device == "cuda:1"
    fake.config["instance_group"] = []
    with runtime(fake.url(protocol)) as opened:
        assert opened.info.device == "triton"
    with pytest.raises(DeviceUnavailableError, match="does not say"):
        with runtime(fake.url(protocol), device="cpu"):
            pass


def _input(fake: FakeV2Server, name: str) -> dict[str, Any]:
    return next(each for each in fake.metadata["inputs"] if each["name"] == name)


def _spoil_dtype(fake: FakeV2Server) -> None:
    _input(fake, "input_ids")["datatype"] = "INT32"


def _spoil_rank(fake: FakeV2Server) -> None:
    _input(fake, "qtype")["shape"] = [-1]


def _forget_input(fake: FakeV2Server) -> None:
    fake.metadata["inputs"].pop()


def _want_more(fake: FakeV2Server) -> None:
    fake.metadata["inputs"].append(
        {"name": "token_type_ids", "datatype": "INT64", "shape": [-1, -1]}
    )


def _narrow_actions(fake: FakeV2Server) -> None:
    fake.metadata["outputs"][1]["shape"] = [-1, 7]


def _no_batches(fake: FakeV2Server) -> None:
    fake.config["max_batch_size"] = 0


def _other_tokenizer(fake: FakeV2Server) -> None:
    fake.config["parameters"] = {"tokenizer_sha256": {"string_value": "ab" * 32}}


SPOILED = {
    _spoil_dtype: "'input_ids' is INT32 .* not INT64",
    _spoil_rank: r"'qtype' is INT64 \[-1\], and not INT64 \[-1, 1\]",
    _forget_input: "no input 'qtype'",
    _want_more: "wants an input 'token_type_ids'",
    _narrow_actions: r"'act_logits' is FP32 \[-1, 7\], and not FP32 \[-1, 2\]",
    _no_batches: "max_batch_size is 0",
    _other_tokenizer: f"tokenizer {'ab' * 32}, and the one here is",
}


@both
@pytest.mark.parametrize(
    ("spoil", "told"), SPOILED.items(), ids=[each.__name__ for each in SPOILED]
)
def test_a_model_that_is_not_this_checkpoints_is_refused(
    fake: FakeV2Server, protocol: str, spoil: Any, told: str
) -> None:
    spoil(fake)
    with pytest.raises(GraphContractError, match=told) as raised:
        with runtime(fake.url(protocol)):
            pass
    assert "'tiny'" in str(raised.value)
    wait_until(lambda: established(fake) == 0)


@both
def test_the_same_tokenizer_is_confirmed(fake: FakeV2Server, protocol: str) -> None:
    fake.config["parameters"] = {"tokenizer_sha256": {"string_value": tokenizer().digest}}
    with runtime(fake.url(protocol)) as opened:
        assert opened.info.details["tokenizer"] == "the same"


@both
def test_a_model_that_is_not_served_is_told_with_what_is(fake: FakeV2Server, protocol: str) -> None:
    for options in ({"model": "other"}, {"version": 2}):
        with pytest.raises(RuntimeUnavailableError, match="It has: tiny 1 READY"):
            with runtime(fake.url(protocol), **options):
                pass
    assert fake.controls == []


@both
def test_a_pinned_version_is_the_one_asked_and_the_one_that_answers(
    fake: FakeV2Server, protocol: str
) -> None:
    fake.versions = ["1", "2"]
    fake.answering_version = "2"
    with runtime(fake.url(protocol), version=2) as opened:
        assert opened.info.details["model_version"] == "2"
        opened.forward(some_batch())
        fake.answering_version = "1"
        with pytest.raises(ServerFaultError, match="answered with version 1"):
            opened.forward(some_batch())


@both
def test_latest_follows_the_server_as_long_as_the_model_fits(
    fake: FakeV2Server, protocol: str
) -> None:
    with runtime(fake.url(protocol)) as opened:
        opened.forward(some_batch())
        fake.versions, fake.answering_version = ["2"], "2"
        opened.forward(some_batch())
        fake.versions, fake.answering_version = ["3"], "3"
        _other_tokenizer(fake)
        for _ in range(2):
            with pytest.raises(ServerFaultError, match="changed to version 3"):
                opened.forward(some_batch())


@both
def test_a_model_that_opening_loaded_is_unloaded_by_close(
    fake: FakeV2Server, protocol: str
) -> None:
    fake.loaded = False
    with runtime(fake.url(protocol), load=True) as opened:
        opened.forward(some_batch())
        assert fake.controls == ["load tiny"]
    assert fake.controls == ["load tiny", "unload tiny"]
    assert not fake.loaded


@both
def test_a_model_that_was_loaded_before_is_left_loaded(fake: FakeV2Server, protocol: str) -> None:
    with runtime(fake.url(protocol), load=True):
        pass
    assert fake.controls == []
    assert fake.loaded


@both
def test_a_server_that_lets_nobody_load_says_so(fake: FakeV2Server, protocol: str) -> None:
    fake.loaded = fake.may_load = False
    with pytest.raises(RuntimeUnavailableError, match=r"could not load it.*is not allowed"):
        with runtime(fake.url(protocol), load=True):
            pass


@both
@pytest.mark.parametrize(
    ("policy", "told"),
    [
        (None, "unbounded"),
        ({}, "unbounded"),
        ({"max_queue_size": 9}, "bounded to 9 requests: "),
        ({"default_timeout_microseconds": 2_500_000}, "bounded to 2.5 s: "),
        (
            {"max_queue_size": 9, "default_timeout_microseconds": 60_000_000},
            "bounded to 9 requests and 60 s: ",
        ),
    ],
)
def test_bounds_of_the_servers_queue_are_told(
    fake: FakeV2Server, protocol: str, policy: dict[str, Any] | None, told: str
) -> None:
    fake.config["dynamic_batching"] = {} if policy is None else {"default_queue_policy": policy}
    with runtime(fake.url(protocol)) as opened:
        queue = opened.info.details["queue"]
        assert queue.startswith(told)
        assert ("stalls" in queue) is (told != "unbounded")
