import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.checkpoint.bundle import Bundle
from drut.decoding.calibration import Calibration
from drut.errors import (
    ForwardError,
    InvalidRequestError,
    InvalidTextError,
    InvalidTypeError,
    NonFiniteOutputError,
    OptionsTruncatedError,
    TruncationError,
)
from drut.pipeline import WINDOW_STATES, InferenceOptions, Pipeline, as_states, whole_number
from drut.runtimes.fake import FakeRuntime, rising_logits
from drut.tensors import MASKED_LOGIT, Batch, Logits
from property_settings import examples
from tiny_checkpoint import (
    ALL,
    CHOICE,
    NOUL,
    TINY,
    CountingTokenizer,
    checkpoint,
    pipeline,
    text_of,
    tokenizer,
)

PLAIN = InferenceOptions()


def logits_of_content(batch: Batch) -> Logits:
    """Logits that depend on a row's own tokens and nothing around them."""
    weights = np.arange(1, batch.input_ids.shape[1] + 1)
    content = (batch.input_ids * batch.attention_mask * weights).sum(axis=1, keepdims=True)
    scores = (content + batch.marker_pos + batch.qtype[:, None]) % 11 / np.float32(3)
    options = np.where(batch.marker_mask, scores, MASKED_LOGIT).astype(np.float32)
    actions = np.stack([content[:, 0] % 5, np.ones(len(batch))], axis=1).astype(np.float32)
    return Logits(options, actions)


def answer(states: Any, questions: Any = ALL, **options: Any) -> list[Any]:
    return pipeline(FakeRuntime(logits_of_content)).answer(
        states, questions, InferenceOptions(**options)
    )


def states_of(*counts: int) -> list[str]:
    return [text_of(count) for count in counts]


@examples(40)
@given(
    st.lists(st.integers(0, 250), max_size=12),
    st.one_of(st.none(), st.integers(-1, 14), st.just(10**18)),
    st.booleans(),
    st.sampled_from([1, 60, 500, 8192]),
)
def test_how_rows_are_batched_changes_no_answer_and_no_order(
    counts: list[int], size: int | None, sort: bool, max_tokens: int
):
    states = [f"{index} {text_of(count)}" for index, count in enumerate(counts)]
    alone = [answer([state])[0] for state in states]
    runtime = FakeRuntime(logits_of_content)
    made = pipeline(runtime, max_batch_tokens=max_tokens).answer(
        states, ALL, InferenceOptions(batch_size=size, sort_by_length=sort)
    )
    assert made == alone
    for batch in runtime.batches:
        assert len(batch) == 1 or batch.input_ids.size <= max_tokens


def test_a_whole_caller_batch_stays_within_the_budget_of_a_pass():
    runtime = FakeRuntime()
    asked = pipeline(runtime, max_batch_tokens=1000)
    asked.answer(["x"] * 300 + [text_of(200)], NOUL, InferenceOptions(batch_size=10**18))
    assert sum(len(batch) for batch in runtime.batches) == 301
    assert max(batch.input_ids.size for batch in runtime.batches) <= 1000


def test_sorting_by_length_pads_less():
    states = states_of(200, 1) * 8
    padded = {}
    for sort in (False, True):
        runtime = FakeRuntime()
        asked = pipeline(runtime, max_batch_tokens=10**6)
        asked.answer(states, NOUL, InferenceOptions(batch_size=2, sort_by_length=sort))
        assert len(runtime.batches) == 8
        padded[sort] = sum(batch.input_ids.size for batch in runtime.batches)
    assert padded[True] < padded[False]


@pytest.mark.parametrize("options", [{}, {"batch_size": 2}, {"batch_size": 2, "sort_by_length": 1}])
def test_heads_are_tokenised_once_and_states_once(options: dict[str, Any]):
    counting = CountingTokenizer()
    states = [f"state {index}" for index in range(5)]
    pipeline(counting=counting).answer(states, ALL, InferenceOptions(**options))
    heads, *rest = counting.calls
    assert not set(heads) & set(states)
    assert len(heads) == len(set(heads))
    assert [text for call in rest for text in call] == states


