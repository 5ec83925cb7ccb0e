import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import psutil
import pytest

from drut.batching import collate
from drut.errors import (
    DeviceUnavailableError,
    ForwardError,
    GraphContractError,
    InvalidRequestError,
    OutOfMemoryError,
    RuntimeClosedError,
    RuntimeUnavailableError,
)
from drut.runtimes.base import Runtime
from drut.runtimes.openvino import OpenVinoOptions, OpenVinoRuntime
from drut.tensors import INPUTS, MASKED_LOGIT, OUTPUTS, Batch, EncodedRow
from graphs import write_graph

ONE_THREAD = OpenVinoOptions("cpu", threads=1)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_graph(tmp_path_factory.mktemp("graph") / "model.onnx")


@pytest.fixture(scope="module")
def runtime(graph: Path) -> OpenVinoRuntime:
    return OpenVinoRuntime(graph, ONE_THREAD)


def batch_of(*lengths: int, parallel: bool = False, seed: int = 0) -> Batch:
    """A batch with two or three options per row."""
    random = np.random.default_rng(seed)
    rows = []
    for index, length in enumerate(lengths):
        ids = random.integers(5, 800, length, dtype=np.int64)
        extra = np.zeros(length, np.int64) if parallel else None
        markers = np.arange(2 + index % 2, dtype=np.int64)
        rows.append(EncodedRow(ids, markers, index % 3, {}, extra, extra))  # type: ignore[typeddict-item]
    return collate(rows, pad_id=0)


def expected_logits(batch: Batch) -> np.ndarray:
    content = (batch.input_ids * batch.attention_mask).sum(axis=1, keepdims=True)
    scores = (content + batch.qtype[:, None] + batch.marker_pos) % 7
    return np.where(batch.marker_mask, scores, MASKED_LOGIT).astype(np.float32)


def test_a_graph_with_the_contract_runs(runtime: OpenVinoRuntime):
    batch = batch_of(9, 4, 12)
    options, actions = runtime.forward(batch)
    assert options.dtype == actions.dtype == np.float32
    np.testing.assert_array_equal(options, expected_logits(batch))
    assert actions.tolist() == [[9, 9], [4, 4], [12, 12]]


def test_the_facts_of_a_runtime(graph: Path):
    made = OpenVinoRuntime(graph, OpenVinoOptions("CPU", threads=2), batch_invariant=False)
    assert isinstance(made, Runtime)
    info = made.info
    assert (info.name, info.device, info.requested_device) == ("openvino", "cpu", "cpu")
    assert (info.precision, info.parallel, info.actions) == ("fp32", False, 2)
    assert (info.batch_invariant, info.length_invariant, info.concurrent_passes) == (False, True, 1)
    assert info.details["graph"] == str(graph)
    assert info.details["threads"] == 2
    assert info.details["computing"] == "fp32"


def test_streams_are_passes_side_by_side_with_threads_of_their_own(graph: Path):
    made = OpenVinoRuntime(graph, OpenVinoOptions("cpu", threads=1, streams=2))
    assert made.info.concurrent_passes == 2
    assert (made.info.details["threads"], made.info.details["streams"]) == (1, 2)
    batches = [batch_of(3 + index % 7, seed=index) for index in range(20)]
    with ThreadPoolExecutor(4) as pool:
        for batch, logits in zip(batches, pool.map(made.forward, batches), strict=True):
            np.testing.assert_array_equal(logits.options, expected_logits(batch))


def test_int8_is_refused_when_it_is_opened(graph: Path):
    with pytest.raises(RuntimeUnavailableError, match=r"int8 .* runtime='onnxruntime'"):
        OpenVinoRuntime(graph, ONE_THREAD, precision="int8")


def test_requests_are_as_many_as_passes_at_the_same_time_and_memory_stays(graph: Path):
    made = OpenVinoRuntime(graph, ONE_THREAD)
    for length in range(2, 200):
        made.forward(batch_of(length))
    assert made._idle.qsize() == 1
    process = psutil.Process()
    before = process.memory_info().rss
    for length in range(200, 600):
        made.forward(batch_of(length))
    assert process.memory_info().rss - before < 64 << 20


def test_a_parallel_graph_is_known_by_its_inputs(tmp_path: Path):
    made = OpenVinoRuntime(write_graph(tmp_path / "p.onnx", parallel=True), ONE_THREAD)
    assert made.info.parallel is True
    batch = batch_of(6, 3, parallel=True)
    np.testing.assert_array_equal(made.forward(batch).options, expected_logits(batch))
    with pytest.raises(ForwardError, match="layouts"):
        made.forward(batch_of(6, 3))


def test_an_act_head_of_unknown_width(tmp_path: Path):
    made = OpenVinoRuntime(write_graph(tmp_path / "g.onnx", actions="actions"), ONE_THREAD)
    assert made.info.actions is None


def test_answers_of_one_pass_survive_the_next(runtime: OpenVinoRuntime):
    first = batch_of(5, 9)
    kept = runtime.forward(first).options
    runtime.forward(batch_of(9, 5, seed=3))
    np.testing.assert_array_equal(kept, expected_logits(first))


def test_many_threads_get_their_own_answers(runtime: OpenVinoRuntime):
    batches = [batch_of(3 + index % 7, 4 + index % 5, seed=index) for index in range(60)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(runtime.forward, batches))
    for batch, logits in zip(batches, found, strict=True):
        np.testing.assert_array_equal(logits.options, expected_logits(batch))


