"""docker/smoke.py against the real server: what passes, and what is named when it does not."""

import json
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import onnx
import pytest

from docker_files import DOCKER
from e2e.triton.conftest import SHIPPED
from triton_models import serve_bundle
from triton_server import TritonServer, triton_server

NOBODY = "127.0.0.1:9"
ALL = ("server", "models", "versions", "graph", "decision", "batches", "memory")
NO_LOAD = ("--skip=batches", "--skip=memory")


def smoke(http: str, grpc: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and the report with its checks by name."""
    command = [
        sys.executable,
        DOCKER / "smoke.py",
        f"--http=http://{http}",
        f"--grpc=grpc://{grpc}",
    ]
    done = subprocess.run(
        [*command, "--json", "--requests=1", *arguments],
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.stderr == ""
    told = json.loads(done.stdout)
    told["checks"] = {each["check"]: each for each in told["checks"]}
    assert tuple(told["checks"]) == ALL
    assert told["passed"] == (done.returncode == 0)
    return done.returncode, told


def failed(told: dict[str, Any]) -> list[str]:
    return [name for name, each in told["checks"].items() if each["passed"] is False]


@pytest.fixture(scope="module")
def other_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The starter with a graph that says the opposite; its tokenizer and shapes are the same."""
    repository = tmp_path_factory.mktemp("other")
    for name in ("starter", "starter_decision"):
        shutil.copytree(SHIPPED / name, repository / name)
    config = repository / "starter" / "config.pbtxt"
    config.write_text(config.read_text().partition("model_warmup")[0])  # it would take seconds
    path = repository / "starter" / "1" / "model.onnx"
    model = onnx.load(path, load_external_data=False)
    (last,) = [node for node in model.graph.node if "logits" in node.output]
    last.output[list(last.output).index("logits")] = "right"
    model.graph.node.append(onnx.helper.make_node("Neg", ["right"], ["logits"]))
    path.write_bytes(model.SerializeToString())
    return repository


def test_a_good_server_passes_every_check(triton: TritonServer) -> None:
    code, told = smoke(triton.http, triton.grpc, f"--pid={triton.pid}")
    assert code == 0, told
    assert all(each["passed"] for each in told["checks"].values())
    assert told["triton"] == triton.call("")["version"]
    assert set(told["drut"]) == {"starter", "starter_decision"}
    assert told["mean_batch"] >= 2
    assert told["memory"][0].startswith("processes ")


def test_the_servers_metrics_tell_its_memory_from_afar(triton: TritonServer) -> None:
    code, told = smoke(
        triton.http,
        triton.grpc,
        f"--metrics=http://{triton.metrics}/metrics",
        *(f"--skip={name}" for name in ("graph", "decision", "batches")),
    )
    assert code == 0, told
    assert told["memory"][0].startswith("host ")


def test_without_a_figure_of_memory_the_check_does_not_pass(triton: TritonServer) -> None:
    code, told = smoke(
        triton.http,
        triton.grpc,
        f"--metrics=http://{NOBODY}/metrics",
        *(f"--skip={name}" for name in ("graph", "decision", "batches")),
    )
    assert (code, failed(told)) == (1, ["memory"])
    assert "--pid" in told["checks"]["memory"]["do"]


def test_no_server_is_told_and_nothing_else_is_tried() -> None:
    code, told = smoke(NOBODY, NOBODY)
    assert (code, failed(told)) == (1, ["server"])
    assert "127.0.0.1:9" in told["checks"]["server"]["expected"]
    assert "start it" in told["checks"]["server"]["do"]
    assert [each["passed"] for each in told["checks"].values()][1:] == [None] * 6


def test_a_server_that_never_answers_is_left_in_time() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        at = f"127.0.0.1:{deaf.getsockname()[1]}"
        begun = time.monotonic()
        code, told = smoke(at, at, "--seconds=1")
        took = time.monotonic() - begun
    assert (code, failed(told)) == (1, ["server"])
    assert took < 15  # of which the interpreter's start is most


def test_a_missing_decision_model_is_named(tmp_path: Path) -> None:
    bundle = serve_bundle(tmp_path)
    shutil.rmtree(tmp_path / "tiny_decision")
    with triton_server(tmp_path) as server:
        code, told = smoke(server.http, server.grpc, f"--bundle={bundle}")
        server.kill()
    assert (code, failed(told)) == (1, ["models"])
    assert "tiny_decision to be ready" in told["checks"]["models"]["expected"]
    assert "it has tiny" in told["checks"]["models"]["found"]
    assert "drut repository write tiny" in told["checks"]["models"]["do"]


def test_another_bundle_of_the_same_name_is_told_by_its_answers(other_weights: Path) -> None:
    with triton_server(other_weights) as server:
        code, told = smoke(server.http, server.grpc, *NO_LOAD)
        server.kill()
    assert (code, failed(told)) == (1, ["graph", "decision"])
    assert "to give team/" in told["checks"]["graph"]["expected"]
    assert "drut verify" in told["checks"]["decision"]["do"]


def test_answers_that_were_recorded_of_another_bundle_are_no_measure(
    triton: TritonServer, tmp_path: Path
) -> None:
    rows = json.loads((DOCKER / "smoke_rows.json").read_text(encoding="utf-8"))
    other = tmp_path / "rows.json"
    other.write_text(json.dumps({**rows, "bundle": "mine"}), encoding="utf-8")
    code, told = smoke(triton.http, triton.grpc, f"--rows={other}", *NO_LOAD)
    assert (code, failed(told)) == (1, ["graph", "decision"])
    assert "--record" in told["checks"]["graph"]["do"]


def test_files_of_another_drut_and_passes_too_small_are_told(triton: TritonServer) -> None:
    code, told = smoke(
        triton.http,
        triton.grpc,
        "--drut-version=0.0.1",
        "--least-batch=1000",
        *(f"--skip={name}" for name in ("graph", "decision", "memory")),
    )
    assert (code, failed(told)) == (1, ["versions", "batches"])
    assert "drut 0.0.1" in told["checks"]["versions"]["expected"]
    assert "1000 rows" in told["checks"]["batches"]["expected"]


def test_recording_gives_what_is_committed(tmp_path: Path) -> None:
    """So the rows are answers of the bundle that ships, and the documented command makes them."""
    committed = json.loads((DOCKER / "smoke_rows.json").read_text(encoding="utf-8"))
    bare = tmp_path / "rows.json"
    states = [{"state": row["state"]} for row in committed["rows"]]
    bare.write_text(json.dumps({"questions": committed["questions"], "rows": states}))
    command = [sys.executable, DOCKER / "smoke.py", "--record", f"--rows={bare}"]
    subprocess.run([*command, f"--bundle={SHIPPED / 'starter'}"], check=True)
    made = json.loads(bare.read_text(encoding="utf-8"))
    assert made["bundle"] == "starter"
    for row, expected in zip(made["rows"], committed["rows"], strict=True):
        for question, shares in expected["probabilities"].items():
            assert row["probabilities"][question] == pytest.approx(shares, abs=5e-4)


@pytest.mark.parametrize("wrong", ["--bundle=nowhere", "--rows=nowhere", "--seconds=0", "--pid=x"])
def test_a_wrong_command_is_no_failed_check(wrong: str) -> None:
    done = subprocess.run(
        [sys.executable, DOCKER / "smoke.py", wrong], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert wrong.partition("=")[0] in done.stderr
