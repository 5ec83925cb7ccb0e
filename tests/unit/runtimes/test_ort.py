import os
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.external_data_helper import set_external_data

from drut.batching import collate
from drut.errors import (
    DeviceUnavailableError,
    ForwardError,
    GraphContractError,
    InvalidRequestError,
    InvalidTypeError,
    OutOfMemoryError,
    RuntimeClosedError,
    RuntimeUnavailableError,
)
from drut.runtimes.base import Runtime
from drut.runtimes.devices import CPU, CUDA, TENSORRT
from drut.runtimes.ort import OrtOptions, OrtRuntime, conflicting_packages
from drut.runtimes.threads import usable_cpus
from drut.tensors import (
    INPUTS,
    MASKED_LOGIT,
    OUTPUTS,
    PARALLEL_INPUTS,
    Batch,
    EncodedRow,
    TensorSpec,
)
from graphs import decision_model, write_graph

ON_CPU = OrtOptions("cpu", threads=1)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_graph(tmp_path_factory.mktemp("graph") / "model.onnx")


@pytest.fixture(scope="module")
def runtime(graph: Path) -> OrtRuntime:
    return OrtRuntime(graph, ON_CPU)


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


class StubSession:
    """Stands for a session on hardware that this machine may not have."""

    def __init__(self, real: Any, used: list[str]) -> None:
        self._real = real
        self._used = used

    def get_providers(self) -> list[str]:
        return self._used

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Pretend which providers are built in and which one a session really gets."""

    def pretend(available: list[str], used: list[str]) -> list[Any]:
        asked: list[Any] = []
        real = onnxruntime.InferenceSession

        def session(path: str, sess_options: Any = None, providers: Any = None) -> StubSession:
            asked.append(providers)
            return StubSession(real(path, sess_options, providers=[CPU]), used)

        monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: available)
        monkeypatch.setattr(onnxruntime, "InferenceSession", session)
        monkeypatch.setattr(onnxruntime, "preload_dlls", lambda: None, raising=False)
        return asked

    return pretend


def test_a_graph_with_the_contract_runs(runtime: OrtRuntime):
    batch = batch_of(9, 4, 12)
    options, actions = runtime.forward(batch)
    assert options.dtype == actions.dtype == np.float32
    np.testing.assert_array_equal(options, expected_logits(batch))
    assert actions.tolist() == [[9, 9], [4, 4], [12, 12]]


def test_the_facts_of_a_session(graph: Path):
    made = OrtRuntime(graph, OrtOptions("CPU", threads=1), precision="fp16")
    assert isinstance(made, Runtime)
    info = made.info
    assert (info.name, info.device, info.requested_device) == ("onnxruntime", "cpu", "cpu")
    assert (info.precision, info.parallel, info.actions) == ("fp16", False, 2)
    assert info.details["providers"] == [CPU]
    assert info.details["threads"] == 1
    assert info.details["graph"] == str(graph)
    assert info.details["version"] == onnxruntime.__version__


def test_a_parallel_graph_is_known_by_its_inputs(tmp_path: Path):
    made = OrtRuntime(write_graph(tmp_path / "p.onnx", parallel=True), ON_CPU)
    assert made.info.parallel is True
    batch = batch_of(6, 3, parallel=True)
    np.testing.assert_array_equal(made.forward(batch).options, expected_logits(batch))


def test_an_act_head_of_unknown_width(tmp_path: Path):
    made = OrtRuntime(write_graph(tmp_path / "g.onnx", actions="actions"), ON_CPU)
    assert made.info.actions is None


def test_the_order_of_inputs_in_the_file_is_free(tmp_path: Path):
    made = OrtRuntime(write_graph(tmp_path / "g.onnx", inputs=INPUTS[::-1]), ON_CPU)
    batch = batch_of(5, 7)
    np.testing.assert_array_equal(made.forward(batch).options, expected_logits(batch))


def test_a_relative_path_is_resolved(graph: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(graph.parent)
    assert OrtRuntime(Path(graph.name), ON_CPU).info.device == "cpu"


def test_external_data_is_found_through_a_link(tmp_path: Path):
    store = tmp_path / "store"
    store.mkdir()
    path = store / "model.onnx"
    model = decision_model()
    (weights,) = (each for each in model.graph.initializer if each.name == "one_row")
    set_external_data(weights, "model.onnx.data")
    onnx.save(model, path)
    assert (store / "model.onnx.data").is_file()
    link = tmp_path / "model.onnx"
    link.symlink_to(path)
    batch = batch_of(5)
    np.testing.assert_array_equal(
        OrtRuntime(link, ON_CPU).forward(batch).options, expected_logits(batch)
    )
    (store / "model.onnx.data").unlink()
    with pytest.raises(RuntimeUnavailableError, match=r"model\.onnx"):
        OrtRuntime(link, ON_CPU)


def without(name: str) -> list[TensorSpec]:
    return [spec for spec in INPUTS if spec.name != name]


def refused(tmp_path: Path, mention: str, **graph: Any) -> None:
    path = write_graph(tmp_path / "odd.onnx", **graph)
    with pytest.raises(GraphContractError, match=mention) as caught:
        OrtRuntime(path, ON_CPU)
    assert "odd.onnx" in str(caught.value)
    assert "drut export" in str(caught.value)


@pytest.mark.parametrize("name", [spec.name for spec in INPUTS])
def test_a_missing_input_is_found_when_the_graph_is_opened(tmp_path: Path, name: str):
    refused(tmp_path, f"no input '{name}'", inputs=without(name))


@pytest.mark.parametrize("name", [spec.name for spec in INPUTS])
def test_an_input_of_another_type_is_found_when_the_graph_is_opened(tmp_path: Path, name: str):
    inputs = [spec._replace(dtype="int32") if spec.name == name else spec for spec in INPUTS]
    refused(tmp_path, rf"input '{name}' is tensor\(int32\)", inputs=inputs)


def test_an_input_of_another_rank_is_found_when_the_graph_is_opened(tmp_path: Path):
    inputs = [
        spec._replace(axes=("rows", "one")) if spec.name == "qtype" else spec for spec in INPUTS
    ]
    refused(tmp_path, "'qtype' is .* of rank 2, not int64 of rank 1", inputs=inputs)


def test_an_input_that_nobody_feeds_is_found_when_the_graph_is_opened(tmp_path: Path):
    extra = TensorSpec("token_type_ids", "int64", ("rows", "tokens"))
    refused(tmp_path, "unknown input 'token_type_ids'", inputs=[*INPUTS, extra])


@pytest.mark.parametrize("given", PARALLEL_INPUTS, ids=lambda spec: spec.name)
def test_half_a_parallel_layout_is_refused(tmp_path: Path, given: TensorSpec):
    (other,) = (spec.name for spec in PARALLEL_INPUTS if spec is not given)
    refused(tmp_path, f"no input '{other}'", inputs=[*INPUTS, given])


@pytest.mark.parametrize("name", [spec.name for spec in OUTPUTS])
def test_a_missing_output_is_found_when_the_graph_is_opened(tmp_path: Path, name: str):
    outputs = [spec for spec in OUTPUTS if spec.name != name]
    refused(tmp_path, f"no output '{name}'", outputs=outputs)


@pytest.mark.parametrize("name", [spec.name for spec in OUTPUTS])
def test_an_output_of_another_type_is_found_when_the_graph_is_opened(tmp_path: Path, name: str):
    outputs = [spec._replace(dtype="float64") if spec.name == name else spec for spec in OUTPUTS]
    refused(tmp_path, rf"output '{name}' is tensor\(double\)", outputs=outputs)


def test_all_faults_of_a_graph_are_told_at_once(tmp_path: Path):
    refused(tmp_path, "'marker_pos'.*'marker_mask'.*'qtype'", inputs=INPUTS[:2])


@pytest.mark.parametrize("content", [b"", b"garbage", None])
def test_a_damaged_file_is_no_runtime(tmp_path: Path, graph: Path, content: bytes | None):
    path = tmp_path / "broken.onnx"
    path.write_bytes(graph.read_bytes()[:200] if content is None else content)
    with pytest.raises(RuntimeUnavailableError, match=r"broken\.onnx.*export"):
        OrtRuntime(path, ON_CPU)


def test_a_missing_file_is_no_runtime(tmp_path: Path):
    with pytest.raises(RuntimeUnavailableError, match=r"none\.onnx"):
        OrtRuntime(tmp_path / "none.onnx", ON_CPU)


@pytest.mark.parametrize("device", ["cuda", "cuda:1", "tensorrt"])
def test_a_device_that_is_not_built_in_is_refused_at_once(
    graph: Path, machine: Callable[..., list[Any]], device: str
):
    asked = machine([CPU], [CPU])
    with pytest.raises(DeviceUnavailableError, match=r"onnxruntime.*drut\[gpu\]"):
        OrtRuntime(graph, OrtOptions(device))
    assert asked == []


@pytest.mark.skipif(
    CUDA in onnxruntime.get_available_providers(), reason="this onnxruntime knows CUDA"
)
def test_this_machine_has_no_cuda_and_says_so(graph: Path):
    with pytest.raises(DeviceUnavailableError, match="CUDA"):
        OrtRuntime(graph, OrtOptions("cuda"))


@pytest.mark.parametrize(
    ("device", "available", "used"),
    [
        ("cuda", [CUDA, CPU], [CPU]),
        ("tensorrt", [TENSORRT, CUDA, CPU], [CUDA, CPU]),
        ("tensorrt", [TENSORRT, CUDA, CPU], [CPU]),
    ],
)
def test_a_named_device_that_does_not_load_is_an_error(
    graph: Path,
    machine: Callable[..., list[Any]],
    device: str,
    available: list[str],
    used: list[str],
):
    machine(available, used)
    with pytest.raises(DeviceUnavailableError, match=rf"'{device}:0' was asked for.*{used[0]}"):
        OrtRuntime(graph, OrtOptions(device))


def test_auto_goes_on_without_cuda_after_one_warning(
    graph: Path, machine: Callable[..., list[Any]]
):
    machine([CUDA, CPU], [CPU])
    with pytest.warns(RuntimeWarning, match="CUDA.*Going on with cpu") as caught:
        made = OrtRuntime(graph)
    assert len(caught) == 1
    assert (made.info.device, made.info.requested_device) == ("cpu", "auto")
    assert made.forward(batch_of(4))


def test_auto_without_cuda_in_the_build_says_nothing(
    graph: Path, machine: Callable[..., list[Any]]
):
    asked = machine([CPU], [CPU])
    assert OrtRuntime(graph, OrtOptions("auto")).info.device == "cpu"
    assert asked == [[(CPU, {})]]


@pytest.mark.parametrize(
    ("options", "device"),
    [
        (OrtOptions(), "cuda:0"),
        (OrtOptions("cuda"), "cuda:0"),
        (OrtOptions("cuda:1"), "cuda:1"),
        (OrtOptions(providers=[(CUDA, {"device_id": 1}), CPU]), "cuda:1"),
        (OrtOptions(provider_options={CUDA: {"device_id": "2"}}), "cuda:2"),
    ],
    ids=str,
)
def test_the_effective_device_is_told(
    graph: Path, machine: Callable[..., list[Any]], options: OrtOptions, device: str
):
    machine([CUDA, CPU], [CUDA, CPU])
    assert OrtRuntime(graph, options).info.device == device


def test_tensorrt_runs_where_it_is_named(graph: Path, machine: Callable[..., list[Any]]):
    asked = machine([TENSORRT, CUDA, CPU], [TENSORRT, CUDA, CPU])
    assert OrtRuntime(graph, OrtOptions("tensorrt:1")).info.device == "tensorrt:1"
    assert [name for name, _ in asked[0]] == [TENSORRT, CUDA, CPU]


@pytest.mark.parametrize(
    ("device", "providers"), [("cuda", [CPU]), ("cpu", [CUDA, CPU]), ("tensorrt", [CUDA, CPU])]
)
def test_a_named_device_is_a_promise_that_providers_do_not_break(
    graph: Path, machine: Callable[..., list[Any]], device: str, providers: list[str]
):
    machine([TENSORRT, CUDA, CPU], providers)
    with pytest.raises((DeviceUnavailableError, InvalidRequestError), match=device):
        OrtRuntime(graph, OrtOptions(device, providers=providers))


def test_providers_and_their_options_reach_the_session(
    graph: Path, machine: Callable[..., list[Any]]
):
    asked = machine([CUDA, CPU], [CUDA, CPU])
    options = OrtOptions(
        providers=[(CUDA, {"device_id": 0, "gpu_mem_limit": 1}), CPU],
        provider_options={CUDA: {"gpu_mem_limit": 2}, CPU: {"use_arena": "1"}},
    )
    OrtRuntime(graph, options)
    OrtRuntime(graph, OrtOptions("cuda", provider_options={CUDA: {"gpu_mem_limit": 3}}))
    assert asked[0] == [(CUDA, {"device_id": 0, "gpu_mem_limit": 2}), (CPU, {"use_arena": "1"})]
    assert asked[1][0][1]["gpu_mem_limit"] == 3
    assert asked[1][0][1]["cudnn_conv_algo_search"] == "HEURISTIC"


def test_explicit_providers_run_for_real(graph: Path):
    made = OrtRuntime(graph, OrtOptions(providers=[CPU]))
    assert (made.info.device, made.info.requested_device) == ("cpu", "auto")


def test_no_providers_at_all_are_refused(graph: Path):
    with pytest.raises(InvalidRequestError, match="providers"):
        OrtRuntime(graph, OrtOptions(providers=[]))


def test_an_unknown_provider_is_refused_and_not_replaced(graph: Path):
    with pytest.raises((DeviceUnavailableError, InvalidRequestError), match="NopeProvider"):
        OrtRuntime(graph, OrtOptions(providers=["NopeProvider", CPU]))


@pytest.mark.parametrize(("device", "error"), [("gpu", InvalidRequestError), (0, InvalidTypeError)])
def test_an_unknown_device_is_refused(graph: Path, device: Any, error: type[Exception]):
    with pytest.raises(error):
        OrtRuntime(graph, OrtOptions(device))


def test_session_options_can_be_changed(graph: Path):
    def change(options: Any) -> None:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 2

    made = OrtRuntime(graph, OrtOptions("cpu", threads=1, session_options=change))
    options = made.session.get_session_options()
    assert options.graph_optimization_level == onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    assert options.intra_op_num_threads == 2


@pytest.mark.parametrize("spinning", [False, True])
def test_threads_wait_without_spinning_unless_asked(graph: Path, spinning: bool):
    made = OrtRuntime(graph, OrtOptions("cpu", threads=2, spinning=spinning))
    options = made.session.get_session_options()
    entry = options.get_session_config_entry("session.intra_op.allow_spinning")
    assert entry == str(int(spinning))
    assert options.intra_op_num_threads == 2
    assert options.inter_op_num_threads == 1


def test_threads_default_to_the_usable_processors(graph: Path):
    assert OrtRuntime(graph, OrtOptions("cpu")).info.details["threads"] == usable_cpus()


@pytest.mark.parametrize("threads", [0, -1, True, 1.0, "2"])
def test_threads_are_a_positive_number(graph: Path, threads: Any):
    with pytest.raises(InvalidRequestError, match="threads"):
        OrtRuntime(graph, OrtOptions("cpu", threads=threads))


@pytest.mark.parametrize("megabytes", [0, -1, True, 1.5, "512"])
def test_a_bound_for_memory_is_a_positive_number(graph: Path, megabytes: Any):
    with pytest.raises(InvalidRequestError, match="memory_limit_mb must be"):
        OrtRuntime(graph, OrtOptions("cpu", memory_limit_mb=megabytes))


def test_a_bound_for_memory_reaches_the_session(graph: Path, machine: Callable[..., list[Any]]):
    asked = machine([CUDA, CPU], [CUDA, CPU])
    OrtRuntime(graph, OrtOptions("cuda", memory_limit_mb=256))
    assert dict(asked[0])[CUDA]["gpu_mem_limit"] == 256 << 20


@pytest.mark.parametrize(
    ("used", "device", "arenas"),
    [([CPU], "cpu", "cpu:0"), ([CUDA, CPU], "cuda:1", "cpu:0;gpu:1")],
    ids=["cpu", "cuda"],
)
def test_memory_is_given_back_by_the_arenas_of_the_device(
    graph: Path, machine: Callable[..., list[Any]], used: list[str], device: str, arenas: str
):
    machine([CUDA, CPU], used)
    seen: list[Any] = []
    made = OrtRuntime(graph, OrtOptions(device, threads=1, shrink_memory=True))
    real = made.session

    class Spy:
        def run(self, outputs: Any, feed: Any, options: Any) -> Any:
            seen.append(options.get_run_config_entry("memory.enable_memory_arena_shrinkage"))
            return real.run(outputs, feed)

    made._session = Spy()
    made.forward(batch_of(5))
    assert seen == [arenas]


def test_shrinking_for_real_changes_no_answer(graph: Path, runtime: OrtRuntime):
    made = OrtRuntime(graph, OrtOptions("cpu", threads=1, shrink_memory=True))
    for batch in (batch_of(40, 30), batch_of(5)):
        np.testing.assert_array_equal(made.forward(batch).options, runtime.forward(batch).options)


@pytest.mark.parametrize("message", ["Failed to allocate memory for requested buffer", "bad_alloc"])
def test_a_pass_without_memory_is_told_apart(graph: Path, message: str):
    made = OrtRuntime(graph, ON_CPU)

    class Full:
        def run(self, outputs: Any, feed: Any, options: Any) -> Any:
            raise RuntimeError(f"[ONNXRuntimeError] : 1 : FAIL : {message}")

    made._session = Full()
    with pytest.raises(OutOfMemoryError, match="2 x 7 tokens"):
        made.forward(batch_of(7, 5))


def test_a_closed_runtime_answers_no_more(graph: Path):
    made = OrtRuntime(graph, ON_CPU)
    made.close()
    made.close()
    assert made.session is None
    assert made.info.device == "cpu"
    with pytest.raises(RuntimeClosedError, match="closed"):
        made.forward(batch_of(4))


def test_a_pass_in_flight_ends_undisturbed_by_closing(graph: Path):
    made = OrtRuntime(graph, ON_CPU)
    running, go_on = threading.Event(), threading.Event()

    class Slow(StubSession):
        def run(self, *args: Any) -> Any:
            running.set()
            assert go_on.wait(30)
            return self._real.run(*args)

    made._session = Slow(made.session, [CPU])
    batch = batch_of(4)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(made.forward, batch)
        assert running.wait(30)
        made.close()
        go_on.set()
        np.testing.assert_array_equal(answer.result(30).options, expected_logits(batch))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_gets_an_error_and_does_not_hang(runtime: OrtRuntime):
    batch = batch_of(4)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            runtime.forward(batch)
            os.write(writing, b"answered")
        except ForwardError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        message = pipe.read().decode()
    os.waitpid(child, 0)
    assert "fork" in message
    assert runtime.forward(batch)


def test_many_threads_get_the_answers_of_one(runtime: OrtRuntime):
    batches = [batch_of(*range(1, 2 + seed % 5), 30 + seed, seed=seed) for seed in range(64)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(runtime.forward, batches))
    for batch, (options, actions) in zip(batches, together, strict=True):
        np.testing.assert_array_equal(options, expected_logits(batch))
        np.testing.assert_array_equal(actions[:, 0], batch.attention_mask.sum(axis=1))


def test_answers_are_the_callers_own_arrays(runtime: OrtRuntime):
    batch = batch_of(4)
    first = runtime.forward(batch)
    first.options[:] = 0
    np.testing.assert_array_equal(runtime.forward(batch).options, expected_logits(batch))


@pytest.mark.parametrize("parallel", [True, False])
def test_a_batch_of_the_other_layout_is_refused(
    tmp_path: Path, runtime: OrtRuntime, parallel: bool
):
    made = OrtRuntime(write_graph(tmp_path / "p.onnx", parallel=True), ON_CPU)
    with pytest.raises(ForwardError, match="layout"):
        (runtime if parallel else made).forward(batch_of(4, parallel=parallel))


def test_a_pass_that_fails_is_a_forward_error_with_its_size_and_harms_nothing(
    runtime: OrtRuntime,
):
    batch = batch_of(4, 6)
    broken = Batch(
        batch.input_ids,
        batch.attention_mask[:, :-1],
        batch.marker_pos,
        batch.marker_mask,
        batch.qtype,
    )
    with pytest.raises(ForwardError, match="2 x 6 tokens"):
        runtime.forward(broken)
    np.testing.assert_array_equal(runtime.forward(batch).options, expected_logits(batch))


def test_one_onnxruntime_is_installed():
    assert len(conflicting_packages()) == 1
    assert conflicting_packages()[0].startswith("onnxruntime")


def test_opening_and_running_warn_of_nothing(graph: Path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        OrtRuntime(graph, OrtOptions("cpu")).forward(batch_of(3))
