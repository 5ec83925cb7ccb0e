import io
from typing import Any

import pytest
from rich.cells import cell_len

from drut.cli.console import console_on
from drut.cli.render import MAX_BARS, bar_text, cut_note, render, views

CHOICE = {
    "type": "choice",
    "choice": "billing",
    "probabilities": {"technical": 0.25, "billing": 0.7, "日本語のとても長いラベル [b]": 0.05},
    "confidence": 0.4,
    "answer_confidence": 0.6543,
}
SCORE = {
    "type": "score",
    "score": 1.85,
    "legend": {"0": "can wait", "1": "this week", "2": "today"},
    "probabilities": {"0": 0.05, "1": 0.05, "2": 0.9},
    "confidence": 0.7,
    "answer_confidence": 0.9,
}
NOUL = {"type": "noul", "noul": 0.2, "confidence": 0.8, "answer_confidence": 0.8}
RESULT: Any = {"answers": {"team": CHOICE, "urgency": SCORE, "churn": NOUL}, "usage": {}}


def drawn(result: Any = RESULT, *, width: int = 80, encoding: str = "utf-8") -> str:
    to = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
    console = console_on(to, width=width)
    console.print(render(result, {}, console))
    return to.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]


def line_of(text: str, beginning: str) -> str:
    return next(line for line in text.splitlines() if line.lstrip().startswith(beginning))


def test_a_choice_shows_its_answer_and_the_gate_s_confidence() -> None:
    assert line_of(drawn(), "team").split()[:4] == ["team", "billing", "0.65", "billing"]


def test_options_of_a_choice_are_ranked_and_levels_are_not() -> None:
    team, urgency, _ = views(RESULT, {})
    assert [bar.share for bar in team.bars] == [0.7, 0.25, 0.05]
    assert [bar.label for bar in urgency.bars] == ["0 can wait", "1 this week", "2 today"]


def test_a_score_is_shown_with_its_range() -> None:
    assert views(RESULT, {})[1].answer == "1.85 of 2"


def test_a_noul_is_shown_with_its_own_labels() -> None:
    labelled = {"churn": {"type": "noul", "labels": {"true": "leaves", "false": "stays"}}}
    churn = views(RESULT, labelled)[2]
    assert churn.answer == "stays"
    assert [(bar.label, round(bar.share, 4)) for bar in churn.bars] == [
        ("leaves", 0.2),
        ("stays", 0.8),
    ]


def test_many_options_share_a_last_bar_and_lose_no_probability() -> None:
    many = {**CHOICE, "probabilities": {f"o{i}": 0.05 for i in range(20)}, "choice": "o0"}
    (view,) = views({"answers": {"q": many}}, {})  # type: ignore[typeddict-item]
    assert len(view.bars) == MAX_BARS + 1
    assert view.bars[-1].label == "12 others"
    assert sum(bar.share for bar in view.bars) == pytest.approx(1.0)


def test_an_abstained_answer_says_so() -> None:
    gated = {**NOUL, "abstention": "abstained", "abstention_threshold": 0.9}
    assert "abstained, below 0.90" in drawn({"answers": {"q": gated}}, width=200)


@pytest.mark.parametrize("width", [1, 5, 16, 30, 59, 60, 61, 80, 132, 300])
@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "ascii", "cp437"])
def test_no_line_is_wider_than_the_console(width: int, encoding: str) -> None:
    # A character of two cells does not fit into one.
    limit = max(width, 2)
    assert all(
        cell_len(line) <= limit for line in drawn(width=width, encoding=encoding).split("\n")
    )


@pytest.mark.parametrize("width", [40, 60, 80, 132])
def test_bars_keep_their_column_whatever_the_labels(width: int) -> None:
    ends = {cell_len(line.rstrip()) for line in drawn(width=width).splitlines() if "%" in line}
    assert len(ends) == 1


def test_a_narrow_console_gets_a_stack_instead_of_a_table() -> None:
    assert "question" in drawn(width=60)
    narrow = drawn(width=59)
    assert "question" not in narrow
    assert line_of(narrow, "team:") == "team: billing (confidence 0.65)"


def test_labels_are_text_and_not_markup() -> None:
    assert "[b]" in drawn(width=132)


def test_a_console_without_block_characters_gets_plain_ones() -> None:
    plain = drawn(encoding="cp1252")
    assert "#" in plain
    assert "█" not in plain
    assert "█" in drawn()


def test_a_state_that_was_asked_nothing_is_drawn() -> None:
    assert drawn({"answers": {}, "usage": {}}) == "nothing was asked\n"


@pytest.mark.parametrize("blocks", [True, False])
@pytest.mark.parametrize("share", [0.0, 1e-6, 0.01, 0.33, 0.5, 0.999, 1.0, 1.2, -0.1])
def test_a_bar_fits_and_only_zero_is_empty(share: float, blocks: bool) -> None:
    bar = bar_text(share, 10, blocks=blocks)
    assert len(bar) <= 10
    assert bool(bar) == (share > 0)


def test_bars_grow_with_the_probability() -> None:
    assert bar_text(0.5, 10, blocks=True) == "█████"
    assert bar_text(0.55, 10, blocks=True) == "█████▌"
    assert bar_text(0.5, 10, blocks=False) == "#####"


def usage(**changed: int) -> dict[str, int]:
    whole = {"state_tokens": 50, "state_tokens_dropped": 0, "head_tokens": 20}
    return {**whole, "head_tokens_dropped": 0, **changed}


def test_a_cut_is_told_with_its_question_and_tokens() -> None:
    rows = {"a": usage(), "b": usage(state_tokens_dropped=30), "c": usage(head_tokens_dropped=2)}
    note = cut_note({"usage": {"questions": rows}})  # type: ignore[typeddict-item]
    assert note is not None
    assert "a:" not in note
    assert "b: 30 of 50 state tokens, 0 of 20" in note
    assert "c: 0 of 50 state tokens, 2 of 20 instruction" in note


def test_nothing_is_told_where_nothing_was_cut() -> None:
    assert cut_note({"usage": {"questions": {"a": usage()}}}) is None  # type: ignore[typeddict-item]
    assert cut_note({"answers": {}}) is None
