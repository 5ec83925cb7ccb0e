"""Does a device really run a bundle? Tried in a process of its own, which may crash or hang."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from drut.errors import DrutError, MissingDependencyError

OPENVINO: Final = "openvino"
"""Tried like a device: it is another engine on the processor."""

SECONDS: Final = 180.0
_CHILD: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from drut.cli.probe import main; main(*sys.argv[2:])"
)
_QUESTION: Final = {"ready": {"type": "noul", "instructions": "Is this a test?"}}
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_ENGINE_ERROR: Final = re.compile(r"\[E:onnxruntime[^\]]*\]\s*(.*)")


@dataclass(frozen=True, slots=True)
class DeviceCheck:
    """Whether a device is usable; None: it was not tried."""

    device: str
    usable: bool | None
    detail: str


def try_device(
    directory: Path, device: str, *, seconds: float = SECONDS
) -> tuple[DeviceCheck, list[str]]:
    """Open a bundle on a device and answer one question there.

    Args:
        directory: of the bundle.
        device: as for `drut.Agent`, or `OPENVINO`.
        seconds: time allowed.

    Returns:
        The verdict, and the execution providers compiled into ONNX Runtime, where it is known.
    """
    command = [sys.executable, "-c", _CHILD, json.dumps(sys.path), str(directory), device]
    try:
        ended = subprocess.run(command, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return DeviceCheck(device, False, f"no answer within {seconds:.0f} seconds"), []
    errors = ended.stderr.decode("utf-8", "replace")
    try:
        told: Mapping[str, Any] = json.loads(ended.stdout.decode("utf-8").splitlines()[-1])
    except (ValueError, IndexError):
        last = errors.strip().splitlines()[-1:] or ["no output"]
        return DeviceCheck(device, False, f"crashed ({ended.returncode}): {last[0]}"), []
    detail = str(told["detail"])
    reason = None if told["usable"] else _ENGINE_ERROR.search(_COLOURS.sub("", errors))
    if reason is not None:
        detail = f"{detail}. ONNX Runtime says: {reason[1]}"
    return DeviceCheck(device, told["usable"], detail), list(told["providers"])


def main(directory: str, device: str) -> None:
    """Of the child process: try, and print the outcome as one line of JSON."""
    usable, detail = _try(Path(directory), device)
    outcome = {"usable": usable, "detail": detail, "providers": _providers()}
    sys.stdout.write(f"{json.dumps(outcome)}\n")


def _try(directory: Path, device: str) -> tuple[bool, str]:
    from drut.loading import Agent

    engine: dict[str, Any] = {"device": device}
    if device == OPENVINO:
        engine = {"device": "cpu", "runtime": OPENVINO}
    try:
        with Agent(directory, **engine, expected_sha256={}) as agent:
            agent.predict("This is a test.", _QUESTION)
            started = time.perf_counter()
            agent.predict("This is a test.", _QUESTION)
            elapsed = time.perf_counter() - started
            half = agent.runtime.info.details.get("bfloat16")
            known = "" if half is None else f"; the processor has {'' if half else 'no '}bfloat16"
            took = f"one question in {elapsed * 1000:.1f} ms"
            return True, f"answers on {agent.device}, {took}{known}"
    except DrutError as exc:
        return False, f"{exc} ({exc.__cause__})" if exc.__cause__ else str(exc)


def _providers() -> list[str]:
    try:
        from drut.runtimes.ort import available_providers
    except MissingDependencyError:
        return []
    return available_providers()
