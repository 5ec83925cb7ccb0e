"""No engine reports to its makers, nor leaves an identifier for that."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PLACES = {
    "runtime": "import drut.runtimes.ort",
    "doctor": "from drut.cli.main import main; assert main(['doctor']) == 0",
    "check": "from drut.cli.main import main; assert main(['repository', 'check']) == 0",
}


def run(code: str, home: Path, **more: str) -> list[str]:
    """Names of files left in an empty home directory."""
    # It stays quiet in CI by itself, which would prove nothing.
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    environment = {**kept, "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1", **more}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [path.name for path in home.rglob("*") if path.is_file()]


@pytest.mark.parametrize("code", PLACES.values(), ids=PLACES)
def test_onnxruntime_leaves_nothing_in_the_home_directory(code: str, tmp_path: Path) -> None:
    assert run(code, tmp_path) == []


def test_whoever_wants_it_can_have_it(tmp_path: Path) -> None:
    assert "deviceid" in run(PLACES["runtime"], tmp_path, ORT_DISABLE_TELEMETRY="0")
