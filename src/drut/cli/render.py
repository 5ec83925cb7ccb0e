"""Answers as tables with bars, for people."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from drut.cli.console import clip, printable, speaks_unicode
from drut.schema import Prediction, Questions

NARROW: Final = 60
"""Columns below which answers are stacked instead of put into a table."""

MAX_BARS: Final = 8
"""Options of a choice that get a bar of their own; the others share one."""

_EIGHTHS: Final = " \u258f\u258e\u258d\u258c\u258b\u258a\u2589\u2588"
_LONGEST_BAR: Final = 24
_GOOD_BAR: Final = 12
_SHORTEST_BAR: Final = 6
_PERCENT: Final = 4  # cells of "100%"
_GAP: Final = 2  # cells between columns: one of padding, one of the box
_CONFIDENCE: Final = "confidence"


@dataclass(frozen=True, slots=True)
class Bar:
    """One option and its probability."""

    label: str
    share: float
    wins: bool


@dataclass(frozen=True, slots=True)
class AnswerView:
    """What is shown of one answer."""

    question: str
    answer: str
    bars: tuple[Bar, ...]
    confidence: float | None
    abstained: str = ""  # why the answer should not be used, if so


def views(result: Prediction, questions: Questions) -> list[AnswerView]:
    """Everything to show of a result, in question order."""
    return [
        _view(str(key), dict(answer), questions.get(key, {}))
        for key, answer in result.get("answers", {}).items()
    ]


def render(result: Prediction, questions: Questions, console: Console) -> RenderableType:
    """A table of a result's answers, or a stack of them where the console is narrow."""
    shown = [_fitting(view, console) for view in views(result, questions)]
    if not shown:
        return Text("nothing was asked", style="dim")
    longest = max(cell_len(bar.label) for view in shown for bar in view.bars)
    room = console.width - sum(_side_widths(shown, console)) - len(_CONFIDENCE) - 3 * _GAP
    grid = _grid_widths(room, longest)
    if console.width < NARROW or grid[1] < _SHORTEST_BAR:
        return _stack(shown, console, _grid_widths(console.width - 2, longest))
    return _table(shown, console, grid)


def cut_note(result: Prediction) -> str | None:
    """What the token budget cut from a state and its questions, None where nothing was."""
    rows = result.get("usage", {}).get("questions", {})
    cut = [
        f"{key}: {row['state_tokens_dropped']} of {row['state_tokens']} state tokens, "
        f"{row['head_tokens_dropped']} of {row['head_tokens']} instruction and option tokens"
        for key, row in rows.items()
        if row["state_tokens_dropped"] or row["head_tokens_dropped"]
    ]
    if not cut:
        return None
    more = f"; and {len(cut) - 3} more questions" if len(cut) > 3 else ""
    return f"cut to fit the token budget ({'; '.join(cut[:3])}{more})"


def bar_text(share: float, width: int, *, blocks: bool) -> str:
    """A bar of at most `width` cells; anything above zero leaves a mark."""
    share = min(1.0, max(0.0, share))
    if not blocks:
        return "#" * max(round(share * width), int(share > 0))
    eighths = max(round(share * width * 8), int(share > 0))
    full, rest = divmod(eighths, 8)
    return _EIGHTHS[8] * full + _EIGHTHS[rest].strip()


def _view(question: str, answer: Mapping[str, Any], asked: Mapping[str, Any]) -> AnswerView:
    make = {"choice": _choice, "score": _score, "noul": _noul}[answer["type"]]
    text, bars = make(answer, asked)
    abstained = ""
    if answer.get("abstention") == "abstained":
        abstained = f"abstained, below {answer['abstention_threshold']:.2f}"
    return AnswerView(question, text, tuple(bars), answer.get("answer_confidence"), abstained)


def _choice(answer: Mapping[str, Any], asked: Mapping[str, Any]) -> tuple[str, list[Bar]]:
    ranked = sorted(answer["probabilities"].items(), key=lambda item: -item[1])
    keep = MAX_BARS if len(ranked) > MAX_BARS + 1 else len(ranked)
    best = ranked[0][0]
    bars = [Bar(str(label), share, label == best) for label, share in ranked[:keep]]
    others = ranked[keep:]
    if others:
        bars.append(Bar(f"{len(others)} others", sum(share for _, share in others), wins=False))
    return str(answer["choice"]), bars


