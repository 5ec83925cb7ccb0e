"""`drut doctor`: is this installation sound, and if not, what to do."""

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from drut.cli.console import FAILED, OK, page_on, printable, write_json
from drut.cli.health import Health, Hub, Threads, examine

_VERDICTS = {True: "ok", False: "no", None: "?"}
_STYLES = {True: "green", False: "", None: "yellow"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.description = (
        "Show versions, the devices that really run a bundle, threads, model repositories, "
        "bundles and the hub's cache, and what is wrong. The exit code is 0 where nothing is "
        "wrong, else 1."
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--url",
        help="Triton server to look at, too: grpc://HOST:8001 or http://HOST:8000 (default: "
        "DRUT_TRITON_URL)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the report. Returns the exit code."""
    health = examine(url=arguments.url)
    if arguments.json:
        write_json(health.as_dict(), sys.stdout)
    else:
        show(health, page_on(sys.stdout))
    return FAILED if health.problems else OK


def show(health: Health, console: Console) -> None:
    """Print the report for people."""
    console.print(Text(health.system))
    _section(console, "Versions", _versions(health))
    _devices(console, health)
    _section(console, "Threads", _threads(health.threads))
    places = [(each.path, "" if each.exists else "not there") for each in health.repositories]
    _section(console, "Model repositories, first match wins", places)
    bundles = [
        (each.name, str(each.bundle.version) if each.bundle else "", *each.facts())
        for each in health.bundles
    ]
    _section(console, "Bundles", bundles or [("none",)])
    _section(console, "Hub", _hub(health.hub))
    if health.server is not None:
        _section(console, "Triton server", health.server.rows())
    _problems(console, health)


def _section(console: Console, title: str, rows: Sequence[Sequence[str]]) -> None:
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in rows[0]:
        table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell, console.file)) for cell in row))
    _block(console, title, table)


def _devices(console: Console, health: Health) -> None:
    table = Table.grid(padding=(0, 2, 0, 0))
    for each in health.devices:
        verdict = Text(_VERDICTS[each.usable], style=_STYLES[each.usable])
        table.add_row(each.device, verdict, Text(printable(each.detail, console.file)))
    _block(console, "Devices", table)


def _versions(health: Health) -> list[tuple[str, str]]:
    return [
        (name, version or ("from its source tree" if name == "drut" else "not installed"))
        for name, version in health.versions.items()
    ]


def _threads(threads: Threads) -> list[tuple[str, str]]:
    quota = "none" if threads.quota is None else f"{threads.quota:g} processors"
    machine = threads.machine_processors
    return [
        ("one forward pass", str(threads.forward)),
        ("usable processors", f"{threads.usable_processors} of {machine or 'unknown'}"),
        ("control group quota", quota),
    ]


def _hub(hub: Hub) -> list[tuple[str, str]]:
    return [
        ("cache", hub.cache if hub.exists else f"{hub.cache} (not there yet)"),
        ("mode", "offline (HF_HUB_OFFLINE)" if hub.offline else "online"),
        ("endpoint", hub.endpoint),
    ]


def _problems(console: Console, health: Health) -> None:
    if not health.problems:
        _block(console, "What is wrong", Text("nothing", style="green"))
        return
    table = Table.grid(padding=(0, 1, 0, 0))
    for number, problem in enumerate(health.problems, start=1):
        text = Text.assemble(
            (printable(problem.what, console.file), "red"),
            "\n-> ",
            printable(problem.do, console.file),
        )
        table.add_row(f"{number}.", text)
    _block(console, "What is wrong", table)


def _block(console: Console, title: str, body: Table | Text) -> None:
    console.print()
    console.print(Text(title, style="bold"))
    console.print(Padding(body, (0, 0, 0, 2), expand=False))
