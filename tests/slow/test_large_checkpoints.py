"""The published sizes, with random weights, all the way: within the memory of a small machine."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

STEPS = Path(__file__).with_name("large_steps.py")
GIB = 1 << 30

PARAMETERS = {"modernbert-large": 421e6, "mmbert-base": 322e6}
"""What is known of the published checkpoints."""

PEAKS = {"write": 6.0, "export": 14.0, "predict": 8.0}
"""GiB that a step may take at most."""

pytestmark = pytest.mark.slow


def run(step: str, size: str, directory: Path) -> dict[str, Any]:
    """Run one step as a process; what it says, and its peak memory in GiB."""
    told = directory / f"{step}.json"
    with told.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, str(STEPS), step, size, str(directory)],
            stdout=output,
            env={**os.environ, "OMP_WAIT_POLICY": "passive"},
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    found = json.loads(told.read_text()) | {"peak": round(usage.ru_maxrss * 1024 / GIB, 2)}
    print(f"{size} {step}: {found['seconds']} s, peak {found['peak']} GiB")
    return dict(found)


@pytest.mark.parametrize("size", PARAMETERS)
def test_a_checkpoint_of_published_size_is_exported_verified_and_answers(
    size: str, tmp_path: Path
) -> None:
    made = {step: run(step, size, tmp_path) for step in PEAKS}
    assert made["write"]["parameters"] == pytest.approx(PARAMETERS[size], rel=0.005)
    assert made["export"]["batches"] == 15
    assert made["export"]["max_probability_difference"] < 5e-4
    assert set(made["predict"]["answers"]) == {"urgent", "team"}
    assert {
        step: found["peak"] for step, found in made.items() if found["peak"] > PEAKS[step]
    } == {}
