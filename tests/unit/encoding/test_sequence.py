from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.encoding.layout import parallel_layout
from drut.encoding.sequence import (
    MIN_OPTION_TOKENS,
    MIN_PROMPT_TOKENS,
    OPTION_TOKENS,
    EncodedState,
    Encoder,
    Head,
    TokenBudget,
    state_text,
)
from drut.errors import InvalidTextError, InvalidTypeError, OptionsTruncatedError
from drut.questions import Question, parse_question, parse_questions
from drut.tensors import EncodedRow
from property_settings import examples
from tiny_checkpoint import ALL, NOUL, CountingTokenizer, text_of, tokenizer

WIDE = TokenBudget(256, 96)

words = st.text(alphabet="abc de\n\u00e9[]", max_size=40)
states = st.one_of(
    words,
    st.lists(words, max_size=4),
    st.dictionaries(words, words, max_size=3),
    st.integers(),
    st.tuples(words, words),
)
budgets = st.builds(TokenBudget, st.integers(-5, 300), st.integers(-5, 120))


@st.composite
def questions(draw: st.DrawFn) -> Question:
    kind = draw(st.sampled_from(["choice", "score", "noul"]))
    instructions = "ask " + draw(words) * draw(st.integers(1, 4))
    definition: dict[str, Any] = {"type": kind, "instructions": instructions}
    count = 2
    if kind == "choice":
        count = draw(st.integers(1, 30))
        definition["criteria"] = {
            f"label {index}": draw(words) * draw(st.integers(1, 6)) for index in range(count)
        }
    elif kind == "score":
        count = draw(st.integers(1, 12))
        definition["criteria"] = [draw(words) for _ in range(count)]
    definition["option_order"] = draw(st.permutations(range(count)))
    return parse_question("q", definition)


def encoder(*, parallel: bool = False, **options: Any) -> Encoder:
    return Encoder(tokenizer(), parallel=parallel, **options)


def head_of(question: Question, budget: TokenBudget = WIDE) -> Head:
    return encoder().encode_heads([question], budget)[0]


def state_of(state: Any) -> EncodedState:
    return encoder().encode_states([state])[0]


def join(
    state: Any, question: Question, budget: TokenBudget = WIDE, *, parallel: bool = False
) -> EncodedRow:
    made = encoder(parallel=parallel)
    (head,) = made.encode_heads([question], budget)
    return made.join(made.encode_states([state])[0], question, head, budget)


def choice(labels: list[str], instructions: str = "Which?") -> Question:
    return parse_question(
        "team", {"type": "choice", "instructions": instructions, "criteria": labels}
    )


NOUL_QUESTION = parse_questions(NOUL)[0]


@examples(40)
@given(questions(), budgets)
def test_a_head_is_bounded_and_its_markers_point_at_masks(question: Question, budget: TokenBudget):
    head = head_of(question, budget)
    read = tokenizer()
    count = len(question.options)
    floor = MIN_PROMPT_TOKENS + MIN_OPTION_TOKENS * count
    assert len(head.ids) <= max(budget.head_max_len, floor) + 3
    assert len(head.ids) <= 3 + max(budget.head_max_len, MIN_PROMPT_TOKENS) + count * (
        OPTION_TOKENS + 1
    )
    assert len(head.markers) == count
    assert list(head.markers) == sorted(set(head.markers))
    assert all(head.ids[marker] == read.mask_id for marker in head.markers)
    assert (head.ids == read.mask_id).sum() == count
    assert head.ids[0] == read.cls_id
    assert head.ids[-1] == read.sep_id
    assert head.ids[head.markers[0] - 1] == read.sep_id
    assert 1 <= head.options_distinct <= count
    assert head.dropped == head.tokens - len(head.ids) >= 0
    assert head.tokens_per_option is None or head.tokens_per_option >= MIN_OPTION_TOKENS


