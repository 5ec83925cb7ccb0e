"""Where a checkpoint comes from: a local directory, or a hub repository at a revision."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Final

from drut.checkpoint.config import CONFIG_NAME, ENCODER_DIR, TOKENIZER_DIR, WEIGHTS_NAME
from drut.errors import (
    CheckpointNotFoundError,
    DigestMismatchError,
    DownloadError,
    InvalidRequestError,
)

NEEDED_FILES: Final = (CONFIG_NAME, WEIGHTS_NAME, f"{TOKENIZER_DIR}/*", f"{ENCODER_DIR}/*")
"""What a download asks for, relative to the subfolder: nothing else of the repository."""

LICENSE_FILES: Final = ("LICENSE*", "NOTICE*")

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
        CheckpointNotFoundError: no such directory, repository, revision or subfolder.
        DownloadError: the hub cannot be reached or broke off.
        DigestMismatchError: a digest does not match or is malformed.
    """
    local = Path(source).expanduser()
    display = "/".join(filter(None, (str(source), subfolder)))
    if local.exists():
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
        if not _is_inside(relative) or not isinstance(digest, str):
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


def _is_inside(relative: object) -> bool:
    if not isinstance(relative, str) or not relative:
        return False
    for path in (PurePosixPath(relative), PureWindowsPath(relative)):
        if path.is_absolute() or path.drive or ".." in path.parts:
            return False
    return True


def _download(
    repository: str, subfolder: str | None, revision: str | None, token: str | None
) -> SourceDirectory:
    # Imported here: a bundle on disk needs neither the client nor its HTTP stack.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        EntryNotFoundError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    prefix = f"{subfolder.strip('/')}/" if subfolder else ""
    wanted = [prefix + pattern for pattern in NEEDED_FILES]
    display = "/".join(filter(None, (repository, subfolder)))
    try:
        snapshot = Path(
            snapshot_download(
                repository, revision=revision, token=token, allow_patterns=[*wanted, *LICENSE_FILES]
            )
        )
    except (RepositoryNotFoundError, RevisionNotFoundError, EntryNotFoundError) as exc:
        if isinstance(exc, LocalEntryNotFoundError):
            raise DownloadError(_unreachable(display)) from exc
        raise CheckpointNotFoundError(
            f"the hub has no {display!r}"
            f"{f' at revision {revision!r}' if revision else ''} that this token may read ({exc})"
        ) from exc
    except (HfHubHTTPError, OSError) as exc:
        raise DownloadError(f"downloading {display!r} failed: {exc}; try again") from exc
    commit = snapshot.name if snapshot.parent.name == "snapshots" else revision
    return SourceDirectory(_inside(snapshot, subfolder), commit, display)


def _unreachable(display: str) -> str:
    return (
        f"{display!r} is not complete in the local cache and the hub cannot be reached "
        "(no network, or HF_HUB_OFFLINE is set); download it once with network, or give a "
        "local directory"
    )
