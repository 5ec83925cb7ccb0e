import numpy as np
import pytest

from drut.batching import collate
from drut.errors import ForwardError, RuntimeClosedError
from drut.pipeline import InferenceOptions
from drut.runtimes.base import Runtime, RuntimeInfo
from drut.runtimes.fake import FakeRuntime, rising_logits
from drut.tensors import MASKED_LOGIT, Batch, EncodedRow, Logits
from tiny_checkpoint import ALL, pipeline


def batch_of(*widths: int) -> Batch:
    rows = [
        EncodedRow(np.arange(9), np.arange(width), 0, {})  # type: ignore[typeddict-item]
        for width in widths
    ]
    return collate(rows, pad_id=0)


def test_it_has_the_protocol_of_a_runtime():
    runtime = FakeRuntime()
    assert isinstance(runtime, Runtime)
    assert runtime.info == RuntimeInfo("fake", "cpu")
    assert FakeRuntime(parallel=True).info.parallel is True


def test_logits_rise_and_are_masked():
    options, actions = rising_logits(batch_of(3, 1))
    assert options.tolist() == [[0, 1, 2], [0, MASKED_LOGIT, MASKED_LOGIT]]
    assert actions.shape == (2, 2)
    assert options.dtype == actions.dtype == np.float32


def test_every_batch_is_remembered_in_order():
    runtime = FakeRuntime()
    first, second = batch_of(2), batch_of(3)
    runtime.forward(first)
    runtime.forward(second)
    assert runtime.batches[0] is first
    assert runtime.batches[1] is second


def test_a_function_answers():
    answer = Logits(np.ones((1, 2), np.float32), np.ones((1, 2), np.float32))
    assert FakeRuntime(lambda batch: answer).forward(batch_of(2)) is answer


def test_what_the_function_raises_is_raised():
    def broken(batch: Batch) -> Logits:
        raise ForwardError("no")

    with pytest.raises(ForwardError, match="no"):
        FakeRuntime(broken).forward(batch_of(2))


def test_a_closed_one_answers_no_more():
    runtime = FakeRuntime()
    runtime.close()
    runtime.close()
    with pytest.raises(RuntimeClosedError):
        runtime.forward(batch_of(2))
    assert runtime.batches == []


def test_a_pipeline_answers_with_it():
    (result,) = pipeline(FakeRuntime()).answer(["x"], ALL, InferenceOptions())
    assert result["answers"]["team"]["choice"] == "tech"
    assert result["answers"]["urgent"]["noul"] == 0.7311