def test_many_states_are_encoded_in_bounded_portions():
    counting = CountingTokenizer()
    pipeline(counting=counting).answer(["x"] * (WINDOW_STATES + 1), NOUL, PLAIN)
    assert [len(call) for call in counting.calls[1:]] == [WINDOW_STATES, 1]


def test_a_bad_question_is_found_before_anything_is_tokenised():
    counting = CountingTokenizer()
    runtime = FakeRuntime()
    with pytest.raises(InvalidRequestError, match="'bad'"):
        pipeline(runtime, counting=counting).answer(["x"], {**NOUL, "bad": {}}, PLAIN)
    assert counting.calls == []
    assert runtime.batches == []


@pytest.mark.parametrize("states", ["text", b"text", bytearray(b"x"), {"a": 1}, None, 5])
def test_states_are_a_list_and_not_one_state(states: Any):
    with pytest.raises(InvalidTypeError, match=type(states).__name__):
        answer(states)


def test_any_iterable_of_states_is_listed():
    def some() -> Iterator[str]:
        yield from ("a", "b")

    assert as_states(some()) == as_states(("a", "b")) == ["a", "b"]
    assert answer(some()) == answer(["a", "b"])


@pytest.mark.parametrize("states", [[None], ["a", None]])
@pytest.mark.parametrize("questions", [ALL, {}])
def test_a_state_is_never_none(states: list[Any], questions: Any):
    with pytest.raises(InvalidTypeError, match="None"):
        answer(states, questions)


def test_faults_are_reported_in_a_fixed_order():
    with pytest.raises(InvalidTypeError, match="list of states"):
        answer("one", None)
    with pytest.raises(InvalidTypeError, match="questions must be"):
        answer([None], None)
    with pytest.raises(InvalidTypeError, match="state is None"):
        answer([None], {"q": {}})


@pytest.mark.parametrize("state", ["", 0, False, [], {}, 1.5, "[MASK]", "\x00", "é"])
def test_every_other_value_is_a_state(state: Any):
    assert answer([state])[0]["answers"].keys() == ALL.keys()


@pytest.mark.parametrize("state", ["x\ud83d", {"k\udc00": 1}, ["\ud83d"]])
def test_a_lone_surrogate_is_named(state: Any):
    with pytest.raises(InvalidTextError, match="surrogate"):
        answer([state])


def test_a_lone_surrogate_in_a_question_is_named():
    definition = {"type": "choice", "instructions": "x", "criteria": ["a\ud83d"]}
    with pytest.raises(InvalidTextError, match="surrogate"):
        answer(["x"], {"q": definition})


def test_no_states_and_no_questions_run_nothing():
    runtime, counting = FakeRuntime(), CountingTokenizer()
    made = pipeline(runtime, counting=counting)
    assert made.answer([], {"q": "not even checked"}, PLAIN) == []
    empty = {"answers": {}, "usage": {"input_tokens": 0, "output_tokens": 0}}
    assert [
        {key: value for key, value in result.items() if key != "model"}
        for result in made.answer(["a", "b"], {}, PLAIN)
    ] == [empty, empty]
    assert runtime.batches == []
    assert counting.calls == []


def test_results_of_one_call_share_nothing():
    first, second = answer(["a", "b"], {})
    first["usage"]["input_tokens"] = 7
    assert second["usage"]["input_tokens"] == 0


@pytest.mark.parametrize("name", ["batch_size", "max_len", "head_max_len"])
@pytest.mark.parametrize("value", [True, 2.5, "8", math.nan, [1], np.int64(4)])
def test_counts_are_whole_numbers(name: str, value: Any):
    with pytest.raises(InvalidTypeError, match=name):
        answer(["x"], NOUL, **{name: value})


@pytest.mark.parametrize("size", [None, 0, -1, 10**18])
def test_these_batch_sizes_mean_all_states(size: int | None):
    counting = CountingTokenizer()
    pipeline(counting=counting).answer(["a", "b", "c"], NOUL, InferenceOptions(batch_size=size))
    assert len(counting.calls[1]) == 3


def test_a_whole_number_is_handed_back():
    assert whole_number("n", 3, least=3) == 3
    with pytest.raises(InvalidRequestError, match="at least 4"):
        whole_number("n", 3, least=4)


@pytest.mark.parametrize("lang", [1, b"de", ["de"], True])
def test_a_language_is_a_code(lang: Any):
    with pytest.raises(InvalidTypeError, match="lang"):
        answer(["x"], NOUL, lang=lang)


