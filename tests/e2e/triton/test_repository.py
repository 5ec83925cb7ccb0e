"""The generated files in the hands of the real server: versions, rollbacks, reloads, memory."""

import json
import os
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

import drut
from drut_export.triton_check import check_repository
from drut_export.triton_files import write_triton_files
from e2e.triton.asking import HURRY, alike, ask, over_grpc
from tiny_checkpoint import ALL
from triton_models import serve_bundle
from triton_server import ROOT, TritonServer

Load = Callable[[str], None]


def warmer(model: Path, version: int, temperature: float) -> None:
    """Give a version a temperature of its own, so that its answers are known from others'."""
    path = model / str(version) / "rl_agent_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**config, "temperature": [temperature] * 3}), encoding="utf-8")


@pytest.mark.parametrize("name", ["cuda", "tensorrt", "parallel", "alone"])
def test_every_kind_of_config_loads_and_answers(
    name: str, explicit: TritonServer, loaded: Load
) -> None:
    loaded(name)
    with drut.Agent(explicit.repository / name, device="cpu", threads=1) as agent:
        found = over_grpc(explicit, f"{name}_decision", "It crashes", ALL)
        alike(found, agent.predict("It crashes", ALL))


def test_a_graph_that_is_not_batch_invariant_runs_row_by_row(
    explicit: TritonServer, loaded: Load
) -> None:
    loaded("alone")
    before = explicit.statistics("alone")
    over_grpc(explicit, "alone_decision", "It crashes", ALL)
    after = explicit.statistics("alone")
    assert after["rows"] - before["rows"] == after["passes"] - before["passes"] == len(ALL)
    assert explicit.call("models/alone/config")["max_batch_size"] == 1


def test_a_new_version_is_served_and_a_rollback_brings_the_old_one_back(
    explicit: TritonServer, loaded: Load
) -> None:
    loaded("rolled")
    model = explicit.repository / "rolled"
    first = over_grpc(explicit, "rolled_decision", "It crashes", ALL)

    serve_bundle(explicit.repository, "rolled", 2)
    warmer(model, 2, 3.0)
    reload(explicit)
    second = over_grpc(explicit, "rolled_decision", "It crashes", ALL)
    assert explicit.is_ready("rolled", 2)
    assert not explicit.is_ready("rolled", 1)
    assert second != first
    with drut.Agent(model, device="cpu", threads=1) as agent:
        alike(second, agent.predict("It crashes", ALL))

    write_triton_files(model, version=1)
    assert check_repository(explicit.repository) == []
    reload(explicit)
    assert over_grpc(explicit, "rolled_decision", "It crashes", ALL) == first
    assert explicit.is_ready("rolled", 1)
    assert not explicit.is_ready("rolled", 2)


def reload(server: TritonServer) -> None:
    for name in ("rolled", "rolled_decision"):
        server.load(name)
        server.wait_ready(name)


def test_callers_of_a_model_that_is_unloaded_are_told_to_come_back(
    explicit: TritonServer, loaded: Load
) -> None:
    loaded("rolled")
    found: list[Any] = []
    stop = threading.Event()

    def keep_asking(client: grpcclient.InferenceServerClient) -> None:
        while not stop.is_set():
            try:
                found.append(ask(client, "rolled_decision", "x", HURRY))
            except InferenceServerException as exc:
                found.append(exc)

    with grpcclient.InferenceServerClient(explicit.grpc) as client:
        threads = [threading.Thread(target=keep_asking, args=(client,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.2)
        explicit.unload("rolled")
        time.sleep(0.3)
        explicit.load("rolled")
        explicit.wait_ready("rolled")
        time.sleep(0.2)
        stop.set()
        for thread in threads:
            thread.join()
        assert ask(client, "rolled_decision", "x", HURRY)["answers"]
    errors = [each for each in found if isinstance(each, InferenceServerException)]
    assert errors
    assert {each.status() for each in errors} == {"StatusCode.UNAVAILABLE"}
    assert isinstance(found[0], dict)


def test_memory_does_not_grow_with_requests(triton: TritonServer) -> None:
    with grpcclient.InferenceServerClient(triton.grpc) as client:
        for count in (60, 120):
            start = resident(triton.pid)
            for n in range(count):
                if n % 3:
                    ask(client, "tiny_decision", f"invoice {n} " * (n % 40), ALL)
                else:
                    with pytest.raises(InferenceServerException):
                        ask(client, "tiny_decision", b"\xff", ALL)
    assert resident(triton.pid) - start < 12 << 20


def resident(group: int) -> int:
    """Bytes of memory of a server and its Python processes, shared pages counted once each."""
    total = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if os.getpgid(int(entry.name)) == group:
                    text = (entry / "smaps_rollup").read_text(encoding="ascii")
                    total += int(re.search(r"^Pss: +(\d+) kB", text, re.MULTILINE)[1]) << 10
            except (ProcessLookupError, FileNotFoundError):
                continue
    return total


def test_the_graph_itself_is_reached_as_the_config_says(triton: TritonServer) -> None:
    """For clients that tokenise themselves: [rows, tokens], and question types as a column."""
    rows, tokens, options = 3, 12, 4
    feed = {
        "input_ids": np.ones((rows, tokens), np.int64),
        "attention_mask": np.ones((rows, tokens), np.int64),
        "marker_pos": np.tile(np.arange(options, dtype=np.int64), (rows, 1)),
        "marker_mask": np.ones((rows, options), np.bool_),
        "qtype": np.zeros((rows, 1), np.int64),
    }
    inputs = []
    for name, array in feed.items():
        kind = "BOOL" if array.dtype == np.bool_ else "INT64"
        tensor = grpcclient.InferInput(name, array.shape, kind)
        tensor.set_data_from_numpy(array)
        inputs.append(tensor)
    with grpcclient.InferenceServerClient(triton.grpc) as client:
        found = client.infer("starter", inputs)
    assert found.as_numpy("logits").shape == (rows, options)
    assert found.as_numpy("act_logits").shape == (rows, 1)


def test_the_committed_files_are_what_would_be_written_today(tmp_path: Path) -> None:
    shipped = ROOT / "model_repository"
    for version in (shipped / "starter").iterdir():
        if version.is_dir():
            (tmp_path / "starter").mkdir(exist_ok=True)
            (tmp_path / "starter" / version.name).symlink_to(version)
    write_triton_files(tmp_path / "starter")
    for name in ("starter/config.pbtxt", "starter_decision/config.pbtxt"):
        assert (tmp_path / name).read_text() == (shipped / name).read_text()
    committed = (shipped / "starter_decision" / "1" / "model.py").read_text()
    assert (tmp_path / "starter_decision" / "1" / "model.py").read_text() == committed
    assert check_repository(tmp_path) == []