@examples(40)
@given(questions())
def test_a_head_with_enough_room_is_cut_only_at_the_cap_of_an_option(question: Question):
    head = head_of(question, TokenBudget(10**6, 10**6))
    read = tokenizer()
    spaced = [f" {text}" for text in question.slot_texts]
    expected = [read.cls_id, *read.encode(question.prompt), read.sep_id]
    for ids in read.encode_all(spaced):
        expected += [read.mask_id, *ids[:OPTION_TOKENS]]
    assert head.ids.tolist() == [*expected, read.sep_id]
    assert head.tokens_per_option is None


@examples(100)
@given(states, questions(), budgets, st.booleans())
def test_a_row_fits_and_accounts_for_every_token(
    state: Any, question: Question, budget: TokenBudget, parallel: bool
):
    try:
        row = join(state, question, budget, parallel=parallel)
    except OptionsTruncatedError:
        head = head_of(question, budget)
        assert max(head.markers) >= budget.max_len
        return
    read, usage = tokenizer(), row.usage
    whole = read.encode(state_text(state))
    assert len(row.ids) <= max(budget.max_len, 0)
    assert len(row.markers) == len(question.options)
    assert all(row.ids[marker] == read.mask_id for marker in row.markers)
    assert row.markers.tolist() == sorted(row.markers.tolist())
    assert row.qtype == question.qtype
    assert usage["tokens"] == len(row.ids)
    assert usage["state_tokens"] == len(whole)
    assert usage["state_tokens_kept"] + usage["state_tokens_dropped"] == len(whole)
    assert usage["state_cut"] in ({"start", "end"} if usage["state_tokens_dropped"] else {None})
    kept = len(row.ids) - min(len(row.ids), usage["head_tokens"] - usage["head_tokens_dropped"])
    assert kept in {usage["state_tokens_kept"], usage["state_tokens_kept"] + 1}
    if parallel:
        assert row.position_ids is not None
        assert row.option_ids is not None
        assert len(row.position_ids) == len(row.option_ids) == len(row.ids)
    else:
        assert row.position_ids is None
        assert row.option_ids is None


@examples(40)
@given(st.lists(words, max_size=5), st.lists(questions(), max_size=4))
def test_a_text_is_tokenised_once_however_often_it_is_asked_about(
    many: list[str], asked: list[Question]
):
    counting = CountingTokenizer()
    made = Encoder(counting, parallel=False)  # type: ignore[arg-type]
    heads = made.encode_heads(asked, WIDE)
    (texts,) = counting.calls
    assert len(texts) == len(set(texts))
    encoded = made.encode_states(many)
    assert counting.calls[1:] == [[text.replace("[MASK]", " ") for text in many]]
    for state in encoded:
        for question, head in zip(asked, heads, strict=True):
            made.join(state, question, head, TokenBudget(10**6, 96))
    assert len(counting.calls) == 2


@examples(25)
@given(st.lists(questions(), min_size=1, max_size=4))
def test_heads_built_together_are_as_built_alone(asked: list[Question]):
    together = encoder().encode_heads(asked, WIDE)
    for question, head in zip(asked, together, strict=True):
        alone = head_of(question)
        assert head.ids.tolist() == alone.ids.tolist()
        assert head.markers.tolist() == alone.markers.tolist()


@pytest.mark.parametrize("extra", [-1, 0, 1, 50])
def test_a_state_is_cut_at_the_very_token_that_does_not_fit(extra: int):
    room = encoder().state_room(head_of(NOUL_QUESTION), WIDE)
    usage = join(text_of(room + extra), NOUL_QUESTION).usage
    assert usage["state_tokens"] == room + extra
    assert usage["state_tokens_kept"] == min(room, room + extra)
    assert usage["state_tokens_dropped"] == max(0, extra)
    assert usage["state_cut"] == ("end" if extra > 0 else None)
    assert usage["tokens"] == 256 + min(0, extra)


