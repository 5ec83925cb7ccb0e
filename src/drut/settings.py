"""Every environment variable drut reads, in one place and at the moment it is needed.

| variable | meaning |
|---|---|
| `DRUT_MODEL_REPOSITORY` | directories with exported bundles, separated like `PATH` |
| `DRUT_DEVICE` | device used where none is named: `auto`, `cpu`, `cuda`, `cuda:N`, `tensorrt` |
| `DRUT_THREADS` | threads of one forward pass on the CPU |
| `DRUT_TRITON_URL` | address of the Triton server, where the runtime is `triton` |
| `DRUT_REVISION` | hub revision used where none is named |
| `DRUT_SHA256_DIGESTS` | JSON object `{relative path: sha256}`, checked before anything is read |

`HF_HOME`, `HF_TOKEN`, `HF_HUB_OFFLINE`, `HF_ENDPOINT` and the others of the hub's client are read
by that client and mean what they always mean.
"""

import json
import os
from pathlib import Path
from typing import Final

from drut.errors import DigestMismatchError, InvalidRequestError

_PACKAGE: Final = Path(__file__).resolve().parent


def model_repositories() -> list[Path]:
    """Directories searched for a bundle by name, first match wins.

    `DRUT_MODEL_REPOSITORY`, then `./model_repository`, then the user's own repository, then the
    one that ships with drut and holds the starter.
    """
    named = os.environ.get("DRUT_MODEL_REPOSITORY", "")
    paths = [Path(entry).expanduser() for entry in named.split(os.pathsep) if entry.strip()]
    own = user_repository()
    paths += [Path("model_repository"), *([own] if own else []), shipped_repository()]
    # By the real place: in a source tree the working directory's is the shipped one.
    unique: dict[str, Path] = {}
    for path in paths:
        unique.setdefault(os.path.realpath(path), path)
    return list(unique.values())


def default_repository() -> Path:
    """Where an export goes if no directory is named: the first of `DRUT_MODEL_REPOSITORY`."""
    named = os.environ.get("DRUT_MODEL_REPOSITORY", "").split(os.pathsep)[0].strip()
    return Path(named).expanduser() if named else Path("model_repository")


def user_repository() -> Path | None:
    """`$XDG_DATA_HOME/drut/model_repository`, by default under `~/.local/share`.

    None for a user without a home, as in containers that run under any number.
    """
    base = os.environ.get("XDG_DATA_HOME", "").strip()
    if not base:
        home = os.path.expanduser("~")
        if home == "~":
            return None
        base = os.path.join(home, ".local", "share")
    return Path(base) / "drut" / "model_repository"


def shipped_repository() -> Path:
    """The repository inside the installed package, or of the source tree it runs from."""
    installed = _PACKAGE / "model_repository"
    return installed if installed.is_dir() else _PACKAGE.parents[1] / "model_repository"


def default_device() -> str:
    """`DRUT_DEVICE`, or `auto`."""
    return os.environ.get("DRUT_DEVICE", "").strip() or "auto"


def default_threads() -> int | None:
    """`DRUT_THREADS` as a positive number, or None.

    Raises:
        InvalidRequestError: the variable is set to something else.
    """
    text = os.environ.get("DRUT_THREADS", "").strip()
    if not text:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise InvalidRequestError(f"DRUT_THREADS must be a positive whole number, got {text!r}")
    return int(text)


def default_triton_url() -> str | None:
    """`DRUT_TRITON_URL`, or None."""
    return os.environ.get("DRUT_TRITON_URL", "").strip() or None


def default_revision() -> str | None:
    """`DRUT_REVISION`, stripped, or None."""
    return os.environ.get("DRUT_REVISION", "").strip() or None


def default_digests() -> dict[str, str] | None:
    """`DRUT_SHA256_DIGESTS` as a mapping, or None.

    Raises:
        DigestMismatchError: the variable is not a JSON object of strings.
    """
    text = os.environ.get("DRUT_SHA256_DIGESTS", "").strip()
    if not text:
        return None
    try:
        digests = json.loads(text)
    except json.JSONDecodeError as exc:
        raise DigestMismatchError(f"DRUT_SHA256_DIGESTS is not valid JSON ({exc})") from exc
    if not isinstance(digests, dict) or not all(isinstance(v, str) for v in digests.values()):
        raise DigestMismatchError(
            "DRUT_SHA256_DIGESTS must be a JSON object of relative path to SHA-256"
        )
    return digests
