"""Every golden sequence: texts, token ids, markers, statistics, parallel layout."""

from typing import Any

import pytest

from drut.checkpoint.tokenizer import CheckpointTokenizer, read_tokenizer
from drut.encoding.sequence import Encoder, TokenBudget
from drut.errors import OptionsTruncatedError
from drut.questions import parse_question
from golden_values import GOLDEN, golden_cases, restore

CASES = golden_cases("encoding.json")


@pytest.fixture(scope="module")
def tokenizer() -> CheckpointTokenizer:
    return read_tokenizer(GOLDEN / "tiny-checkpoint")


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_sequence_equals_upstream(case: dict[str, Any], tokenizer: CheckpointTokenizer) -> None:
    encoder = Encoder(tokenizer, parallel=True)
    question = parse_question("q", restore(case["question"]))
    budget = TokenBudget(case["max_len"], case["head_max_len"])
    (head,) = encoder.encode_heads([question], budget)
    (state,) = encoder.encode_states([restore(case["state"])])
    assert question.prompt == case["prompt_text"]
    assert [option.text for option in question.options] == case["option_texts"]
    assert len(head.ids) == case["head_len"]
    assert encoder.state_room(head, budget) == case["state_room"]
    assert {
        "options": len(question.options),
        "options_distinct": head.options_distinct,
        "tokens_per_option": head.tokens_per_option,
    } == case["stats"]
    if len(case["markers"]) < len(question.options):
        with pytest.raises(OptionsTruncatedError, match=f"only {len(case['markers'])} of"):
            encoder.join(state, question, head, budget)
        return
    row = encoder.join(state, question, head, budget)
    assert row.ids.tolist() == case["ids"]
    assert row.markers.tolist() == case["markers"]
    assert row.position_ids is not None
    assert row.option_ids is not None
    assert row.position_ids.tolist() == case["layout"]["position_ids"]
    assert row.option_ids.tolist() == case["layout"]["option_ids"]
    assert row.usage["state_tokens"] == case["state_stats"]["state_tokens"]
    assert row.usage["state_tokens_kept"] == case["state_stats"]["state_tokens_used"]
    assert row.usage["state_tokens_dropped"] == case["state_stats"]["state_tokens_dropped"]


TEXTS = golden_cases("tokenizer.json")


@pytest.mark.parametrize("case", TEXTS, ids=range(len(TEXTS)))
def test_tokenizer_equals_upstream(case: dict[str, Any], tokenizer: CheckpointTokenizer) -> None:
    ids = tokenizer.encode(case["text"])
    assert ids == case["ids"]
    assert tokenizer.decode(ids) == case["decoded"]