def test_a_call_may_change_the_budget():
    runtime = FakeRuntime()
    pipeline(runtime).answer([text_of(200)], NOUL, InferenceOptions(max_len=50))
    assert runtime.batches[0].input_ids.shape == (1, 50)
    usage = answer([text_of(200)], NOUL, max_len=50)[0]["usage"]
    assert usage["truncated"] is True
    assert answer([text_of(200)], NOUL)[0]["usage"]["truncated"] is False


@pytest.mark.parametrize("max_len", [0, -5, 3])
def test_a_budget_without_room_for_the_options_says_so(max_len: int):
    with pytest.raises(OptionsTruncatedError, match="'team'"):
        answer(["x"], CHOICE, max_len=max_len)


def test_a_budget_beyond_the_encoders_positions_is_refused():
    bundle = Bundle("tiny", 1, TINY, {"max_positions": 300})
    made = Pipeline(replace(checkpoint(), bundle=bundle), FakeRuntime(), Calibration())
    assert made.budget(InferenceOptions(max_len=300)).max_len == 300
    with pytest.raises(InvalidRequestError, match="300 positions"):
        made.answer(["x"], NOUL, InferenceOptions(max_len=301))


def test_the_budget_is_the_checkpoints_where_none_is_named():
    budget = pipeline().budget(PLAIN)
    assert (budget.max_len, budget.head_max_len) == (256, 96)


@pytest.mark.parametrize("cut", [-1, 0, 1])
def test_truncation_is_reported_from_the_very_token_on(cut: int):
    made = pipeline(FakeRuntime())
    prepared = made.prepare(NOUL, PLAIN)
    room = made.encoder.state_room(prepared.heads[0], prepared.budget)
    usage = made.answer([text_of(room + cut)], NOUL, PLAIN)[0]["usage"]
    assert usage["truncated"] is (cut > 0)
    assert usage["state_tokens"] == room + cut
    assert usage["state_tokens_dropped"] == max(0, cut)
    assert usage["truncated_questions"] == (["urgent"] if cut > 0 else [])


def test_truncation_can_warn_or_fail_and_says_where():
    states = ["short", text_of(400)]
    with pytest.warns(RuntimeWarning, match="state 1, question 'urgent'") as caught:
        warned = answer(states, NOUL, on_truncation="warn")
    assert len(caught) == 1
    assert warned == answer(states, NOUL)
    with pytest.raises(TruncationError, match="state 1, question 'urgent'"):
        answer(states, NOUL, on_truncation="error")
    assert answer(["short"], NOUL, on_truncation="error")


@pytest.mark.parametrize("value", ["raise", None, True, 1])
def test_an_unknown_reaction_to_truncation_is_refused(value: Any):
    with pytest.raises(InvalidRequestError, match="on_truncation"):
        answer(["x"], NOUL, on_truncation=value)


@pytest.mark.parametrize(
    "broken",
    [
        lambda batch: Logits(*(each[:-1] for each in rising_logits(batch))),
        lambda batch: Logits(rising_logits(batch).options[:, :-1], rising_logits(batch).actions),
        lambda batch: Logits(rising_logits(batch).options, rising_logits(batch).actions[:1]),
    ],
)
def test_an_answer_of_another_size_is_a_forward_error(broken: Any):
    with pytest.raises(ForwardError, match="answered"):
        pipeline(FakeRuntime(broken)).answer(["a", "b"], NOUL, PLAIN)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_makes_no_answer(value: float):
    def broken(batch: Batch) -> Logits:
        logits = rising_logits(batch)
        logits.options[-1, 0] = value
        return logits

    with pytest.raises(NonFiniteOutputError, match="'urgent'"):
        pipeline(FakeRuntime(broken)).answer(["a", "b"], NOUL, PLAIN)


def test_answers_are_plain_json():
    results = answer(["a", {"b": [1, None]}, ["c"]])
    assert json.loads(json.dumps(results, allow_nan=False)) == results