@pytest.mark.parametrize(
    ("state", "side"),
    [
        ("word " * 400, "end"),
        (["word"] * 400, "start"),
        ({str(index): "word" for index in range(99)}, "end"),
        (("word",) * 400, "end"),
    ],
    ids=["text", "list", "dict", "tuple"],
)
def test_only_a_list_is_read_from_its_end(state: Any, side: str):
    row = join(state, NOUL_QUESTION)
    assert row.usage["state_cut"] == side
    whole = tokenizer().encode(state_text(state))
    head = len(head_of(NOUL_QUESTION).ids)
    kept = row.usage["state_tokens_kept"]
    expected = whole[-kept:] if side == "start" else whole[:kept]
    assert row.ids[head:-1].tolist() == expected
    assert row.ids[-1] == tokenizer().sep_id


def test_a_list_without_any_room_keeps_nothing():
    head = head_of(NOUL_QUESTION)
    row = join(["word"] * 9, NOUL_QUESTION, TokenBudget(len(head.ids) + 1, 96))
    assert row.usage["state_tokens_kept"] == 0
    assert row.ids.tolist() == [*head.ids.tolist(), tokenizer().sep_id]


def test_no_room_for_the_state_still_answers_and_is_counted():
    head = head_of(NOUL_QUESTION)
    row = join("word", NOUL_QUESTION, TokenBudget(len(head.ids) - 1, 96))
    assert row.ids.tolist() == head.ids.tolist()[:-1]
    assert row.usage["head_tokens_dropped"] == 1
    assert row.usage["state_tokens_kept"] == 0
    assert row.usage["state_tokens_dropped"] == row.usage["state_tokens"] > 0


@pytest.mark.parametrize("max_len", [0, -1, 3, 10])
def test_an_option_that_does_not_fit_is_an_error_with_all_figures(max_len: int):
    with pytest.raises(OptionsTruncatedError) as caught:
        join("x", choice(["billing", "tech"]), TokenBudget(max_len, 96))
    message = str(caught.value)
    for mention in ("'team'", "of 2 options", f"max_len={max_len}", "head_max_len=96"):
        assert mention in message


def test_the_last_marker_may_be_the_last_token():
    question = choice(["billing", "tech"])
    last = head_of(question).markers[-1]
    assert join("x", question, TokenBudget(last + 1, 96)).ids[-1] == tokenizer().mask_id
    with pytest.raises(OptionsTruncatedError, match="only 1 of 2"):
        join("x", question, TokenBudget(last, 96))


def test_a_long_option_keeps_its_first_tokens():
    head = head_of(choice([text_of(80), "b"]), TokenBudget(512, 192))
    assert head.markers[1] - head.markers[0] == OPTION_TOKENS + 1
    assert head.tokens_per_option is None


