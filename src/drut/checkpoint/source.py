"""Where a checkpoint comes from: a local directory, or a hub repository at a revision."""

import glob
import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from drut.checkpoint.config import CONFIG_NAME, ENCODER_DIR, TOKENIZER_DIR, WEIGHTS_NAME
from drut.checkpoint.hub import download_snapshot
from drut.checkpoint.paths import is_inside
from drut.errors import (
    CheckpointNotFoundError,
    DigestMismatchError,
    DownloadError,
    InvalidRequestError,
    InvalidTypeError,
)

NEEDED_FILES: Final = (CONFIG_NAME, WEIGHTS_NAME, f"{TOKENIZER_DIR}/*", f"{ENCODER_DIR}/*")
"""What a download asks for, relative to the subfolder: nothing else of the repository."""

LICENSE_FILES: Final = ("LICENSE*", "NOTICE*")
MODEL_CARD: Final = "README.md"
"""Fetched as well, since its front matter says under which licence the weights are."""

REVIEWED_REVISIONS: Final = {
    "convaiinnovations/laya": "55cf4c4ebb4ebe31b2550e8bdf3bd21b99753851",
    "convaiinnovations/laya-multilingual": "e4e9ddf21a7b1903b7acffd8814ad4307bf63a67",
    "convaiinnovations/laya-typed-decisions": "1a793eb568e6718f15941d08f85432581df534e3",
}
"""Commits that `revision="reviewed"` stands for."""

_REPOSITORY_ID: Final = re.compile(r"[\w.-]+/[\w.-]+")
_BLOCK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class SourceDirectory:
    """A checkpoint's files on this machine."""

    path: Path
    revision: str | None  # the commit of a hub snapshot, None for a local directory
    display: str  # what the caller asked for, for messages and manifests


def fetch_checkpoint(
    source: str | Path,
    *,
    subfolder: str | None = None,
    revision: str | None = None,
    token: str | None = None,
    expected_sha256: Mapping[str, str] | None = None,
) -> SourceDirectory:
    """Return the local directory of a checkpoint, downloading it if `source` is a hub id.

    A path that exists is local and is never looked up on the hub. `revision="reviewed"` stands
    for the commit in `REVIEWED_REVISIONS`. Digests are checked before any file is parsed.

    Args:
        source: directory, or `organisation/repository` on the hub.
        subfolder: directory inside it.
        revision: branch, tag or commit on the hub.
        token: access token; by default the hub client's own (`HF_TOKEN`).
        expected_sha256: relative path to hex digest, case-insensitive.

    Raises:
        InvalidRequestError: `source` is empty, or `subfolder` leads out of it.
        CheckpointNotFoundError: no such directory, repository, revision or subfolder.
        DownloadError: the hub cannot be reached, refused the token or broke off.
        DigestMismatchError: a digest does not match or is malformed.
    """
    _check_names(source, subfolder)
    local = Path(os.path.expanduser(source))
    display = "/".join(filter(None, (str(source), subfolder)))
    if os.path.exists(local):  # unlike Path.exists, false for a name too long to be a file's
        found = SourceDirectory(_inside(local, subfolder), None, display)
    elif isinstance(source, Path) or _looks_local(source):
        raise CheckpointNotFoundError(f"there is no checkpoint directory {source}")
    else:
        found = _download(str(source), subfolder, resolve_revision(str(source), revision), token)
    if expected_sha256 is not None:
        verify_digests(found.path, expected_sha256)
    return found


def resolve_revision(repository: str, revision: str | None) -> str | None:
    """Turn the word `reviewed` into the pinned commit; strip, and treat blank as none."""
    wanted = (revision or "").strip()
    if wanted != "reviewed":
        return wanted or None
    commit = REVIEWED_REVISIONS.get(repository.lower())
    if commit is None:
        raise InvalidRequestError(
            f"there is no reviewed revision of {repository!r}; known are "
            f"{', '.join(sorted(REVIEWED_REVISIONS))}. Give a commit instead"
        )
    return commit


