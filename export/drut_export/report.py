"""`VERIFICATION.md` and `verification.svg`: the figures of a verification, for people."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from drut_export.picture import draw_distribution
from drut_export.verify_report import Figures, VerifyReport

REPORT_NAME: Final = "VERIFICATION.md"
PICTURE_NAME: Final = "verification.svg"

_TITLES: Final = (
    "batch",
    "rows",
    "logits, largest",
    "mean",
    "probabilities, largest",
    "mean",
    "equal choices",
    "alone or in a batch",
    "batch invariant",
)


def write_report(
    directory: Path,
    report: VerifyReport,
    *,
    name: str,
    precision: str,
    notes: Sequence[str] = (),
) -> None:
    """Write the Markdown report and its picture into a directory.

    Args:
        directory: of the bundle's version.
        report: what was found.
        name: of the bundle.
        precision: of its graph.
        notes: further paragraphs about how the graph was made and run.
    """
    picture = draw_distribution(
        report.distribution,
        limit=report.tolerance.probabilities,
        title=f"{name}, {precision}: differences of probabilities from the checkpoint",
    )
    paragraphs = "".join(f"{note}\n\n" for note in notes)
    text = (
        f"# Verification of {name} ({precision})\n\n{render_report(report)}\n\n"
        f"{paragraphs}"
        f"![Distribution of the differences of probabilities]({PICTURE_NAME})\n"
    )
    (directory / PICTURE_NAME).write_text(picture, encoding="utf-8")
    (directory / REPORT_NAME).write_text(text, encoding="utf-8")


def render_report(report: VerifyReport) -> str:
    """Markdown without a heading, readable as plain text too; it ends without a line break."""
    total = report.total
    invariant = "does not depend" if report.batch_invariant else "DEPENDS"
    return "\n".join(
        (
            "Absolute differences from the reference, at export the checkpoint in torch;",
            "probabilities at temperature 1. The same rows also ran one by one: the last columns",
            "say how far the logits of a row move with its neighbours and its padding.",
            "",
            *_table([_TITLES, *_rows(report)]),
            "",
            f"An answer {invariant} on the other rows of a batch.",
            f"Worst row: {total.worst_row}.",
            "",
            *_calibration(report),
            "",
            *_verdict(report),
        )
    )


def _calibration(report: VerifyReport) -> Iterator[str]:
    """What can be said about calibration: errors need labels, without them there is only drift."""
    moved = _short(report.total.mean_confidence_difference)
    yield f"Confidence, the largest probability of a row, differs by {moved} on average."
    found = report.calibration
    if found is None:
        yield "No labelled data was given, so the calibration error is not known."
        return
    pairs = (
        ("calibration error at temperature 1", "error_before", ".4f"),
        ("calibration error at the checkpoint's temperatures", "error", ".4f"),
        ("right answers", "right", ".1%"),
    )
    yield ""
    yield from _table(
        [
            (f"{found.answers} labelled answers of {found.data}", "checkpoint", "graph"),
            *(
                (
                    title,
                    format(getattr(found.checkpoint, field), form),
                    format(getattr(found.graph, field), form),
                )
                for title, field, form in pairs
            ),
        ]
    )


def _rows(report: VerifyReport) -> Iterator[tuple[str, ...]]:
    for figures in (*report.cases, report.total):
        yield _cells(figures)
    allowed = report.tolerance
    yield (
        "allowed",
        "",
        _short(allowed.logits),
        "",
        _short(allowed.probabilities),
        "",
        f"{allowed.equal_choices:.1%}",
        _short(allowed.batch),
        "",
    )


def _cells(figures: Figures) -> tuple[str, ...]:
    return (
        figures.title,
        str(figures.rows),
        _short(figures.max_logit_difference),
        _short(figures.mean_logit_difference),
        _short(figures.max_probability_difference),
        _short(figures.mean_probability_difference),
        f"{figures.equal_choices:.1%}",
        _short(figures.batch_difference),
        "yes" if figures.batch_invariant else "no",
    )


def _verdict(report: VerifyReport) -> Iterator[str]:
    if report.passed:
        yield "Passed: every figure is within what is allowed."
        return
    yield "Failed:"
    yield ""
    for problem in report.problems:
        yield f"- {problem}"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of a Markdown table whose columns are equally wide; numbers are on the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        first, *others = (
            cell.rjust(width) if index else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield f"| {' | '.join((first, *others))} |"
        if number == 0:
            rules = [f"{'-' * (width + 1)}:" for width in widths[1:]]
            yield f"|{'-' * (widths[0] + 2)}|{'|'.join(rules)}|"


def _short(value: float) -> str:
    return f"{value:.2g}"
