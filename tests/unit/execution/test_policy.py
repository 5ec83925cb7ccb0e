import numpy as np
import pytest

from drut.batching import (
    CPU_MAX_TOKENS,
    CPU_PADDING,
    DEFAULT_MAX_TOKENS,
    PassPolicy,
    collate,
    plan_batches,
)
from drut.execution.policy import policy_for
from drut.runtimes.base import RuntimeInfo
from drut.tensors import EncodedRow


def info(name: str = "onnxruntime", device: str = "cpu", **facts: object) -> RuntimeInfo:
    return RuntimeInfo(name, device, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["onnxruntime", "openvino", "triton"])
def test_a_cpu_runs_rows_of_nearly_the_same_length(name: str):
    policy = policy_for(info(name, concurrent_passes=2))
    assert policy.max_padding == CPU_PADDING
    assert policy.fits(8, 95, 100)
    assert not policy.fits(2, 50, 100)
    assert policy.concurrent_passes == 2


def test_a_pass_is_smaller_on_a_cpu_and_the_callers_budget_goes_before():
    assert policy_for(info()).max_tokens == CPU_MAX_TOKENS
    assert policy_for(info(device="cuda:0")).max_tokens == DEFAULT_MAX_TOKENS
    assert policy_for(info("my own")).max_tokens == DEFAULT_MAX_TOKENS
    assert policy_for(info(), max_tokens=5000).max_tokens == 5000


@pytest.mark.parametrize(
    ("threads", "abreast", "spread"), [(4, None, 1), (1, 4, 4), (2, 4, 2), (4, 2, 1), (None, 4, 1)]
)
def test_a_call_is_divided_until_every_processor_has_some(
    threads: int | None, abreast: int | None, spread: int
):
    facts = info(concurrent_passes=threads or 1, details={"threads": threads} if threads else {})
    policy = policy_for(facts, concurrent_passes=abreast)
    assert policy.spread == spread
    assert policy.concurrent_passes == (abreast or threads)


def test_a_gpu_runs_one_full_pass_whatever_its_threads():
    facts = info(device="cuda:0", details={"threads": 1})
    assert policy_for(facts, concurrent_passes=4).spread == 1


@pytest.mark.parametrize("device", ["cuda:0", "tensorrt:1"])
def test_a_gpu_sees_few_shapes_and_full_passes(device: str):
    policy = policy_for(info(device=device), max_tokens=4096)
    assert policy.fits(30, 1, 100)
    shapes = {
        (policy.rows_of(rows), policy.tokens_of(tokens))
        for rows in range(1, 65)
        for tokens in range(1, 513)
    }
    assert len(shapes) <= 7 * 20
    assert all(tokens % 16 == 0 for _, tokens in shapes)
    assert not policy.fits(33, 100, 100)  # 64 rows of 112 tokens are too many


def test_a_server_gets_shapes_that_meet_those_of_other_clients():
    policy = policy_for(info("triton", "cuda:0", max_rows=32))
    assert {policy.tokens_of(tokens) for tokens in range(97, 113)} == {112}
    assert {policy.options_of(options) for options in (3, 4)} == {4}
    assert policy.rows_of(5) == 5
    assert policy.fits(32, 10, 100)
    assert not policy.fits(33, 10, 10)


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_a_row_that_its_neighbours_would_change_has_none(device: str):
    policy = policy_for(info(device=device, batch_invariant=False))
    assert not policy.fits(2, 10, 10)
    assert policy.rows_of(1) == 1


def test_a_runtime_of_another_kind_is_held_to_the_budget_alone():
    policy = policy_for(info("my own"), max_tokens=100)
    assert policy.fits(2, 1, 50)
    assert not policy.fits(3, 1, 50)
    assert policy.tokens_of(17) == 17


def test_the_caller_may_choose_the_padding():
    assert policy_for(info(), max_padding=1.0).fits(2, 1, 100)
    assert not policy_for(info(device="cuda:0"), max_padding=0.0).fits(2, 99, 100)


def test_no_bucket_goes_beyond_the_positions_of_the_encoder():
    policy = policy_for(info(device="cuda:0"), max_positions=130)
    assert policy.tokens_of(129) == 130
    assert policy.tokens_of(100) == 112
    assert policy.tokens_of(140) == 140  # refused elsewhere, and not cut here


def test_added_rows_and_columns_are_padding_that_the_graph_accepts():
    policy = PassPolicy(bucket_tokens=True, bucket_rows=True)
    rows = [
        EncodedRow(np.full(count, 7), np.arange(3), 1, {})  # type: ignore[typeddict-item]
        for count in (5, 9, 20)
    ]
    batch = collate(rows, pad_id=3, policy=policy)
    assert batch.input_ids.shape == (4, 32)
    assert batch.marker_mask.shape == (4, 4)
    assert batch.attention_mask.sum(axis=1).tolist() == [5, 9, 20, 20]
    assert not batch.marker_mask[:, 3].any()
    assert (batch.input_ids[0, 5:] == 3).all()


def test_rows_of_one_length_share_a_pass_where_only_padding_matters() -> None:
    policy = policy_for(info(batch_invariant=False, length_invariant=True), max_padding=1.0)
    assert list(plan_batches([7, 9, 7, 8, 9], policy)) == [[0, 2], [3], [1, 4]]
    assert not policy.fits(2, 7, 8)
