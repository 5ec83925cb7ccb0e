"""One more version in a model repository: complete, under a number of its own, or not at all."""

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from drut.checkpoint.housekeeping import STAGING_PREFIX
from drut.errors import ExportError
from drut_export.pbtxt import CONFIG_PBTXT, GENERATED

ATTEMPTS: Final = 100
"""Numbers tried before giving up; each one lost means that another export finished."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TAKEN: Final = (errno.EEXIST, errno.ENOTEMPTY)


def check_target(repository: Path, name: str, version: int | None) -> None:
    """Refuse a name or a version under which nothing can be published, before any work is done.

    Raises:
        ExportError: the name is no directory name, or the version is taken or not positive.
    """
    if _NAME.fullmatch(name) is None:
        raise ExportError(
            f"{name!r} cannot be the name of a bundle; use letters, digits, '.', '_' and "
            "'-', beginning with a letter or digit"
        )
    if version is None:
        return
    if version < 1:
        raise ExportError(f"version {version} is not a positive number")
    if version in _numbers(repository / name):
        raise ExportError(
            f"{repository / name / str(version)} exists already; leave the version out for the "
            f"next free one ({next_version(repository / name)}), or delete it"
        )


def next_version(model: Path) -> int:
    """One more than the highest number under `<name>/`."""
    return max(_numbers(model), default=0) + 1


@contextmanager
def staging_directory(repository: Path) -> Iterator[Path]:
    """A directory inside the repository that goes away, with all directories made for it."""
    made = [path for path in (repository, *repository.parents) if not path.exists()]
    try:
        repository.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=STAGING_PREFIX, dir=repository) as staging:
            yield Path(staging)
    except BaseException:
        for path in made:
            _remove_if_empty(path)
        raise


def publish(
    staged: Path, model: Path, version: int | None, number_it: Callable[[Path, int], None]
) -> Path:
    """Move a finished version into the repository by one rename.

    The number is taken here: exports of one name that end at the same time get different ones.

    Args:
        staged: directory with `config.pbtxt` and, as its only directory, the version.
        model: `<repository>/<name>`, on the same file system.
        version: the wanted number; None: the next free one.
        number_it: writes what depends on the number into the version's directory.

    Returns:
        The directory of the version.

    Raises:
        ExportError: the wanted number was taken meanwhile.
        OSError: the file system refuses.
    """
    content = next(path for path in staged.iterdir() if path.is_dir())
    for _ in range(ATTEMPTS):
        number = next_version(model) if version is None else version
        content = content.rename(staged / str(number))
        number_it(content, number)
        if _move(staged, content, model):
            return model / str(number)
        if version is not None:
            raise ExportError(
                f"{model / str(number)} was made by somebody else meanwhile; export again"
            )
    raise ExportError(f"{ATTEMPTS} exports of {model.name} were faster than this one; try again")


def _move(staged: Path, content: Path, model: Path) -> bool:
    """Put the version into its place. False: somebody else has taken it."""
    target = model / content.name
    if not model.exists():
        return _rename(staged, model)
    if target.exists():  # an empty directory would be replaced
        return False
    if _may_replace(model / CONFIG_PBTXT):
        # A copy, since the number may turn out to be taken and another one follows.
        copy = shutil.copyfile(staged / CONFIG_PBTXT, content.parent / f"{CONFIG_PBTXT}.new")
        copy.replace(model / CONFIG_PBTXT)
    return _rename(content, target)


def _rename(source: Path, target: Path) -> bool:
    try:
        os.rename(source, target)
    except OSError as exc:
        if exc.errno in _TAKEN:
            return False
        raise
    return True


def _numbers(model: Path) -> list[int]:
    if not model.is_dir():
        return []
    return [int(entry.name) for entry in model.iterdir() if entry.name.isdecimal()]


def _may_replace(pbtxt: Path) -> bool:
    return not pbtxt.exists() or pbtxt.read_text(encoding="utf-8").startswith(GENERATED)


def _remove_if_empty(directory: Path) -> None:
    try:
        directory.rmdir()
    except OSError:
        return
