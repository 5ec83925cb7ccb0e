"""Upstream in a virtual environment of its own, and workers as subprocesses.

    python -m benchmarks.peer

makes the environment under build/peer and prints its interpreter.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from benchmarks.checkpoints import BUILD, ROOT

PLACE = BUILD / "peer"
PINS = ("laya[onnx]==0.4.15",)
TORCH = "torch==2.13.0"
WORKER = Path(__file__).with_name("worker.py")
WAIT_POLICY = {"OMP_WAIT_POLICY": "passive"}
"""Torch's threads sleep between their shares of work: drut's do, and others use the machine."""


class WorkerError(RuntimeError):
    """An engine failed, or its process ended."""


def set_up(place: Path = PLACE) -> Path:
    """Make the peer's environment unless it is complete; its interpreter."""
    python, done = place / "bin" / "python", place / ".ready"
    if done.is_file():
        return python
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pip += ["--constraint", str(ROOT / "constraints.txt")]
    subprocess.run([*pip, TORCH], check=True)
    subprocess.run([*pip, *PINS], check=True)
    done.touch()
    return python


class Worker:
    """A process with one engine, told what to do line by line.

    Args:
        python: its interpreter.
        environment: variables on top of this process's.
    """

    def __init__(self, python: str | Path, environment: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            # -P: beside worker.py lie files named as packages that the engines import.
            [str(python), "-P", str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **WAIT_POLICY, **(environment or {})},
        )

    def ask(self, do: str, **what: Any) -> dict[str, Any]:
        """Send one command and wait for its result.

        Raises:
            WorkerError: the engine failed, or the process ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **what}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise WorkerError(f"the worker ended with {self._process.wait()} during {do!r}")
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise WorkerError(found["error"])
        return found

    def close(self) -> None:
        """End the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


if __name__ == "__main__":
    print(set_up())
