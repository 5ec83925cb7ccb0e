"""An exported bundle in a model repository: where it is and what its manifest says.

A model repository holds `<name>/config.pbtxt` and `<name>/<version>/`, as Triton expects; every
version directory is complete in itself::

    starter/config.pbtxt
    starter/1/manifest.json            what was exported from what, with digests
    starter/1/model.onnx               the graph
    starter/1/rl_agent_config.json     the checkpoint's settings
    starter/1/tokenizer/               the checkpoint's tokenizer
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from drut.checkpoint.config import read_json_object
from drut.errors import CheckpointFormatError, CheckpointNotFoundError

MANIFEST_NAME: Final = "manifest.json"
GRAPH_NAME: Final = "model.onnx"
MANIFEST_FORMAT: Final = 1


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
    def precision(self) -> str:
        """How the graph stores and computes numbers, e.g. `fp32`."""
        return str(self.manifest.get("precision", "fp32"))


def find_bundle(
    name: str, repositories: Iterable[Path], version: int | None = None
) -> Bundle | None:
    """Return the bundle of that name from the first repository that has one."""
    for repository in repositories:
        directory = repository / name
        if versions(directory):
            return read_bundle(directory, version)
    return None


def read_bundle(directory: Path, version: int | None = None) -> Bundle:
    """Read a bundle from `<name>/` (highest version, unless one is given) or `<name>/<version>/`.

    Raises:
        CheckpointNotFoundError: no such version, or a file of the manifest is missing.
        CheckpointFormatError: the manifest is damaged or of a later format.
    """
    if (directory / MANIFEST_NAME).is_file():
        return _read_version(directory)
    found = versions(directory)
    chosen = version if version is not None else max(found, default=None)
    if chosen is None or chosen not in found:
        raise CheckpointNotFoundError(
            f"{directory} holds no bundle version {'' if chosen is None else chosen}; "
            f"found versions {found}"
        )
    return _read_version(directory / str(chosen))


def is_bundle(directory: Path) -> bool:
    """Whether the directory is a bundle or one version of it."""
    return (directory / MANIFEST_NAME).is_file() or bool(versions(directory))


def versions(directory: Path) -> list[int]:
    """Complete versions under `<name>/`, lowest first."""
    if not directory.is_dir():
        return []
    return sorted(
        int(entry.name)
        for entry in directory.iterdir()
        if entry.name.isdecimal() and (entry / MANIFEST_NAME).is_file()
    )


def _read_version(directory: Path) -> Bundle:
    manifest = read_json_object(directory / MANIFEST_NAME)
    if manifest.get("format") != MANIFEST_FORMAT:
        raise CheckpointFormatError(
            f"{directory / MANIFEST_NAME} has format {manifest.get('format')!r}, this drut reads "
            f"{MANIFEST_FORMAT}; export the checkpoint again or update drut"
        )
    version = int(directory.name) if directory.name.isdecimal() else 1
    name = str(manifest.get("name") or directory.parent.name)
    bundle = Bundle(name, version, directory, manifest)
    for relative in manifest.get("files", {}):
        if not (directory / relative).is_file():
            raise CheckpointNotFoundError(
                f"bundle {name!r} version {version} lacks {relative} (listed in {MANIFEST_NAME}, "
                f"looked in {directory}); copy the whole directory or export it again"
            )
    return bundle