def _score(answer: Mapping[str, Any], asked: Mapping[str, Any]) -> tuple[str, list[Bar]]:
    legend, shares = answer["legend"], answer["probabilities"]
    top = max(shares.values())
    bars = [Bar(f"{level} {legend[level]}", share, share == top) for level, share in shares.items()]
    return f"{answer['score']:.2f} of {len(bars) - 1}", bars


def _noul(answer: Mapping[str, Any], asked: Mapping[str, Any]) -> tuple[str, list[Bar]]:
    labels = asked.get("labels") or {"true": "yes", "false": "no"}
    yes = answer["noul"]
    holds = yes >= 0.5
    bars = [
        Bar(labels["true"], yes, holds),
        Bar(labels["false"], 1.0 - yes, not holds),
    ]
    return labels["true" if holds else "false"], bars


def _fitting(view: AnswerView, console: Console) -> AnswerView:
    """Replace what the console cannot or should not show."""
    bars = tuple(Bar(printable(bar.label, console.file), bar.share, bar.wins) for bar in view.bars)
    question, answer = (printable(text, console.file) for text in (view.question, view.answer))
    return AnswerView(question, answer, bars, view.confidence, view.abstained)


def _side_widths(shown: Sequence[AnswerView], console: Console) -> tuple[int, int]:
    """Cells of the columns with questions and answers."""
    most = max(12, console.width // 4)
    questions = max(cell_len(view.question) for view in shown)
    answers = max(cell_len(text.plain) for text in map(_answer_text, shown))
    return min(most, max(questions, len("question"))), min(most, max(answers, len("answer")))


def _grid_widths(room: int, longest: int) -> tuple[int, int]:
    """Cells of labels and bars where both share `room` with a percentage and two blanks."""
    shared = room - _PERCENT - 2
    labels = max(4, min(longest, max(shared // 2, shared - _GOOD_BAR)))
    return labels, shared - labels


def _table(shown: Sequence[AnswerView], console: Console, grid: tuple[int, int]) -> Table:
    questions, answers = _side_widths(shown, console)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("question", width=questions, overflow="fold")
    table.add_column("answer", width=answers, overflow="fold")
    table.add_column(_CONFIDENCE, justify="right", no_wrap=True)
    table.add_column("probability", no_wrap=True)
    for view in shown:
        table.add_row(
            Text(view.question, style="bold"),
            _answer_text(view),
            _confidence(view),
            _bars(view, console, grid),
        )
    return table


def _stack(shown: Sequence[AnswerView], console: Console, grid: tuple[int, int]) -> Group:
    parts: list[RenderableType] = []
    for view in shown:
        headline = Text.assemble((view.question, "bold"), ": ", _answer_text(view))
        if view.confidence is not None:
            headline = Text.assemble(headline, f" ({_CONFIDENCE} ", _confidence(view), ")")
        parts += [headline, Padding(_bars(view, console, grid), (0, 0, 0, 2))]
    return Group(*parts)


def _answer_text(view: AnswerView) -> Text:
    if view.abstained:
        return Text.assemble((view.answer, "dim"), " ", (f"[{view.abstained}]", "yellow"))
    return Text(view.answer, style="green")


def _confidence(view: AnswerView) -> Text:
    if view.confidence is None:
        return Text("")
    return Text(f"{view.confidence:.2f}", style="yellow" if view.abstained else "")


def _bars(view: AnswerView, console: Console, grid: tuple[int, int]) -> Table:
    """Label, bar and percentage of every option, one a line."""
    blocks = speaks_unicode(console.file)
    label_cells, bar_cells = grid[0], max(1, min(_LONGEST_BAR, grid[1]))
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(width=label_cells, no_wrap=True)
    table.add_column(width=bar_cells, no_wrap=True)
    table.add_column(width=_PERCENT, no_wrap=True, justify="right")
    for bar in view.bars:
        style = "" if bar.wins else "dim"
        table.add_row(
            Text(clip(bar.label, label_cells, console.file), style=style),
            Text(bar_text(bar.share, bar_cells, blocks=blocks), "green" if bar.wins else "dim"),
            Text(f"{bar.share:.0%}", style=style),
        )
    return table
