"""`drut export`: hands everything to the exporter, which is imported only here and only then."""

from collections.abc import Sequence
from importlib import import_module
from typing import Final

from drut.cli.console import FAILED, tell

EXPORTER: Final = "drut_export.cli"


def run(argv: Sequence[str]) -> int:
    """Run the exporter with its own arguments. Returns its exit code."""
    try:
        return int(import_module(EXPORTER).main(list(argv)))
    except ImportError as exc:
        tell(f"drut export: exporting needs drut[export], which is not installed here ({exc})")
        return FAILED
