import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drut.decoding.labelled import MAX_LINE_BYTES, Labelled, read_labelled, records_of
from drut.errors import (
    InvalidRequestError,
    InvalidTextError,
    NonFiniteOutputError,
    OptionsTruncatedError,
)
from tiny_checkpoint import ALL, CHOICE, NOUL, SCORE

ANSWERS = {"urgent": True, "team": "tech", "sev": 2}
GOOD: dict[str, Any] = {"state": "x", "questions": ALL, "answers": ANSWERS}


def written(tmp_path: Path, *lines: Any) -> Path:
    path = tmp_path / "data.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


def read(tmp_path: Path, *lines: Any) -> list[Labelled]:
    return list(read_labelled(written(tmp_path, *lines)))


class Asked:
    """Rising logits, and what was asked for them."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[Any], list[str]]] = []

    def __call__(self, states: Sequence[Any], questions: Mapping[str, Any]) -> dict[Any, Any]:
        self.calls.append((list(states), list(questions)))
        if "bad" in states:
            raise OptionsTruncatedError("the options do not fit")
        widths = {"urgent": 2, "team": 2, "sev": 3}
        return {
            key: np.tile(np.arange(widths[key], dtype=np.float32), (len(states), 1))
            for key in questions
        }


def test_answers_become_the_index_of_the_right_option(tmp_path: Path):
    (line,) = read(tmp_path, {**GOOD, "lang": "de"})
    assert line.targets == (1, 1, 2)
    assert line.language == "de"
    assert [question.id for question in line.parsed] == ["urgent", "team", "sev"]
    (line,) = read(tmp_path, {**GOOD, "answers": {"urgent": False, "sev": 0}})
    assert line.targets == (0, 0)


def test_labels_are_told_apart_by_type(tmp_path: Path):
    questions = {"n": {"type": "choice", "instructions": "?", "criteria": [1, "one", 2.0]}}
    line = {"state": "x", "questions": questions}
    assert read(tmp_path, {**line, "answers": {"n": 1}})[0].targets == (0,)
    assert read(tmp_path, {**line, "answers": {"n": 2.0}})[0].targets == (2,)
    for other in (1.0, True, "1", None):
        with pytest.raises(InvalidRequestError, match="must be a label"):
            read(tmp_path, {**line, "answers": {"n": other}})


def test_questions_without_an_answer_are_not_asked(tmp_path: Path):
    asked = Asked()
    lines = read_labelled(written(tmp_path, {**GOOD, "answers": {"sev": 1}}))
    (record,) = records_of(lines, asked)
    assert asked.calls == [(["x"], ["sev"])]
    assert (record.kind, record.target, len(record.logits)) == ("score", 1, 3)


def test_blank_lines_and_a_byte_order_mark_are_skipped(tmp_path: Path):
    first, second = read(tmp_path, "\ufeff" + json.dumps(GOOD), "", "  ", GOOD)
    assert (first.number, second.number) == (1, 4)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "not JSON"),
        ('{"state": NaN}', "NaN"),
        ('{"state": 1, "state": 2}', "'state' is there twice"),
        ("[]", "must be an object"),
        ("5", "must be an object"),
        ({**GOOD, "label": 1}, "unknown key 'label'"),
        ({**GOOD, "state": None}, "'state' is missing"),
        ({"questions": ALL, "answers": ANSWERS}, "'state' is missing"),
        ({"state": "x", "answers": ANSWERS}, "'questions' must be an object"),
        ({"state": "x", "questions": ALL}, "'answers' must be an object"),
        ({**GOOD, "answers": {}}, "'answers' must be an object"),
        ({**GOOD, "answers": {"teem": "tech"}}, "'teem', which is none of .*'team'"),
        ({**GOOD, "answers": {"team": "sales"}}, "one of .*'billing', 'tech'.* got 'sales'"),
        ({**GOOD, "answers": {"team": None}}, "'team' must be a label"),
        ({**GOOD, "answers": {"sev": 3}}, "a level from 0 to 2, got 3"),
        ({**GOOD, "answers": {"sev": -1}}, "a level from 0 to 2"),
        ({**GOOD, "answers": {"sev": True}}, "a level from 0 to 2"),
        ({**GOOD, "answers": {"sev": "1"}}, "a level from 0 to 2"),
        ({**GOOD, "answers": {"urgent": 1}}, "true or false, got 1"),
        ({**GOOD, "answers": {"urgent": "true"}}, "true or false"),
        ({**GOOD, "lang": 5}, "'lang' must be a language code"),
        ({**GOOD, "lang": " "}, "'lang' must be a language code"),
        (
            {**GOOD, "questions": {"urgent": {"type": "bool"}}, "answers": {"urgent": True}},
            "'type' must be one of",
        ),
    ],
    ids=str,
)
def test_a_faulty_line_is_named(tmp_path: Path, line: Any, told: str):
    with pytest.raises(InvalidRequestError, match=rf"data\.jsonl:2: .*{told}"):
        read(tmp_path, GOOD, line)


def test_lines_before_a_faulty_one_are_read(tmp_path: Path):
    lines = read_labelled(written(tmp_path, GOOD, "{"))
    assert next(lines).number == 1
    with pytest.raises(InvalidRequestError, match=":2:"):
        next(lines)


def test_what_is_not_text_is_named(tmp_path: Path):
    path = tmp_path / "data.jsonl"
    path.write_bytes(json.dumps(GOOD).encode() + b"\n\xff\xfe\n")
    with pytest.raises(InvalidTextError, match=r"data\.jsonl:2: not UTF-8"):
        list(read_labelled(path))


def test_a_line_without_an_end_is_not_read_whole(tmp_path: Path):
    path = tmp_path / "data.jsonl"
    path.write_bytes(b"x" * (MAX_LINE_BYTES + 10))
    with pytest.raises(InvalidRequestError, match="more than"):
        list(read_labelled(path))


def test_equal_questions_are_asked_together_and_batches_are_bounded(tmp_path: Path):
    asked = Asked()
    seen: list[int] = []
    other = {"state": "o", "questions": SCORE, "answers": {"sev": 0}}
    lines = [GOOD, other, GOOD, other, GOOD]
    found = list(
        records_of(read_labelled(written(tmp_path, *lines)), asked, batch=4, step=seen.append)
    )
    assert [states for states, _ in asked.calls] == [["x", "x"], ["o", "o"], ["x"]]
    assert seen == [4, 5]
    assert len(found) == 3 * 3 + 2


def test_what_cannot_be_asked_is_named_and_keeps_its_type(tmp_path: Path):
    lines = [{"state": state, "questions": NOUL, "answers": {"urgent": True}} for state in "xy"]
    lines.append({**lines[0], "state": "bad"})
    with pytest.raises(OptionsTruncatedError, match=r"data\.jsonl:3: the options do not fit"):
        list(records_of(read_labelled(written(tmp_path, *lines)), Asked()))


def test_a_failing_graph_is_named_with_its_line(tmp_path: Path):
    def broken(states: Sequence[Any], questions: Mapping[str, Any]) -> Any:
        raise NonFiniteOutputError("NaN")

    line = {"state": "x", "questions": CHOICE, "answers": {"team": "tech"}}
    with pytest.raises(NonFiniteOutputError, match=":1: NaN"):
        list(records_of(read_labelled(written(tmp_path, line)), broken))
