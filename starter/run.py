"""Everything in one go, each step in a process of its own: train, finish, export, evaluate.

`python -m starter.run` runs the whole recipe, `python -m starter.run finish export` only these
steps. The step `export` replaces `model_repository/starter`; the step `evaluate` asks the bundle
that lies there and rewrites the figures in `report.json` and README.md.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
STEPS: Final = ("train", "finish", "export", "evaluate")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the steps; returns the first failing step's exit code."""
    given = parse(arguments)
    for step in given.steps or STEPS:
        code = subprocess.run(command(step, given), cwd=ROOT, check=False).returncode
        if code:
            return code
    return 0


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="starter.run", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("steps", nargs="*", metavar="step", help=f"of {', '.join(STEPS)}")
    parser.add_argument("--examples", type=int, help="train on so many examples at most")
    parser.add_argument("--minutes", type=float, help="train for so many minutes at most")
    parser.add_argument("--resume", action="store_true", help="go on from the last snapshot")
    given = parser.parse_args(arguments)
    for step in given.steps:
        if step not in STEPS:
            parser.error(f"there is no step {step!r}; choose from {', '.join(STEPS)}")
    return given


def command(step: str, given: argparse.Namespace) -> list[str]:
    """The command line of a step."""
    paths = ":".join(str(ROOT / folder) for folder in (".", "src", "export"))
    # Threads that wait asleep: busy waiting makes training ten times slower on shared cores.
    start = ["env", f"PYTHONPATH={paths}", "OMP_WAIT_POLICY=passive", sys.executable, "-m"]
    options: list[str] = []
    if step == "train":
        limits = {"--examples": given.examples, "--minutes": given.minutes}
        options = [f"{name}={limit}" for name, limit in limits.items() if limit is not None]
        options += ["--resume"] * given.resume
    return [*start, f"starter.{step}", *options]


if __name__ == "__main__":
    sys.exit(main())
