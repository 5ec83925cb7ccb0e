"""`drut bundle list`, or `drut bundles`: the exported bundles that can be opened by name."""

import argparse
import sys
from typing import Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from drut import settings
from drut.cli.console import FAILED, OK, page_on, printable, tell, write_json
from drut.cli.found import Found, scan

NARROW: Final = 80


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.description = (
        "List the exported bundles of the model repositories, each name once, as it is opened. "
        "The exit code is 1 where one is damaged."
    )
    parser.add_argument("--json", action="store_true", help="print one JSON array")


def run(arguments: argparse.Namespace) -> int:
    """Print the list. Returns the exit code."""
    repositories = settings.model_repositories()
    found = scan(repositories)
    if arguments.json:
        write_json([each.as_dict() for each in found], sys.stdout)
    elif found:
        console = page_on(sys.stdout)
        console.print(_listed(found, console))
    else:
        places = ", ".join(map(str, repositories))
        tell(f"no bundles in {places}; make one with: drut export SOURCE --name NAME")
    damaged = [each for each in found if each.fault]
    for each in damaged:
        tell(f"drut {arguments.command}: {each.name}: {each.fault}")
    return FAILED if damaged else OK


def _listed(found: list[Found], console: Console) -> RenderableType:
    """A table, or a few lines for each bundle where the console is too narrow for one."""
    rows = [[printable(cell, console.file) for cell in _cells(each)] for each in found]
    if console.width < NARROW:
        return Group(*(_paragraph(row) for row in rows))
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for title in ("name", "version", "precision", "size", "verification", "directory"):
        table.add_column(title, overflow="fold")
    for row, each in zip(rows, found, strict=True):
        table.add_row(*map(Text, row), style="red" if each.fault else "")
    return table


def _paragraph(row: list[str]) -> Group:
    first, rest = row[:4], row[4:]
    lines = [Padding(Text(cell, overflow="fold"), (0, 0, 0, 2)) for cell in rest]
    return Group(Text(" ".join(filter(None, first)), style="bold"), *lines)


def _cells(each: Found) -> tuple[str, ...]:
    precision, size, verification = each.facts()
    return (
        each.name,
        str(each.bundle.version) if each.bundle else "",
        precision,
        size,
        "damaged" if each.fault else verification,
        str(each.bundle.directory if each.bundle else each.directory),
    )
