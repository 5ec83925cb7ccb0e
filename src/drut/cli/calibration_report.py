"""What `drut calibrate` reports: one row per type, bucket and language, before and after."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich import box
from rich.table import Table
from rich.text import Text

from drut.cli.reliability import Panel
from drut.decoding.calibration import (
    BUCKETS,
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    Calibration,
    primary_subtag,
)
from drut.decoding.fitting import Record, mean_nll, reliability
from drut.tensors import QTYPES

EVERYTHING: Final = "all"


@dataclass(frozen=True, slots=True)
class Fit:
    """What was fitted, to what, and on what it is judged."""

    fitted_on: Sequence[Record]
    judged_on: Sequence[Record]
    before: Calibration
    after: Calibration
    by_language: Calibration | None = None  # `after` with temperatures per language


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the report. Pairs are before and after; None where there are no records."""

    name: str
    fitted_on: int
    judged_on: int
    temperature: tuple[float, float] | None  # None for a row with several
    nll: tuple[float, float] | None
    ece: tuple[float, float] | None

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready, with one key per figure."""
        figures: dict[str, Any] = {
            "name": self.name,
            "records": self.fitted_on,
            "judged_on": self.judged_on,
        }
        for key in ("temperature", "nll", "ece"):
            before, after = getattr(self, key) or (None, None)
            figures |= {f"{key}_before": before, f"{key}_after": after}
        return figures


def rows_of(fit: Fit) -> list[Row]:
    """Every type that was labelled, below it its buckets; then languages, then everything."""
    rows: list[Row] = []
    for kind, index in QTYPES.items():
        types = fit.before.temperatures.by_type[index], fit.after.temperatures.by_type[index]
        own = [record for record in (*fit.fitted_on, *fit.judged_on) if record.kind == kind]
        if own:
            rows.append(_row(kind, fit, types))
        for name in BUCKETS:
            if any(record.bucket == name for record in own):
                before = fit.before.temperatures.by_bucket.get(name, types[0])
                after = fit.after.temperatures.by_bucket.get(name, types[1])
                rows.append(_row(name, fit, (before, after)))
    return [*rows, *_language_rows(fit), _row(EVERYTHING, fit, None)]


def doubts_of(fit: Fit) -> Iterator[str]:
    """What in a fit deserves a second look before it is used."""
    for kind, index in QTYPES.items():
        before, after = (
            fit.before.temperatures.by_type[index],
            fit.after.temperatures.by_type[index],
        )
        if after != before and after in (MIN_TEMPERATURE, MAX_TEMPERATURE):
            yield (
                f"the best temperature of {kind} lies beyond {after:g}, where the range ends; "
                "the answers may be too few, or labelled wrongly"
            )
    everything = _row(EVERYTHING, fit, None)
    held_out = fit.judged_on is not fit.fitted_on
    if held_out and everything.nll is not None and everything.nll[1] > everything.nll[0]:
        yield (
            f"the held-out answers became less likely (NLL {everything.nll[0]:.4f} before, "
            f"{everything.nll[1]:.4f} after); label more before this file is used"
        )


def panels_of(fit: Fit) -> list[Panel]:
    """What the reliability diagram shows: everything, and each type where there are several."""
    kinds = [kind for kind in QTYPES if any(record.kind == kind for record in fit.judged_on)]
    names = [EVERYTHING, *kinds] if len(kinds) > 1 else kinds or [EVERYTHING]
    return [
        Panel(name, reliability(own, fit.before), reliability(own, fit.after))
        for name in names
        for own in [_selected(fit.judged_on, name)]
    ]


def table_of(rows: Sequence[Row], *, held_out: bool, arrow: str) -> Table:
    """The rows for people.

    Args:
        rows: as `rows_of` returns them.
        held_out: whether the figures are of other records than those fitted on.
        arrow: what stands between before and after.
    """
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    counts = ("n", "held out") if held_out else ("n",)
    for title in (*counts, "T", "NLL", "ECE"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        numbers = (row.fitted_on, row.judged_on) if held_out else (row.fitted_on,)
        cells = [f"{number:,}" for number in numbers]
        cells += [_pair(row.temperature, 2, arrow), _pair(row.nll, 4, arrow)]
        indent = "  " if row.name in BUCKETS else ""
        table.add_row(Text(indent + row.name), *cells, _pair(row.ece, 3, arrow))
    return table


def _language_rows(fit: Fit) -> Iterator[Row]:
    if fit.by_language is None:
        return
    for code in sorted(fit.by_language.by_language):
        name = f"lang {code}"
        own = _selected(fit.judged_on, name)
        count = len(_selected(fit.fitted_on, name))
        yield _judged((name, count), None, own, (fit.before, fit.by_language))


def _row(name: str, fit: Fit, temperature: tuple[float, float] | None) -> Row:
    count = len(_selected(fit.fitted_on, name))
    own = _selected(fit.judged_on, name)
    return _judged((name, count), temperature, own, (fit.before, fit.after))


def _judged(
    head: tuple[str, int],
    temperature: tuple[float, float] | None,
    own: Sequence[Record],
    calibrations: tuple[Calibration, Calibration],
) -> Row:
    if not own:
        return Row(head[0], head[1], 0, temperature, None, None)
    before, after = calibrations
    nll = mean_nll(own, before), mean_nll(own, after)
    ece = reliability(own, before).error, reliability(own, after).error
    return Row(head[0], head[1], len(own), temperature, nll, ece)


def _selected(records: Sequence[Record], name: str) -> list[Record]:
    """The records of a row: a type's, a bucket's, a language's, or all."""
    if name == EVERYTHING:
        return list(records)
    if name in QTYPES:
        return [record for record in records if record.kind == name]
    if name in BUCKETS:
        return [record for record in records if record.bucket == name]
    code = name.removeprefix("lang ")
    return [record for record in records if primary_subtag(record.language or "") == code]


def _pair(values: tuple[float, float] | None, digits: int, arrow: str) -> str:
    if values is None:
        return ""
    return f"{values[0]:.{digits}f} {arrow} {values[1]:.{digits}f}"
