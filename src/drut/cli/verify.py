"""`drut verify`: hands everything to the exporter, which needs torch only for `--source`."""

from collections.abc import Sequence
from importlib import import_module
from typing import Final

from drut.cli.console import FAILED, tell

VERIFIER: Final = "drut_export.verify_cli"


def run(argv: Sequence[str]) -> int:
    """Run the verifier with its own arguments. Returns its exit code."""
    try:
        return int(import_module(VERIFIER).main(list(argv)))
    except ImportError as exc:
        tell(
            "drut verify: comparing with a checkpoint needs drut[export], which is not installed "
            f"here ({exc}); leave --source out to check the files alone"
        )
        return FAILED
