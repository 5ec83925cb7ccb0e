"""Writing calibration files, and files of temperatures per language, in one step each."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from drut.decoding.calibration import Calibration, Temperatures, primary_subtag, read_json
from drut.decoding.identity import ModelIdentity
from drut.errors import CheckpointFormatError

VERSION: Final = 2
"""Version of the calibration files written here."""


def calibration_payload(calibration: Calibration, identity: ModelIdentity) -> dict[str, Any]:
    """The content of a calibration file.

    Args:
        calibration: temperatures and bins; those per language have a file of their own.
        identity: the model they were fitted for.
    """
    payload = {
        "version": VERSION,
        **_temperatures(calibration.temperatures),
        **identity.as_dict(),
    }
    if calibration.binning is not None:
        payload["binning_map"] = {
            name: {"bins": len(values), "values": list(values)}
            for name, values in calibration.binning.items()
        }
    return payload


def write_calibration(path: str | Path, calibration: Calibration, identity: ModelIdentity) -> Path:
    """Write a calibration file; a reader sees the old one or the new one, never a part.

    Raises:
        OSError: it cannot be written; an older file is still there then.
    """
    content = calibration_payload(calibration, identity)
    return write_text(path, json.dumps(content, indent=2) + "\n")


def read_language_temperatures(path: str | Path) -> dict[str, Any]:
    """Read a file of temperatures per language, as `lang_temperatures=` takes it.

    Each entry is None or holds `temperature` (None or three numbers) and
    `temperature_by_options`. What is in them is checked where they are put to use.

    Raises:
        CheckpointNotFoundError: no such file.
        CheckpointFormatError: it is not a JSON object of objects.
    """
    path = Path(path)
    content = read_json(path, "file of temperatures per language")
    if not isinstance(content, dict):
        raise CheckpointFormatError(
            f"{path} must hold an object of language code to temperatures, "
            f"got {type(content).__name__}"
        )
    for code, entry in content.items():
        if entry is not None and not isinstance(entry, dict):
            raise CheckpointFormatError(
                f"{path}: {code!r} must be null or an object with temperature and "
                f"temperature_by_options, got {entry!r}"
            )
    return content


def write_language_temperatures(path: str | Path, by_language: Mapping[str, Temperatures]) -> Path:
    """Write a file of temperatures per language, in one step.

    Raises:
        OSError: it cannot be written; an older file is still there then.
    """
    content = {
        primary_subtag(code): _temperatures(found) for code, found in sorted(by_language.items())
    }
    return write_text(path, json.dumps(content, indent=2) + "\n")


def write_text(path: str | Path, text: str) -> Path:
    """Write a file beside its place and move it there, so that no reader sees half of it.

    Raises:
        OSError: it cannot be written; an older file is still there then.
    """
    path = Path(path)
    made = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with made.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        made.replace(path)
    except BaseException:
        made.unlink(missing_ok=True)
        raise
    return path


def _temperatures(found: Temperatures) -> dict[str, Any]:
    return {
        "temperature": list(found.by_type),
        "temperature_by_options": dict(found.by_bucket),
    }
