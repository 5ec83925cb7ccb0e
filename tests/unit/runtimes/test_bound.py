"""Passes on buffers that stay: the same on a CPU as on the device that needs them."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from drut.batching import collate
from drut.errors import InvalidRequestError
from drut.runtimes.bound import NO_GRAPH, BoundSession, Engine
from drut.runtimes.devices import CPU
from drut.runtimes.ort import OrtOptions, OrtRuntime
from drut.tensors import Batch, EncodedRow
from graphs import write_graph

GRAPHS = {CPU: {"enable_cuda_graph": "1"}}  # ignored by a CPU, so its path can run here


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_graph(tmp_path_factory.mktemp("graph") / "model.onnx")


def batch_of(*lengths: int, seed: int = 0, options: int = 3) -> Batch:
    random = np.random.default_rng(seed)
    rows = [
        EncodedRow(random.integers(5, 800, length), np.arange(options), index % 3, {})  # type: ignore[typeddict-item]
        for index, length in enumerate(lengths)
    ]
    return collate(rows, pad_id=0)


@pytest.fixture
def bound(graph: Path) -> Callable[..., tuple[BoundSession, list[int]]]:
    def make(max_shapes: int = 64, session: Any = None) -> tuple[BoundSession, list[int]]:
        numbers: list[int] = []

        def options(number: int) -> Any:
            numbers.append(number)
            return onnxruntime.RunOptions()

        engine = Engine(
            session or onnxruntime.InferenceSession(str(graph), providers=[CPU]),
            lambda values: onnxruntime.OrtValue.ortvalue_from_numpy(values.copy()),
            lambda shape: onnxruntime.OrtValue.ortvalue_from_shape_and_type(shape, np.float32),
            options,
        )
        outputs = ("logits", "act_logits")
        return BoundSession(engine, outputs, actions=2, max_shapes=max_shapes), numbers

    return make


def plain(graph: Path, batch: Batch) -> list[Any]:
    return list(OrtRuntime(graph, OrtOptions("cpu", threads=1)).forward(batch))


def same(found: Any, expected: Any) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_answers_are_those_of_a_plain_run_whatever_ran_before(graph: Path, bound: Any) -> None:
    made, _ = bound()
    batches = [batch_of(5, 9), batch_of(4), batch_of(5, 9, seed=1), batch_of(5, 9)]
    for batch in batches:
        same(made.run(batch.feed()), plain(graph, batch))
    assert made.shapes == 2


def test_an_answer_is_left_alone_by_later_passes(graph: Path, bound: Any) -> None:
    made, _ = bound()
    first, second = batch_of(6, 6), batch_of(6, 6, seed=1)
    found = made.run(first.feed())
    made.run(second.feed())
    same(found, plain(graph, first))


def test_a_buffer_is_not_the_callers_array(graph: Path, bound: Any) -> None:
    made, _ = bound()
    batch = batch_of(6)
    before = batch.input_ids.copy()
    made.run(batch.feed())
    made.run(batch_of(6, seed=1).feed())
    np.testing.assert_array_equal(batch.input_ids, before)


def test_every_shape_has_its_own_graph_until_there_are_too_many(graph: Path, bound: Any) -> None:
    made, numbers = bound(max_shapes=2)
    for lengths in ((4,), (5,), (4,), (6,), (6,)):
        batch = batch_of(*lengths)
        same(made.run(batch.feed()), plain(graph, batch))
    assert numbers == [1, 2, NO_GRAPH, NO_GRAPH]
    assert made.shapes == 2


def test_rows_with_other_options_are_another_shape(graph: Path, bound: Any) -> None:
    made, _ = bound()
    for options in (2, 3):
        batch = batch_of(5, options=options)
        same(made.run(batch.feed()), plain(graph, batch))
    assert made.shapes == 2


class OneAtATime:
    """A session that notices two passes at once."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._busy = threading.Lock()

    def run_with_iobinding(self, binding: Any, options: Any) -> None:
        assert self._busy.acquire(blocking=False), "two passes share buffers"
        try:
            self._session.run_with_iobinding(binding, options)
        finally:
            self._busy.release()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


def test_threads_get_their_own_answers(graph: Path, bound: Any) -> None:
    session = OneAtATime(onnxruntime.InferenceSession(str(graph), providers=[CPU]))
    made, _ = bound(session=session)
    batches = [batch_of(7, 7, seed=seed) for seed in range(40)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda batch: made.run(batch.feed()), batches))
    for each, batch in zip(found, batches, strict=True):
        same(each, plain(graph, batch))


def test_a_runtime_binds_where_graphs_are_asked_for(
    graph: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes: list[Any] = []
    real = BoundSession.run

    def run(self: BoundSession, feed: Any) -> Any:
        shapes.append(feed["input_ids"].shape)
        return real(self, feed)

    monkeypatch.setattr(BoundSession, "run", run)
    made = OrtRuntime(graph, OrtOptions("cpu", threads=1, provider_options=GRAPHS))
    batch = batch_of(8, 3)
    same(made.forward(batch), plain(graph, batch))
    same(made.forward(batch), plain(graph, batch))
    assert shapes == [(2, 8), (2, 8)]


def test_graphs_need_an_act_head_of_known_width(tmp_path: Path) -> None:
    wide = write_graph(tmp_path / "wide.onnx", actions="actions")
    with pytest.raises(InvalidRequestError, match="enable_cuda_graph"):
        OrtRuntime(wide, OrtOptions("cpu", threads=1, provider_options=GRAPHS))