def test_the_runtime_sees_rows_state_by_state_and_equal_ones_once():
    runtime = FakeRuntime()
    other = {"type": "noul", "instructions": "Is it a question?"}
    asked = {**NOUL, "again": NOUL["urgent"], "other": other}
    pipeline(runtime).answer(["a", "b"], asked, PLAIN)
    (batch,) = runtime.batches
    rows = [
        ids[mask == 1].tolist()
        for ids, mask in zip(batch.input_ids, batch.attention_mask, strict=True)
    ]
    assert [row[-2] for row in rows] == [tokenizer().encode(text)[0] for text in "aabb"]
    assert len({tuple(row) for row in rows}) == 4


def test_the_checkpoints_layout_reaches_the_rows():
    runtime = FakeRuntime(parallel=True)
    made = Pipeline(checkpoint(option_layout="parallel"), runtime, Calibration())
    made.answer(["a"], CHOICE, PLAIN)
    assert runtime.batches[0].parallel


def test_special_tokens_of_a_state_are_neutralised_on_request():
    state = "a [SEP] b"
    sep = tokenizer().sep_id
    seen = {}
    for wanted in (False, True):
        runtime = FakeRuntime()
        pipeline(runtime, neutralise_specials=wanted).answer([state], NOUL, PLAIN)
        seen[wanted] = int((runtime.batches[0].input_ids == sep).sum())
    assert seen == {False: 4, True: 3}


def test_unknown_keys_follow_the_pipelines_setting():
    questions = {"q": {**NOUL["urgent"], "note": "x"}}
    with pytest.raises(InvalidRequestError, match="'note'"):
        answer(["x"], questions)
    assert pipeline(unknown_keys="ignore").answer(["x"], questions, PLAIN)


@pytest.mark.parametrize("value", ["errors", "warn", True, None])
def test_an_unknown_setting_of_unknown_keys_is_refused(value: Any):
    with pytest.raises(InvalidRequestError, match="unknown_keys"):
        pipeline(unknown_keys=value)


def logits(states: Any, questions: Any, runtime: Any = None, **options: Any) -> Any:
    made = pipeline(runtime or FakeRuntime(logits_of_content), **options)
    return made.logits(states, questions, PLAIN)


def test_logits_are_what_answers_are_made_of():
    states = states_of(3, 40, 9)
    found = logits(states, ALL)
    assert {key: rows.shape for key, rows in found.items()} == {
        "urgent": (3, 2),
        "team": (3, 2),
        "sev": (3, 3),
    }
    for index, result in enumerate(answer(states)):
        exponents = np.exp(found["sev"][index] - found["sev"][index].max())
        shares = [*result["answers"]["sev"]["probabilities"].values()]
        assert shares == pytest.approx((exponents / exponents.sum()).tolist(), abs=1e-4)


def test_logits_come_in_the_order_of_the_options_and_of_the_states():
    turned = {"sev": {**ALL["sev"], "option_order": [2, 0, 1]}}
    assert logits(["x"], turned, FakeRuntime(rising_logits))["sev"].tolist() == [[1, 2, 0]]
    states = states_of(30, 2, 15)
    together = logits(states, ALL, max_batch_tokens=60)
    for index, state in enumerate(states):
        for key, rows in logits([state], ALL).items():
            assert together[key][index].tolist() == rows[0].tolist()


def test_logits_of_sorted_chunks_return_to_their_states():
    states = states_of(30, 2, 15, 1, 40)
    made = pipeline(FakeRuntime(logits_of_content))
    plain = made.logits(states, ALL, PLAIN)
    for sort in (False, True):
        options = InferenceOptions(batch_size=2, sort_by_length=sort)
        for key, rows in made.logits(states, ALL, options).items():
            assert rows.tolist() == plain[key].tolist()


def test_logits_of_nothing_are_empty():
    assert logits([], NOUL)["urgent"].shape == (0, 2)
    assert logits(["x"], {}) == {}


def test_logits_are_checked_like_answers():
    with pytest.raises(InvalidTypeError, match="list of states"):
        logits("x", NOUL)
    with pytest.raises(InvalidTypeError, match="a state is None"):
        logits([None], NOUL)

    def broken(batch: Batch) -> Logits:
        made = rising_logits(batch)
        return Logits(made.options * np.float32(np.nan), made.actions)

    with pytest.raises(NonFiniteOutputError):
        logits(["x"], NOUL, FakeRuntime(broken))
