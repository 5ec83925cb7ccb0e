from collections import Counter

import pytest
from starter.bank import BankError, bank_files, load_schemas, problems, usable
from starter.evalsets import DEVELOPMENT, UNSEEN

SMALL = """# a comment
= choice | post
! Where to?
@ billing / payments :: about money
- charged twice
- where is my invoice
@ technical
- it crashes
- no picture
= noul
! Is it urgent?
+ now
+ at once
- no hurry
- some day
"""


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.txt"
    path.write_text(SMALL, encoding="utf-8")
    return path


def test_records_become_schemas(small):
    choice, noul = load_schemas([small])
    assert (choice.kind, choice.domain, choice.questions) == ("choice", "post", ["Where to?"])
    assert choice.labels[0].names == ("billing", "payments")
    assert choice.labels[0].description == "about money"
    assert choice.labels[1].texts == ["it crashes", "no picture"]
    assert (noul.yes, noul.no) == (["now", "at once"], ["no hurry", "some day"])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("= guess | x\n", "guess"),
        ("- text first\n", "text first"),
        ("= choice | x\n- no label\n", "before the first label"),
        ("= choice | x\nplain line\n", ":2"),
    ],
)
def test_a_bad_line_is_named(tmp_path, text, says):
    path = tmp_path / "bad.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BankError, match=says):
        load_schemas([path])


def test_problems_are_found_and_left_out(tmp_path):
    path = tmp_path / "poor.txt"
    path.write_text("= choice | x\n@ a\n- {planet}\n- 1\n@ b\n- 2\n", encoding="utf-8")
    found = " ".join(problems(load_schemas([path])))
    assert "no question" in found
    assert "'b' has 1 texts" in found
    assert "unknown slot planet" in found
    assert usable(load_schemas([path])) == []


@pytest.mark.parametrize("path", [*bank_files(), DEVELOPMENT, UNSEEN], ids=lambda path: path.name)
def test_committed_files_are_well_formed(path):
    assert problems(load_schemas([path])) == []


def test_the_bank_is_broad(schemas):
    kinds = Counter(schema.kind for schema in schemas)
    assert kinds["choice"] >= 150
    assert kinds["noul"] >= 80
    assert kinds["score"] >= 60
    assert sum(len(schema.labels) for schema in schemas if schema.kind == "choice") >= 1200


def test_yes_and_no_texts_are_balanced(schemas):
    yes = sum(len(schema.yes) for schema in schemas)
    no = sum(len(schema.no) for schema in schemas)
    assert 0.8 < yes / no < 1.25
