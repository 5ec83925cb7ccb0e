from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.batching import PassPolicy
from drut.errors import ForwardError, OutOfMemoryError
from drut.execution.direct import DirectRunner, DistinctRunner
from drut.execution.passes import PassRunner
from drut.runtimes.fake import FakeRuntime
from drut.tensors import MASKED_LOGIT, Batch, EncodedRow, Logits
from property_settings import examples


def row(value: int, tokens: int = 4, options: int = 2) -> EncodedRow:
    return EncodedRow(np.full(tokens, value), np.arange(options), value % 3, {})  # type: ignore[typeddict-item]


def by_content(batch: Batch) -> Logits:
    """Logits that depend on a row's own tokens and markers, and nothing around them."""
    content = (batch.input_ids * batch.attention_mask).sum(axis=1, keepdims=True)
    scores = content + batch.marker_pos / 8 + batch.qtype[:, None] / 4
    options = np.where(batch.marker_mask, scores, MASKED_LOGIT).astype(np.float32)
    return Logits(options, content.astype(np.float32))


def limited(tokens: int) -> FakeRuntime:
    """A runtime with memory for so many tokens of a pass."""

    def forward(batch: Batch) -> Logits:
        if batch.input_ids.size > tokens:
            raise OutOfMemoryError(f"no room for {batch.input_ids.size} tokens")
        return by_content(batch)

    return FakeRuntime(forward)


def run(
    rows: Sequence[EncodedRow], policy: PassPolicy, runtime: FakeRuntime | None = None
) -> tuple[Logits, FakeRuntime]:
    runtime = runtime or FakeRuntime(by_content)
    runner = DistinctRunner(DirectRunner(PassRunner(runtime, policy, pad_id=0)))
    return runner.run(rows), runtime


def alone(rows: Sequence[EncodedRow]) -> list[list[float]]:
    """What every row is answered by itself."""
    found = []
    for each in rows:
        logits, _ = run([each], PassPolicy())
        found.append(logits.options[0, : len(each.markers)].tolist())
    return found


policies = st.builds(
    PassPolicy,
    max_tokens=st.integers(1, 200),
    max_rows=st.one_of(st.none(), st.integers(1, 5)),
    max_padding=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    bucket_tokens=st.booleans(),
    bucket_rows=st.booleans(),
)
many_rows = st.lists(
    st.builds(row, st.integers(1, 9), st.integers(1, 40), st.integers(1, 5)),
    min_size=1,
    max_size=20,
)


@examples(60)
@given(many_rows, policies)
def test_answers_are_those_of_the_rows_alone_whatever_the_plan(
    rows: list[EncodedRow], policy: PassPolicy
):
    logits, runtime = run(rows, policy)
    widest = max(len(each.markers) for each in rows)
    assert logits.options.shape == (len(rows), widest)
    for place, (each, expected) in enumerate(zip(rows, alone(rows), strict=True)):
        width = len(each.markers)
        assert logits.options[place, :width].tolist() == expected
        assert (logits.options[place, width:] == MASKED_LOGIT).all()
        assert logits.actions[place, 0] == each.ids.sum()
    if policy.max_rows is not None:
        assert max(map(len, runtime.batches)) <= policy.max_rows


@examples(60)
@given(many_rows, st.integers(40, 400))
def test_no_answer_is_lost_where_memory_is_scarce(rows: list[EncodedRow], room: int):
    logits, runtime = run(rows, PassPolicy(), limited(room))
    for place, expected in enumerate(alone(rows)):
        assert logits.options[place, : len(expected)].tolist() == expected
    assert all(batch.input_ids.size <= 800 for batch in runtime.batches)


def test_a_pass_too_large_lowers_the_budget_of_the_next():
    runner = PassRunner(limited(50), PassPolicy(max_tokens=1000), pad_id=0)
    direct = DirectRunner(runner)
    rows = [row(value, tokens=10) for value in range(1, 17)]
    direct.run(rows)
    assert runner.policy.max_tokens <= 50
    before = runner.statistics()["passes"]
    direct.run(rows)
    statistics = runner.statistics()
    assert statistics["passes"] - before == 4  # of 40 tokens, without a further failure
    assert statistics["max_batch_tokens"] == runner.policy.max_tokens


def test_one_row_that_does_not_fit_is_an_error_that_says_what_to_do():
    runner = PassRunner(limited(5), PassPolicy(), pad_id=0)
    with pytest.raises(OutOfMemoryError, match=r"one row of 9 tokens.*max_len"):
        runner.run([row(1, tokens=9)])
    assert runner.run([row(1, tokens=5)]).options.shape == (1, 2)


def test_equal_rows_are_computed_once():
    rows = [row(1), row(2), row(1), row(1, tokens=5), row(2), row(1, options=3)]
    logits, runtime = run(rows, PassPolicy())
    assert sum(map(len, runtime.batches)) == 4
    assert logits.options[0].tolist() == logits.options[2].tolist()
    assert logits.options[0].tolist() != logits.options[3].tolist()


def test_rows_of_another_layout_or_type_are_not_equal():
    ids, markers = np.arange(4), np.arange(2)
    rows = [
        EncodedRow(ids, markers, 0, {}, ids, ids),  # type: ignore[typeddict-item]
        EncodedRow(ids, markers, 0, {}, ids, markers.repeat(2)),  # type: ignore[typeddict-item]
        EncodedRow(ids, markers, 1, {}, ids, ids),  # type: ignore[typeddict-item]
    ]
    _, runtime = run(rows, PassPolicy(), FakeRuntime(by_content, parallel=True))
    assert sum(map(len, runtime.batches)) == 3


def test_what_was_computed_can_be_read():
    runner = DistinctRunner(
        DirectRunner(PassRunner(FakeRuntime(by_content), PassPolicy(), pad_id=0))
    )
    runner.run([row(1, tokens=10), row(2, tokens=5), row(2, tokens=5)])
    assert runner.statistics() == {
        "rows": 3,
        "repeated_rows": 1,
        "passes": 1,
        "computed_rows": 2,
        "real_tokens": 15,
        "computed_tokens": 20,
        "padding": 0.25,
        "max_batch_tokens": 8192,
    }


def test_padding_is_not_counted_as_work_before_there_was_any():
    passes = PassRunner(FakeRuntime(), PassPolicy(), pad_id=0)
    assert passes.statistics()["padding"] == 0.0


@pytest.mark.parametrize("answered", [(1, 2), (2, 1)], ids=["rows", "options"])
def test_a_runtime_that_answers_another_shape_is_caught(answered: tuple[int, int]):
    def wrong(batch: Batch) -> Logits:
        return Logits(np.zeros(answered, np.float32), np.zeros((2, 1), np.float32))

    runner = PassRunner(FakeRuntime(wrong), PassPolicy(), pad_id=0)
    with pytest.raises(ForwardError, match="2 rows with 2 options"):
        runner.run([row(1), row(2)])