def test_too_many_options_are_all_shortened_alike():
    labels = [f"option number {index} of many" for index in range(20)]
    head = head_of(choice(labels))
    assert head.tokens_per_option == max(MIN_OPTION_TOKENS, (96 - 16) // 20)
    gaps = np.diff([*head.markers, len(head.ids) - 1])
    assert set(gaps.tolist()) == {head.tokens_per_option}


def test_options_that_fall_together_when_cut_are_counted_after_the_cut():
    labels = [f"one and the same beginning {index}" for index in range(40)]
    head = head_of(choice(labels))
    assert head.tokens_per_option == MIN_OPTION_TOKENS
    assert head.options_distinct == 1
    usage = join("x", choice(labels), TokenBudget(512, 96)).usage
    assert (usage["options"], usage["options_distinct"]) == (40, 1)


def test_the_instructions_keep_a_minimum():
    head = head_of(choice([f"o{index} x y z" for index in range(40)], text_of(30)))
    assert head.markers[0] == 1 + MIN_PROMPT_TOKENS + 1


def test_slots_follow_the_order_of_the_question():
    definition = {"type": "choice", "instructions": "x", "criteria": ["first", "second"]}
    turned = parse_question("q", {**definition, "option_order": [1, 0]})
    head = head_of(turned)
    text = tokenizer().decode(head.ids.tolist())
    assert text.index("second") < text.index("first")


@pytest.mark.parametrize("place", ["state", "instructions", "option", "level", "key"])
def test_a_mask_token_in_a_text_is_no_option_marker(place: str):
    mask = "a [MASK][MASK] b"
    definition: dict[str, Any] = {"type": "choice", "instructions": "x", "criteria": ["a", "b"]}
    if place == "instructions":
        definition["instructions"] = mask
    if place == "option":
        definition["criteria"] = {"a": mask, "b": None}
    if place == "level":
        definition |= {"type": "score", "criteria": [mask, "b"]}
    state: Any = {"state": mask, "key": {mask: 1}}.get(place, "x")
    row = join(state, parse_question("q", definition))
    assert (row.ids == tokenizer().mask_id).sum() == 2


def test_other_special_tokens_are_read_as_such_unless_neutralised():
    sep = tokenizer().sep_id
    plain, clean = encoder(), encoder(neutralise_specials=True)
    assert sep in plain.encode_states(["a [SEP] b"])[0].ids
    ids = clean.encode_states(["a [SEP] b[CLS] [MASK]"])[0].ids
    assert not set(ids.tolist()) & {sep, tokenizer().cls_id, tokenizer().mask_id}
    assert clean.state_tokens("a [SEP] b") == tokenizer().encode("a   b")


def test_the_parallel_layout_is_that_of_the_uncut_sequence():
    question = choice(["one", "two three"])
    head = head_of(question)
    row = join(text_of(400), question, parallel=True)
    layout = parallel_layout(head.markers.tolist(), len(head.ids), len(row.ids))
    assert row.position_ids is not None
    assert row.option_ids is not None
    assert row.position_ids.tolist() == layout.position_ids.tolist()
    assert row.option_ids.tolist() == layout.option_ids.tolist()


def test_the_room_is_what_is_left_behind_head_and_separator():
    head = head_of(NOUL_QUESTION)
    assert encoder().state_room(head, WIDE) == 256 - len(head.ids) - 1
    assert encoder().state_room(head, TokenBudget(5, 96)) == 0


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ("é ", "é "),
        ("", ""),
        ({"b": [1, None], "a": "é"}, '{"b": [1, null], "a": "é"}'),
        ([1.0, True], "[1.0, true]"),
        (("a",), '["a"]'),
        (5, "5"),
        (False, "false"),
        ({1: 2}, '{"1": 2}'),
        (float("inf"), "Infinity"),
    ],
)
def test_a_state_is_text_or_json(state: Any, text: str):
    assert state_text(state) == text


@pytest.mark.parametrize("state", [None, b"x", {1, 2}, {"a": object()}, np.float32(1)])
def test_a_state_without_a_json_form_is_a_type_error(state: Any):
    with pytest.raises(InvalidTypeError):
        encoder().encode_states(["fine", state])


@pytest.mark.parametrize("state", ["a\ud83d", ["\udc00"], {"\ud800": 1}])
def test_a_lone_surrogate_in_a_state_is_named(state: Any):
    with pytest.raises(InvalidTextError, match="surrogate"):
        encoder().encode_states([state])


def test_a_question_id_of_any_length_stays_out_of_the_message():
    question = parse_question("x" * 5000, {"type": "noul", "instructions": "x"})
    with pytest.raises(OptionsTruncatedError) as caught:
        join("x", question, TokenBudget(4, 96))
    assert len(str(caught.value)) < 400


def test_rows_of_one_state_share_its_tokens_but_not_their_usage():
    made = encoder()
    asked = parse_questions(ALL)
    heads = made.encode_heads(asked, WIDE)
    (state,) = made.encode_states(["hello"])
    rows = [made.join(state, q, head, WIDE) for q, head in zip(asked, heads, strict=True)]
    assert len({id(row.usage) for row in rows}) == len(rows)
    assert {row.usage["state_tokens"] for row in rows} == {3}


def test_nothing_to_encode_is_fine():
    assert encoder().encode_states([]) == []
    assert encoder().encode_heads([], WIDE) == []


def test_decoding_gives_the_text_back():
    assert encoder().decode(encoder().state_tokens("I was charged twice")) == "I was charged twice"
