"""Removing bundles from a model repository, and what ended processes left in it.

Everything that goes is renamed first, in one step: nobody ever opens half a bundle.
"""

import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from drut.checkpoint.bundle import versions
from drut.errors import InvalidRequestError

STAGING_PREFIX: Final = ".drut-export-"
"""Beginning of the names of directories in which exports build a bundle."""

REMOVED_PREFIX: Final = ".drut-removed-"
"""Beginning of the names of directories that are being deleted."""

STALE_SECONDS: Final = 24 * 3600.0
"""Age of a directory's newest file from which its export is taken for dead."""


def remove(repository: Path, directory: Path) -> None:
    """Delete a bundle, or a version of one; it is gone from its place at once.

    Args:
        repository: the model repository.
        directory: `<name>/` or `<name>/<version>/` in it.

    Raises:
        InvalidRequestError: the directory is not one of the two, or only a link.
        OSError: it cannot be moved or deleted; in the latter case `leftovers` finds the rest.
    """
    if not _is_own(repository, directory):
        raise InvalidRequestError(
            f"{directory} is not a bundle's directory inside {repository}, or is a link to "
            "somewhere else; remove it by hand if you are sure"
        )
    aside = repository / f"{REMOVED_PREFIX}{uuid.uuid4().hex}"
    directory.rename(aside)
    _delete(aside)


def leftovers(repository: Path, *, now: float | None = None) -> list[Path]:
    """Directories that no living export or removal needs, by name.

    Args:
        repository: the model repository; it need not exist.
        now: seconds since the epoch, by default the present.
    """
    if not repository.is_dir():
        return []
    limit = (time.time() if now is None else now) - STALE_SECONDS
    return sorted(
        entry
        for entry in repository.iterdir()
        if entry.name.startswith(REMOVED_PREFIX)
        or (entry.name.startswith(STAGING_PREFIX) and _newest(entry) < limit)
    )


def surplus_versions(repository: Path, keep: int) -> list[Path]:
    """Version directories of a repository beyond the `keep` highest ones of each name."""
    if not repository.is_dir():
        return []
    return [
        directory / str(number)
        for directory in sorted(repository.iterdir())
        if not directory.name.startswith(".") and not directory.is_symlink()
        for number in versions(directory)[:-keep]
    ]


def delete_leftover(directory: Path) -> None:
    """Delete what `leftovers` found; somebody else may do so at the same time."""
    with suppress(FileNotFoundError):
        _delete(directory)


def _is_own(repository: Path, directory: Path) -> bool:
    """Whether a directory lies one or two levels below a repository, without links on the way."""
    if ".." in directory.parts or not directory.is_relative_to(repository):
        return False
    parts = directory.relative_to(repository).parts
    below = [repository.joinpath(*parts[: depth + 1]) for depth in range(len(parts))]
    return len(parts) in (1, 2) and not any(path.is_symlink() for path in below)


def _delete(directory: Path) -> None:
    if directory.is_symlink() or directory.is_file():
        directory.unlink()
    else:
        shutil.rmtree(directory)


def _newest(directory: Path) -> float:
    """Time of the last change in a tree, which may go away meanwhile."""
    return max(_times(directory), default=0.0)


def _times(directory: Path) -> Iterator[float]:
    with suppress(OSError):
        yield directory.lstat().st_mtime
    if directory.is_symlink():
        return
    with suppress(OSError):
        for path in directory.rglob("*"):
            with suppress(OSError):
                yield path.lstat().st_mtime
