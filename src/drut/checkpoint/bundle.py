"""An exported bundle in a model repository: where it is and what its manifest says.

A model repository holds `<name>/config.pbtxt` and `<name>/<version>/`, as Triton expects; every
version directory is complete in itself::

    starter/config.pbtxt
    starter/1/manifest.json            what was exported from what, with digests
    starter/1/model.onnx               the graph
    starter/1/rl_agent_config.json     the checkpoint's settings
    starter/1/tokenizer/               the checkpoint's tokenizer
"""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from drut.checkpoint.config import read_json_object
from drut.checkpoint.paths import is_inside
from drut.errors import CheckpointFormatError, CheckpointNotFoundError

MANIFEST_NAME: Final = "manifest.json"
GRAPH_NAME: Final = "model.onnx"
MANIFEST_FORMAT: Final = 1
_VERSION: Final = re.compile(r"[1-9][0-9]*")


@dataclass(frozen=True, slots=True)
class Bundle:
    """One version of an exported checkpoint."""

    name: str
    version: int
    directory: Path
    manifest: Mapping[str, Any]

    @property
    def graph(self) -> Path:
        """The ONNX file named by the manifest."""
        return self.directory / str(self.manifest.get("graph", GRAPH_NAME))

    @property
    def max_positions(self) -> int | None:
        """Longest sequence the encoder has positions for; None where it computes them."""
        value = self.manifest.get("max_positions")
        return value if isinstance(value, int) else None

    @property
    def precision(self) -> str:
        """How the graph stores and computes numbers, e.g. `fp32`."""
        return str(self.manifest.get("precision", "fp32"))

    @property
    def batch_invariant(self) -> bool:
        """Whether a row's answer is the same beside any other row, as the export measured it."""
        return self.manifest.get("batch_invariant") is not False


def find_version_directory(
    name: str, repositories: Iterable[Path], version: int | None = None
) -> Path | None:
    """Return the version directory of that name in the first repository that has one, unread.

    Raises:
        CheckpointNotFoundError: that repository has the name, but not the version.
    """
    for repository in repositories:
        if versions(repository / name):
            return version_directory(repository / name, version)
    return None


def find_bundle(
    name: str, repositories: Iterable[Path], version: int | None = None
) -> Bundle | None:
    """Return the bundle of that name from the first repository that has one."""
    directory = find_version_directory(name, repositories, version)
    return None if directory is None else read_version(directory)


def read_bundle(directory: Path, version: int | None = None) -> Bundle:
    """Read a bundle from `<name>/` (highest version, unless one is given) or `<name>/<version>/`.

    Raises:
        CheckpointNotFoundError: no such version, or a file of the manifest is missing.
        CheckpointFormatError: the manifest is damaged or of a later format.
    """
    return read_version(version_directory(directory, version))


def version_directory(directory: Path, version: int | None = None) -> Path:
    """Directory of the wanted version, without reading anything in it."""
    if (directory / MANIFEST_NAME).is_file():
        found = {_number(directory.name) or 1: directory}
    else:
        found = {number: directory / str(number) for number in versions(directory)}
    chosen = max(found, default=None) if version is None else version
    if chosen is None or chosen not in found:
        raise CheckpointNotFoundError(
            f"{directory} holds no bundle{'' if chosen is None else f' of version {chosen}'}; "
            f"found versions: {', '.join(map(str, sorted(found))) or 'none'}"
        )
    return found[chosen]


def split_version(text: str) -> tuple[str, int | None]:
    """Read `name@version`; without a version, or where this is a path that exists, it is None."""
    name, separator, number = text.rpartition("@")
    if not separator or not name or os.path.exists(text):
        return text, None
    version = _number(number)
    return (text, None) if version is None else (name, version)


def is_bundle(directory: Path) -> bool:
    """Whether the directory is a bundle or one version of it."""
    return os.path.isfile(directory / MANIFEST_NAME) or bool(versions(directory))


def versions(directory: Path) -> list[int]:
    """Complete versions under `<name>/`, lowest first."""
    if not os.path.isdir(directory):  # unlike Path.is_dir, no error for an impossible name
        return []
    numbers = [
        _number(entry.name) for entry in directory.iterdir() if (entry / MANIFEST_NAME).is_file()
    ]
    return sorted(number for number in numbers if number is not None)


def read_version(directory: Path) -> Bundle:
    """Read the manifest of one version directory and check that its files are there."""
    path = directory / MANIFEST_NAME
    manifest = read_json_object(path)
    if manifest.get("format") != MANIFEST_FORMAT:
        raise CheckpointFormatError(
            f"{path} has format {manifest.get('format')!r}, this drut reads {MANIFEST_FORMAT}; "
            "export the checkpoint again or update drut"
        )
    name = str(manifest.get("name") or directory.parent.name)
    bundle = Bundle(name, _number(directory.name) or 1, directory, manifest)
    files = manifest.get("files", {})
    if not isinstance(files, dict):
        raise CheckpointFormatError(f"{path}: files must be an object, got {files!r}")
    for relative in (str(manifest.get("graph", GRAPH_NAME)), *files):
        if not is_inside(relative):
            raise CheckpointFormatError(f"{path} names {relative!r}, which is outside the bundle")
        if not (directory / relative).is_file():
            raise CheckpointNotFoundError(
                f"bundle {name!r} version {bundle.version} lacks {relative} (listed in "
                f"{MANIFEST_NAME}, looked in {directory}); copy the whole directory or export it "
                "again"
            )
    return bundle


def _number(name: str) -> int | None:
    """The version a directory name stands for; Triton ignores names that begin with 0."""
    return int(name) if _VERSION.fullmatch(name) else None
