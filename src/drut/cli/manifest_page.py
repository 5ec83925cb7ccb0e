"""A bundle's manifest as a page for people."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from rich.console import Console
from rich.filesize import decimal
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from drut.checkpoint.bundle import Bundle
from drut.cli.console import printable

_SECTIONS: Final = ("verification", "tools", "files")


def show(bundle: Bundle, console: Console) -> None:
    """Print what the manifest says, in its order, and its longer parts as sections."""
    manifest = bundle.manifest
    console.print(Text(printable(f"{bundle.name} version {bundle.version}", console.file), "bold"))
    facts = {key: value for key, value in manifest.items() if key not in (*_SECTIONS, "name")}
    _block(console, _rows({"directory": str(bundle.directory), **facts}))
    for section in _SECTIONS:
        content = manifest.get(section)
        if not isinstance(content, dict) or not content:
            continue
        console.print()
        console.print(Text(section, "bold"))
        _block(console, _files(content) if section == "files" else _rows(content))


def _block(console: Console, rows: Iterable[tuple[str, str]]) -> None:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(printable(name, console.file), Text(printable(value, console.file)))
    console.print(Padding(table, (0, 0, 0, 2), expand=False))


def _rows(content: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in content.items():
        if value not in (None, {}, []):
            yield str(key).replace("_", " "), _shown(value)


def _files(content: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for path, facts in content.items():
        size = facts.get("bytes") if isinstance(facts, dict) else None
        digest = facts.get("sha256") if isinstance(facts, dict) else None
        yield path, f"{decimal(size) if isinstance(size, int) else '?'}  {digest or 'no digest'}"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(
            f"{str(key).replace('_', ' ')} {_shown(each)}" for key, each in value.items()
        )
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return str(value)
