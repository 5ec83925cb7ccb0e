"""transformers 4 and optimum's exporter, in the environment that `make optimum-env` makes."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venvs" / "optimum" / "bin" / "python"

pytestmark = pytest.mark.slow


def run(*tests: str) -> None:
    """Run tests with the other environment's Python; what they print is shown if they fail."""
    assert PYTHON.is_file(), "there is no such environment; make it with: make optimum-env"
    done = subprocess.run(
        # torch 2.13 marks what transformers 4 is built on as deprecated.
        [
            PYTHON,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-W",
            "ignore::DeprecationWarning",
            *list(tests),
        ],
        cwd=ROOT,
        env={**os.environ, "OMP_WAIT_POLICY": "passive"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_optimum_exports_the_decision_model() -> None:
    run("tests/optimum_env/check_optimum.py")


def test_transformers_4_gives_the_golden_logits_in_torch_and_in_the_graph() -> None:
    run("tests/conformance/test_golden_forward.py", "tests/unit/export/test_modeling.py")


def test_transformers_4_exports_a_whole_checkpoint() -> None:
    run("tests/unit/export/test_graph.py", "tests/unit/export/test_encoder_config.py")
