from dataclasses import replace

import pytest

from drut.checkpoint.config import read_config
from drut.checkpoint.tokenizer import read_tokenizer
from drut_export.trial_texts import LONGEST, QUESTIONS, TEXTS, text_cases
from tiny_checkpoint import TINY, TINY_PARALLEL, config, tokenizer


def test_every_text_is_asked_every_question_and_named() -> None:
    cases = list(text_cases(config(), tokenizer()))
    assert [case.title for case in cases] == list(TEXTS)
    for case in cases:
        assert len(case.batch) == len(case.names) == len(TEXTS[case.title]) * len(QUESTIONS)
        assert set(case.batch.qtype.tolist()) == {0, 1, 2}
        assert case.row(0) == case.names[0]
    assert cases[0].names[0] == "noul question about everyday text: mail"


def test_rows_are_those_of_the_checkpoint_s_own_encoding() -> None:
    (case,) = [each for each in text_cases(config(), tokenizer()) if "nothing" in each.title]
    index = case.names.index("choice question about nothing to read: empty")
    row = case.batch.input_ids[index]
    assert row[0] == tokenizer().cls_id
    assert (row == tokenizer().mask_id).sum() == 3
    assert (row[case.batch.marker_pos[index]] == tokenizer().mask_id).all()


def test_text_of_special_tokens_makes_no_option_markers() -> None:
    (case,) = [each for each in text_cases(config(), tokenizer()) if "special" in each.title]
    masks = (case.batch.input_ids == tokenizer().mask_id).sum(axis=1)
    assert (masks == case.batch.marker_mask.sum(axis=1)).all()


@pytest.mark.parametrize(
    ("max_len", "positions", "longest"),
    [(256, None, 256), (8192, None, LONGEST), (256, 128, 128)],
)
def test_long_texts_fill_the_budget_and_no_more(
    max_len: int, positions: int | None, longest: int
) -> None:
    settings = replace(config(), max_len=max_len)
    *_, case = text_cases(settings, tokenizer(), positions=positions)
    lengths = case.batch.attention_mask.sum(axis=1)
    assert lengths.max() == longest
    assert lengths.min() < longest / 2  # beside it there is much padding


def test_the_parallel_layout_is_encoded_as_such() -> None:
    settings, reader = read_config(TINY_PARALLEL), read_tokenizer(TINY_PARALLEL)
    assert all(case.batch.parallel for case in text_cases(settings, reader))
    assert not any(case.batch.parallel for case in text_cases(config(), read_tokenizer(TINY)))


def test_a_budget_without_room_for_options_leaves_texts_out() -> None:
    assert list(text_cases(replace(config(), max_len=4), tokenizer())) == []