def verify_digests(directory: Path, expected: Mapping[str, str]) -> None:
    """Compare files with their SHA-256, reading them in blocks.

    Raises:
        DigestMismatchError: not a mapping, a path outside the directory, or another digest.
        CheckpointNotFoundError: a named file is missing.
    """
    if not isinstance(expected, Mapping):
        raise DigestMismatchError(
            f"expected_sha256 must map relative paths to digests, got {type(expected).__name__}"
        )
    for relative, digest in expected.items():
        if not is_inside(relative) or not isinstance(digest, str):
            raise DigestMismatchError(
                f"expected_sha256 takes paths inside the checkpoint and hex digests, "
                f"got {relative!r}: {digest!r}"
            )
        path = directory / relative
        if not path.is_file():
            raise CheckpointNotFoundError(f"{path} is missing, so its digest cannot be checked")
        actual = sha256_of(path)
        if actual != digest.strip().lower():
            raise DigestMismatchError(
                f"{path} has SHA-256 {actual}, expected {digest.strip().lower()}; "
                "do not use it, download it again from a source you trust"
            )


def sha256_of(path: Path) -> str:
    """Hex SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _check_names(source: object, subfolder: str | None) -> None:
    if not isinstance(source, str | Path):
        raise InvalidTypeError(
            f"a checkpoint is named by a directory or a hub id, got {type(source).__name__}"
        )
    if not str(source).strip():
        raise InvalidRequestError("the name of a checkpoint is empty; give a directory or hub id")
    if subfolder and not is_inside(subfolder):
        raise InvalidRequestError(
            f"subfolder must be a relative path inside {str(source)!r}, got {subfolder!r}"
        )


def _inside(directory: Path, subfolder: str | None) -> Path:
    path = directory / subfolder if subfolder else directory
    if not path.is_dir():
        raise CheckpointNotFoundError(f"there is no directory {path}")
    return path


def _looks_local(source: str) -> bool:
    return (
        source.startswith((".", "~", "/", "\\"))
        or Path(source).is_absolute()
        or _REPOSITORY_ID.fullmatch(source) is None
    )


def _download(
    repository: str, subfolder: str | None, revision: str | None, token: str | None
) -> SourceDirectory:
    # Imported here: a bundle on disk needs neither the client nor its HTTP stack.
    from huggingface_hub.errors import (
        EntryNotFoundError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    prefix = f"{glob.escape(subfolder.strip('/'))}/" if subfolder else ""
    patterns = [*(prefix + pattern for pattern in NEEDED_FILES), *LICENSE_FILES, MODEL_CARD]
    display = "/".join(filter(None, (repository, subfolder)))
    try:
        snapshot = download_snapshot(repository, revision, token or None, patterns)
    except LocalEntryNotFoundError as exc:
        raise DownloadError(_unreachable(display, exc)) from exc
    except (
        RepositoryNotFoundError,
        RevisionNotFoundError,
        EntryNotFoundError,
        HFValidationError,
    ) as exc:
        raise CheckpointNotFoundError(_not_found(display, revision, exc)) from exc
    except Exception as exc:
        # The client's HTTP stack, and with it the classes of its errors, differs by version.
        raise DownloadError(_failed(display, exc)) from exc
    commit = snapshot.name if snapshot.parent.name == "snapshots" else revision
    path = snapshot / subfolder if subfolder else snapshot
    _require_files(path, f"{display!r} at {commit}")
    return SourceDirectory(path, commit, display)


def _require_files(path: Path, what: str) -> None:
    """Refuse a snapshot without settings or weights, such as one that others cached in part."""
    missing = [name for name in (CONFIG_NAME, WEIGHTS_NAME) if not (path / name).is_file()]
    if missing:
        raise CheckpointNotFoundError(
            f"{what} has no {' and no '.join(missing)} (looked in {path}): either it is not a "
            "decision checkpoint (perhaps a subfolder= of it is), or only part of it is in the "
            "local cache and the hub was not asked; then download it once with network"
        )


def _not_found(display: str, revision: str | None, exc: Exception) -> str:
    at = f" at revision {revision!r}" if revision else ""
    return (
        f"the hub has no {display!r}{at} that this token may read ({_one_line(exc)}); check the "
        "name, or set HF_TOKEN to a token that has access"
    )


def _unreachable(display: str, exc: Exception) -> str:
    return (
        f"{display!r} is not complete in the local cache and the hub cannot be reached "
        "(no network, the hub is down, or HF_HUB_OFFLINE is set); download it once with network, "
        f"or give a local directory ({_one_line(exc)})"
    )


def _failed(display: str, exc: Exception) -> str:
    status = getattr(getattr(exc, "response", None), "status_code", None)
    advice = "try again"
    if status in (401, 403):
        advice = "the hub refused the token; set HF_TOKEN to a valid one with access, or unset it"
    return f"downloading {display!r} failed: {_one_line(exc)}; {advice}"


def _one_line(exc: Exception) -> str:
    return " ".join(str(exc).split()) or type(exc).__name__
