"""`drut repository`: hands everything to the exporter's package; this action needs no torch."""

from collections.abc import Sequence
from importlib import import_module
from typing import Final

WRITER: Final = "drut_export.triton_cli"


def run(argv: Sequence[str]) -> int:
    """Write or check what Triton reads of bundles. Returns the exit code."""
    return int(import_module(WRITER).main(list(argv)))
