"""Relative paths that files name: they must stay inside the directory they are relative to."""

from pathlib import PurePosixPath, PureWindowsPath


def is_inside(relative: object) -> bool:
    """Whether this is a relative path, on any system, that does not climb out."""
    if not isinstance(relative, str) or not relative:
        return False
    for path in (PurePosixPath(relative), PureWindowsPath(relative)):
        if path.anchor or ".." in path.parts:
            return False
    return True
