import threading
from collections import UserDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.encoding.memory import MAX_KEY_BYTES, MAX_QUESTIONS, QuestionMemory
from drut.encoding.sequence import Encoder, TokenBudget
from drut.errors import InvalidRequestError, InvalidTypeError
from drut.questions import UnknownKeys, parse_questions
from property_settings import examples
from tiny_checkpoint import ALL, CHOICE, NOUL, CountingTokenizer

WIDE = TokenBudget(256, 96)


def memory(unknown_keys: UnknownKeys = "error") -> tuple[QuestionMemory, CountingTokenizer]:
    counting = CountingTokenizer()
    encoder = Encoder(counting, parallel=False)  # type: ignore[arg-type]
    return QuestionMemory(encoder, unknown_keys=unknown_keys), counting


def ask(made: QuestionMemory, questions: Any, budget: TokenBudget = WIDE) -> list[list[int]]:
    """Token ids of the heads."""
    return [head.ids.tolist() for head in made.heads(made.recall(questions), budget)]


def fresh(questions: Any, budget: TokenBudget = WIDE) -> list[list[int]]:
    return ask(memory()[0], questions, budget)


def noul(text: Any, **more: Any) -> dict[str, Any]:
    return {"q": {"type": "noul", "instructions": text, **more}}


def test_a_question_is_tokenised_once_however_many_dicts_spell_it():
    made, counting = memory()
    first = ask(made, ALL)
    assert ask(made, {key: dict(value) for key, value in ALL.items()}) == first
    assert len(counting.calls) == 1
    assert [each.question for each in made.recall(ALL)] == parse_questions(ALL)


def test_only_what_is_new_is_tokenised():
    made, counting = memory()
    ask(made, NOUL)
    both = ask(made, {**CHOICE, **NOUL})
    assert both == fresh({**CHOICE, **NOUL})
    assert not {text for text in counting.calls[1] if "hurry" in text}


def test_a_dict_that_was_changed_is_another_question():
    made, _ = memory()
    questions = {"team": {**CHOICE["team"], "criteria": {"billing": "money", "tech": "errors"}}}
    ask(made, questions)
    questions["team"]["criteria"]["tech"] = "crashes"  # type: ignore[index]
    assert ask(made, questions) == fresh(questions)
    questions["team"]["criteria"] = dict(reversed(questions["team"]["criteria"].items()))  # type: ignore[attr-defined]
    assert ask(made, questions) == fresh(questions)
    assert [option.label for option in made.recall(questions)[0].question.options] == [
        "tech",
        "billing",
    ]


def test_the_same_words_under_another_id_are_another_question():
    made, _ = memory()
    definition = NOUL["urgent"]
    ids: list[Any] = ["1", 1, True]
    for question_id in ids:
        (known,) = made.recall({question_id: definition})
        assert known.question.id is question_id


@pytest.mark.parametrize("labels", [[1, 2], [1.0, 2.0], [True, 2], ["1", "2"]], ids=str)
def test_a_label_comes_back_with_its_own_type(labels: list[Any]):
    made, _ = memory()
    for criteria in ([1, 2], [1.0, 2.0], [True, 2], ["1", "2"], labels):
        question = {"q": {"type": "choice", "instructions": "x", "criteria": criteria}}
        (known,) = made.recall(question)
        found = [option.label for option in known.question.options]
        assert [type(label) for label in found] == [type(label) for label in criteria]


def test_heads_of_other_budgets_are_other_heads():
    made, counting = memory()
    long = noul("word " * 200)
    narrow = TokenBudget(256, 40)
    for budget in (WIDE, narrow, WIDE, narrow):
        assert ask(made, long, budget) == fresh(long, budget)
    assert len(counting.calls) == 2
    for size in range(41, 60):
        ask(made, long, TokenBudget(256, size))
    (known,) = made.recall(long)
    assert len(known.heads) <= 4


class Text(str):
    """A text whose value is not all there is to it."""


class Number(float):
    def __str__(self) -> str:
        return "many"


@pytest.mark.parametrize(
    "definition",
    [
        UserDict(NOUL["urgent"]),
        {"type": "noul", "instructions": Text("x")},
        {"type": "noul", "instructions": "x", "criteria": {"true": Number(1)}},
        {"type": "noul", "instructions": "x", "criteria": {"true": np.float64(1)}},
        {"type": "noul", "instructions": "x", "criteria": {"true": b"1"}},
        {"type": "noul", "instructions": "x" * MAX_KEY_BYTES},
    ],
    ids=["mapping", "text", "number", "numpy", "bytes", "long"],
)
def test_what_cannot_be_told_by_value_is_asked_anew(definition: Mapping[str, Any]):
    made, _ = memory()
    questions = {"q": definition}
    assert ask(made, questions) == ask(made, questions) == fresh(questions)
    assert len(made) == 0


def test_numbers_of_the_same_bits_are_not_mistaken_for_one_another():
    made, _ = memory()
    for value in (np.int64(0), np.float64(0.0), 0, 0.0, -0.0, False, "0", b"0", bytearray(b"0")):
        questions = noul("x", criteria={"true": value})
        assert ask(made, questions) == fresh(questions)


def test_a_fault_is_told_every_time_and_not_remembered():
    made, counting = memory()
    for _ in range(2):
        with pytest.raises(InvalidRequestError, match="'bad'"):
            made.recall({**NOUL, "bad": {"type": "noul"}})
        with pytest.raises(InvalidTypeError, match="dict of question id"):
            made.recall([NOUL])
    assert counting.calls == []
    assert len(made) == 1


def test_unknown_keys_are_judged_as_the_memory_was_told():
    strict, _ = memory()
    lenient, _ = memory("ignore")
    questions = noul("x", colour="red")
    assert ask(lenient, questions) == fresh(noul("x"))
    with pytest.raises(InvalidRequestError, match="colour"):
        strict.recall(questions)


def test_the_question_asked_longest_ago_is_forgotten_first():
    made, counting = memory()
    ask(made, noul("the first"))
    ask(made, noul("the second"))
    for index in range(MAX_QUESTIONS - 2):
        made.recall(noul(f"number {index}"))
    ask(made, noul("the first"))
    made.recall(noul("one more"))
    assert len(made) == MAX_QUESTIONS
    calls = len(counting.calls)
    ask(made, noul("the first"))
    assert len(counting.calls) == calls
    ask(made, noul("the second"))
    assert len(counting.calls) == calls + 1


def test_threads_may_ask_at_once():
    made, _ = memory()
    questions = [noul(f"word {index % 7}") for index in range(200)]
    expected = {index: fresh(noul(f"word {index}")) for index in range(7)}
    start = threading.Barrier(8)

    def work(part: int) -> list[list[list[int]]]:
        start.wait(10)
        return [ask(made, each) for each in questions[part::8]]

    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(work, range(8)))
    for part, found in enumerate(parts):
        for place, heads in enumerate(found):
            assert heads == expected[(part + 8 * place) % 7]


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.floats(allow_nan=False), st.text()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=6,
)


@examples(60)
@given(st.lists(values, min_size=1, max_size=6))
def test_any_values_in_any_order_are_answered_as_by_a_memory_that_knows_nothing(many: list[Any]):
    made, _ = memory()
    for value in (*many, *many):
        questions = noul("x", criteria={"true": value})
        assert ask(made, questions) == fresh(questions)
