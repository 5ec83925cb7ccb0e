"""Are a bundle's files those that its manifest lists?"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from drut.checkpoint.bundle import MANIFEST_NAME, Bundle
from drut.checkpoint.source import sha256_of


@dataclass(frozen=True, slots=True)
class FileCheck:
    """A bundle's files beside its manifest."""

    checked: int  # files the manifest lists
    faults: tuple[str, ...]  # one sentence for each file that is not as listed
    unlisted: tuple[str, ...]  # files of the directory that the manifest does not list

    @property
    def passed(self) -> bool:
        """Whether every listed file is as listed; further files do no harm."""
        return not self.faults


def check_files(bundle: Bundle) -> FileCheck:
    """Read every file of a bundle and compare it with its digest in the manifest.

    Raises:
        OSError: a file cannot be read.
    """
    listed = bundle.manifest.get("files", {})
    present = {
        path.relative_to(bundle.directory).as_posix()
        for path in bundle.directory.rglob("*")
        if path.is_file()
    }
    return FileCheck(
        checked=len(listed),
        faults=tuple(_faults(bundle, listed)),
        unlisted=tuple(sorted(present - set(listed) - {MANIFEST_NAME})),
    )


def _faults(bundle: Bundle, listed: Mapping[str, Any]) -> Iterator[str]:
    if not listed:
        yield f"{MANIFEST_NAME} lists no files, so nothing can be checked; export it again"
    elif bundle.graph.relative_to(bundle.directory).as_posix() not in listed:
        yield f"{MANIFEST_NAME} does not list the graph {bundle.graph.name}; export it again"
    for relative, facts in listed.items():
        expected = facts.get("sha256") if isinstance(facts, dict) else None
        if not isinstance(expected, str):
            yield f"{relative} has no SHA-256 in {MANIFEST_NAME}"
            continue
        found = sha256_of(bundle.directory / relative)
        if found != expected.strip().lower():
            yield f"{relative} has SHA-256 {found}, {MANIFEST_NAME} says {expected}"