def test_all_faults_of_a_graph_are_told_at_once(tmp_path: Path):
    path = write_graph(tmp_path / "odd.onnx", inputs=INPUTS[:2])
    with pytest.raises(GraphContractError, match=r"'marker_pos'.*'marker_mask'.*'qtype'"):
        OpenVinoRuntime(path, ONE_THREAD)


@pytest.mark.parametrize("name", [spec.name for spec in OUTPUTS])
def test_an_output_of_another_type_is_found_when_the_graph_is_opened(tmp_path: Path, name: str):
    outputs = [spec._replace(dtype="float64") if spec.name == name else spec for spec in OUTPUTS]
    path = write_graph(tmp_path / "odd.onnx", outputs=outputs)
    with pytest.raises(GraphContractError, match=f"output '{name}' is f64"):
        OpenVinoRuntime(path, ONE_THREAD)


@pytest.mark.parametrize("content", [b"", b"garbage"])
def test_a_damaged_file_is_no_runtime(tmp_path: Path, content: bytes):
    path = tmp_path / "broken.onnx"
    path.write_bytes(content)
    with pytest.raises(RuntimeUnavailableError, match=r"(?s)broken\.onnx.*export"):
        OpenVinoRuntime(path, ONE_THREAD)


@pytest.mark.parametrize("device", ["cuda", "tensorrt:1"])
def test_another_device_is_refused(graph: Path, device: str):
    with pytest.raises(DeviceUnavailableError, match="onnxruntime"):
        OpenVinoRuntime(graph, OpenVinoOptions(device))


@pytest.mark.parametrize("threads", [0, -1, True, 1.5])
def test_threads_are_a_positive_whole_number(graph: Path, threads: Any):
    with pytest.raises(InvalidRequestError, match="threads"):
        OpenVinoRuntime(graph, OpenVinoOptions(threads=threads))


def test_a_closed_runtime_says_so(graph: Path):
    made = OpenVinoRuntime(graph, ONE_THREAD)
    made.close()
    made.close()
    with pytest.raises(RuntimeClosedError):
        made.forward(batch_of(3))


def test_a_forked_child_is_told_to_load_again(
    runtime: OpenVinoRuntime, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(ForwardError, match="forked"):
        runtime.forward(batch_of(3))


class _Failing:
    def infer(self, feed: Any, share_inputs: bool) -> Any:
        raise RuntimeError(self.message)

    def __init__(self, message: str) -> None:
        self.message = message


@pytest.mark.parametrize(
    ("message", "kind"), [("a node failed", ForwardError), ("std::bad_alloc", OutOfMemoryError)]
)
def test_a_failed_pass_is_a_forward_error(graph: Path, message: str, kind: type[Exception]):
    made = OpenVinoRuntime(graph, ONE_THREAD)
    made._idle.put(_Failing(message))
    with pytest.raises(kind, match="1 x 4 tokens") as caught:
        made.forward(batch_of(4))
    assert type(caught.value) is kind
    made._idle.get_nowait()
    assert made.forward(batch_of(4)).options.shape == (1, 2)


def test_properties_reach_openvino(graph: Path):
    made = OpenVinoRuntime(graph, OpenVinoOptions(threads=1, properties={"NUM_STREAMS": 1}))
    assert made.info.details["streams"] == 1
    with pytest.raises(RuntimeUnavailableError, match="NO_SUCH_PROPERTY"):
        OpenVinoRuntime(graph, OpenVinoOptions(properties={"NO_SUCH_PROPERTY": 1}))


_CORE = openvino.Core


class _OldProcessor:
    """An OpenVINO whose processor computes in float32 alone."""

    def __init__(self) -> None:
        self._real = _CORE()

    def get_property(self, device: str, name: str) -> Any:
        return ["FP32"] if name == "OPTIMIZATION_CAPABILITIES" else "an old one"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def test_bf16_is_computed_in_float32_where_the_processor_cannot_and_says_so(
    graph: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("drut.runtimes.openvino.openvino.Core", _OldProcessor)
    with pytest.warns(RuntimeWarning, match="bfloat16"):
        made = OpenVinoRuntime(graph, ONE_THREAD, precision="bf16")
    assert made.info.precision == "fp32"
    assert made.info.details["computing"] == "fp32"


def test_signals_are_handled_after_models_that_ended_in_any_order(graph: Path):
    code = """
import gc, signal, sys
from pathlib import Path
from drut.runtimes.openvino import OpenVinoOptions, OpenVinoRuntime

made = [OpenVinoRuntime(Path(sys.argv[1]), OpenVinoOptions(threads=1)) for _ in range(4)]
for place in (0, 2, 0, 0):
    del made[place]
    gc.collect()
signal.signal(signal.SIGTERM, lambda *_: print("told to end"))
signal.raise_signal(signal.SIGTERM)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, graph], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "told to end\n"), done.stderr


def test_importing_it_leaves_nothing_in_the_home_directory(tmp_path: Path):
    code = "import drut.runtimes.openvino, sys; assert 'openvino_telemetry' not in sys.modules"
    env = {**os.environ, "HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=env, timeout=60)
    assert list(tmp_path.iterdir()) == []
