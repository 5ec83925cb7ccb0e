"""`drut calibrate`: fit temperatures to labelled answers, with the exported graph itself."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from drut.agent import DecisionAgent
from drut.cli.calibration_report import Fit, Row, doubts_of, panels_of, rows_of, table_of
from drut.cli.console import (
    OK,
    console_on,
    is_terminal,
    page_on,
    printable,
    speaks_unicode,
    tell,
    write_json,
)
from drut.cli.reliability import draw_reliability
from drut.decoding.calibration import Calibration
from drut.decoding.calibration_file import (
    write_calibration,
    write_language_temperatures,
    write_text,
)
from drut.decoding.fitting import (
    DEFAULT_FLOORS,
    Floors,
    Record,
    fit_calibration,
    fit_language_temperatures,
)
from drut.decoding.identity import identity_of
from drut.decoding.labelled import BATCH_LINES, Step, read_labelled, records_of
from drut.errors import InvalidRequestError
from drut.loading import DEFAULT_CHECKPOINT, load

_DESCRIPTION: Final = """\
Fit temperatures to the labelled answers in DATA and write a calibration file, which drut predict
--calibration applies. DATA is JSON Lines, each line an object with "state", "questions" (id to
definition), "answers" (id to label, level, or true/false) and optionally "lang". A picture of
confidence against accuracy, before and after, is written beside the file as SVG."""
_PICTURE: Final = ".svg"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.description = _DESCRIPTION
    add = parser.add_argument
    add("data", metavar="DATA", type=Path, help="labelled answers to fit to")
    add("--checkpoint", default=DEFAULT_CHECKPOINT, help="name or directory of an exported bundle")
    add("--output", type=Path, required=True, metavar="FILE", help="calibration file to write")
    add(
        "--held-out",
        type=Path,
        metavar="FILE",
        help="other labelled answers, on which the figures and the picture are made",
    )
    add("--lang-output", type=Path, metavar="FILE", help="also fit temperatures per language")
    for name, group in (("type", "per_type"), ("bucket", "per_bucket"), ("bins", "per_binning")):
        floor = getattr(DEFAULT_FLOORS, group)
        what = "a bucket's bins" if name == "bins" else f"a {name}"
        add(
            f"--min-per-{name}",
            type=_count,
            default=floor,
            metavar="N",
            help=f"answers needed for {what} (default: {floor})",
        )
    add("--binning", action="store_true", help="also map confidence to accuracy, bin by bin")
    add("--device", help="auto, cpu, cuda, cuda:N or tensorrt (default: DRUT_DEVICE, or auto)")
    add("--batch-size", type=_count, default=BATCH_LINES, metavar="N", help="lines at a time")
    add("--json", action="store_true", help="print one JSON object on a terminal, too")
    add("--no-progress", action="store_true", help="no progress on a terminal")


def run(arguments: argparse.Namespace) -> int:
    """Fit, write and report. Returns the exit code; wrong usage ends in `SystemExit(2)`."""
    _check_usage(arguments)
    with load(arguments.checkpoint, device=arguments.device) as agent:
        fitted_on = _records(agent, arguments.data, arguments)
        held_out = arguments.held_out
        judged_on = fitted_on if held_out is None else _records(agent, held_out, arguments)
        identity = identity_of(agent.checkpoint)
        before = agent.calibration
    fit = _fit(arguments, fitted_on, judged_on, before)
    write_calibration(arguments.output, fit.after, identity)
    if fit.by_language is not None:
        write_language_temperatures(arguments.lang_output, fit.by_language.by_language)
    picture = arguments.output.with_suffix(_PICTURE)
    source = arguments.data if held_out is None else held_out
    title = f"Reliability on {source.name}"
    write_text(picture, draw_reliability(panels_of(fit), title=title))
    _report(arguments, fit, picture)
    for doubt in doubts_of(fit):
        tell(f"drut calibrate: warning: {doubt}")
    return OK


def _check_usage(arguments: argparse.Namespace) -> None:
    if arguments.output.suffix.lower() == _PICTURE:
        arguments.parser.error(f"--output is the calibration file; its picture gets {_PICTURE}")
    # What cannot be read or written is told before a checkpoint is loaded.
    for path in (arguments.data, arguments.held_out):
        if path is not None:
            path.stat()
    for path in (arguments.output, arguments.lang_output):
        if path is not None and not path.parent.is_dir():
            raise InvalidRequestError(f"there is no directory {path.parent} for {path.name}")


def _records(agent: DecisionAgent, path: Path, arguments: argparse.Namespace) -> list[Record]:
    with _progress(path, shown=not arguments.no_progress) as step:
        found = list(
            records_of(read_labelled(path), agent.logits, batch=arguments.batch_size, step=step)
        )
    if not found:
        raise InvalidRequestError(f"{path} has no labelled answers")
    return found


def _fit(
    arguments: argparse.Namespace,
    fitted_on: list[Record],
    judged_on: list[Record],
    before: Calibration,
) -> Fit:
    floors = Floors(arguments.min_per_type, arguments.min_per_bucket, arguments.min_per_bins)
    after = fit_calibration(fitted_on, before, floors, binning=arguments.binning)
    if arguments.binning and after.binning is None:
        tell(f"drut calibrate: no bucket has the {floors.per_binning} answers that bins need")
    if arguments.lang_output is None:
        return Fit(fitted_on, judged_on, before, after)
    languages = fit_language_temperatures(fitted_on, after.temperatures, floors)
    if not languages:
        raise InvalidRequestError(
            f"no language in {arguments.data} has {floors.per_type} labelled answers of one "
            'type; give lines a "lang", or leave out --lang-output'
        )
    return Fit(fitted_on, judged_on, before, after, replace(after, by_language=languages))


def _report(arguments: argparse.Namespace, fit: Fit, picture: Path) -> None:
    rows = rows_of(fit)
    if arguments.json or not is_terminal(sys.stdout):
        write_json(_as_dict(arguments, rows, picture), sys.stdout)
        return
    arrow = "\u2192" if speaks_unicode(sys.stdout) else "->"
    page = page_on(sys.stdout)
    page.print(table_of(rows, held_out=arguments.held_out is not None, arrow=arrow))
    written = [arguments.output, picture]
    if arguments.lang_output is not None:
        written.insert(1, arguments.lang_output)
    page.print(printable(f"wrote {', '.join(map(str, written))}", sys.stdout))


def _as_dict(arguments: argparse.Namespace, rows: list[Row], picture: Path) -> dict[str, Any]:
    languages, held_out = arguments.lang_output, arguments.held_out
    return {
        "calibration": str(arguments.output),
        "lang_temperatures": None if languages is None else str(languages),
        "picture": str(picture),
        "data": str(arguments.data),
        "held_out": None if held_out is None else str(held_out),
        "rows": [row.as_dict() for row in rows],
    }


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


@contextmanager
def _progress(path: Path, *, shown: bool) -> Iterator[Step | None]:
    """How many lines are done, on standard error, where a person is there to read it."""
    if not shown or not is_terminal(sys.stderr):
        yield None
        return
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        TextColumn("{task.completed} lines"),
        TimeElapsedColumn(),
        console=console_on(sys.stderr),
        transient=True,
        redirect_stdout=False,
    )
    task = bar.add_task(printable(path.name, sys.stderr), total=None)
    with bar:
        yield lambda number: bar.update(task, completed=number)
