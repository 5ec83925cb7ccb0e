"""The fixture itself: nothing else can be trusted where this fails."""

import http.client
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import triton_server as helper
from e2e.triton.asking import HURRY, over_grpc
from triton_models import edit_config, serve_bundle
from triton_server import (
    SHARED_MEMORY,
    TritonServer,
    TritonStartError,
    running,
    triton_server,
)


def left_of(server: TritonServer) -> list[str]:
    """Processes and shared memory that a server has left behind."""
    return [*regions(server), *map(str, running(server.pid))]


def regions(server: TritonServer) -> list[str]:
    return [path.name for path in SHARED_MEMORY.glob(f"{server.identity}*")]


def test_the_server_is_our_own_and_is_reached_from_this_machine_only(triton: TritonServer) -> None:
    assert triton.call("")["name"] == triton.identity
    ports = {int(at.rpartition(":")[2]) for at in (triton.http, triton.grpc, triton.metrics)}
    found = {port: address for address, port in listening() if port in ports}
    assert found.keys() == ports
    assert {address[-8:] for address in found.values()} == {"0100007F"}  # 127.0.0.1


def listening() -> Iterator[tuple[str, int]]:
    """Addresses, in hexadecimal, and ports on which any process accepts connections."""
    for table in ("tcp", "tcp6"):  # gRPC takes an address of version 6 for either
        for line in Path("/proc/net", table).read_text(encoding="ascii").splitlines()[1:]:
            own, state = line.split()[1], line.split()[3]
            if state == "0A":
                yield own.split(":")[0], int(own.split(":")[1], 16)


def test_nothing_is_left_of_a_server_however_it_ends_and_the_next_one_serves(
    tmp_path: Path,
) -> None:
    serve_bundle(tmp_path)
    with triton_server(tmp_path) as server:
        assert regions(server)
        assert len(running(server.pid)) > 1
        server.kill()
        assert left_of(server) == []
    with triton_server(tmp_path, auto_complete=True) as again:  # as servers do by themselves
        assert over_grpc(again, "tiny_decision", "x", HURRY)["answers"]
        host, port = again.http.split(":")
        idle = http.client.HTTPConnection(host, int(port))  # it delays an orderly end
        idle.request("GET", "/v2/health/live")
        idle.getresponse().read()
    idle.close()
    assert left_of(again) == []
    assert again.process.returncode is not None


def test_what_a_killed_test_run_left_is_swept_away(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = SHARED_MEMORY / f"{helper.PREFIX}{gone.pid}-0123"
    kept = SHARED_MEMORY / f"{helper.PREFIX}{os.getpid()}-0123"
    left.touch()
    kept.touch()
    try:
        with pytest.raises(TritonStartError), triton_server(tmp_path / "nothing"):
            pass
        assert (left.exists(), kept.exists()) == (False, True)
    finally:
        kept.unlink()


def test_a_failed_start_shows_the_servers_own_words(tmp_path: Path) -> None:
    edit_config(serve_bundle(tmp_path), 'backend: "onnxruntime"', 'backend: "nonsense"')
    with pytest.raises(TritonStartError, match="nonsense"), triton_server(tmp_path):
        pass


def test_a_start_that_hangs_ends_with_the_log(tmp_path: Path) -> None:
    model = serve_bundle(tmp_path)
    (model.with_name("tiny_decision") / "1" / "model.py").write_text(
        "import time\ntime.sleep(600)\n", encoding="utf-8"
    )
    with pytest.raises(TritonStartError, match=r"within 2.0 s(.|\n)*tiny_decision"):
        with triton_server(tmp_path, seconds=2.0):
            pass


def test_a_missing_environment_is_told_with_the_command_that_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helper, "ENVIRONMENT", tmp_path)
    with pytest.raises(RuntimeError, match="make triton"), triton_server(tmp_path):
        pass
