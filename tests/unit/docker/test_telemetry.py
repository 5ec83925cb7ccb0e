"""The images' engines do not report to their makers, nor leave an identifier for that."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from docker_files import DOCKERFILES, read

SWITCH = "ORT_DISABLE_TELEMETRY"


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_the_switch_is_in_every_image(path: Path) -> None:
    dockerfile = read(path)
    assert dockerfile.environment(dockerfile.final)[SWITCH] == "1"


def test_the_switch_is_the_one_that_onnxruntime_reads(tmp_path: Path) -> None:
    # It stays quiet in CI by itself, which would prove nothing.
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", "import onnxruntime"],
        env={**kept, "HOME": str(tmp_path), SWITCH: "1"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.rglob("*")) == []
