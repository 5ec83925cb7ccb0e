"""The bundles on this machine, damaged ones included."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.filesize import decimal

from drut.checkpoint.bundle import Bundle, read_bundle, versions
from drut.errors import DrutError
from drut.loading import open_by_name


@dataclass(frozen=True, slots=True)
class Found:
    """One name in a model repository, and the version that is opened by it."""

    name: str
    directory: Path
    versions: tuple[int, ...] = ()
    bundle: Bundle | None = None
    size: int = 0  # bytes of the bundle's files
    fault: str | None = None  # why it cannot be opened

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready facts."""
        manifest = self.bundle.manifest if self.bundle else {}
        return {
            "name": self.name,
            "version": self.bundle.version if self.bundle else None,
            "versions": list(self.versions),
            "precision": self.bundle.precision if self.bundle else None,
            "bytes": self.size,
            "directory": str(self.bundle.directory if self.bundle else self.directory),
            "source": manifest.get("source"),
            "revision": manifest.get("revision"),
            "batch_invariant": manifest.get("batch_invariant"),
            "verification": manifest.get("verification"),
            "fault": self.fault,
        }

    def facts(self) -> tuple[str, str, str]:
        """Precision, size and verification, for people."""
        if self.bundle is None:
            return "", "", self.fault or ""
        return self.bundle.precision, decimal(self.size), self.fault or verified(self.bundle)


def scan(repositories: Iterable[Path]) -> list[Found]:
    """Every name in the repositories once, as it would be opened: the first repository wins."""
    found: dict[str, Found] = {}
    for repository in repositories:
        for each in _scan_one(repository):
            found.setdefault(each.name, each)
    return list(found.values())


def verified(bundle: Bundle) -> str:
    """What the manifest says about how well the graph answers like its checkpoint."""
    figures = bundle.manifest.get("verification")
    if not isinstance(figures, dict):
        return "not verified"
    difference, equal = figures.get("max_probability_difference"), figures.get("equal_choices")
    told = []
    if isinstance(difference, int | float):
        told.append(f"probabilities within {difference:.1g}")
    if isinstance(equal, int | float):
        told.append(f"{equal:.1%} equal choices")
    return ", ".join(told) or "verified"


def _scan_one(repository: Path) -> Iterator[Found]:
    if not repository.is_dir():
        return
    try:
        for directory in sorted(repository.iterdir()):
            numbers = versions(directory)
            if numbers:
                yield _read(directory, tuple(numbers))
    except OSError as exc:
        yield Found(str(repository), repository, fault=f"cannot be read: {exc.strerror}")


def _read(directory: Path, numbers: tuple[int, ...]) -> Found:
    bundle = None
    try:
        bundle = read_bundle(directory)
        open_by_name(bundle.directory, expected_sha256={})  # reads all but the graph
        fault = _wrong_size(bundle)
    except DrutError as exc:
        fault = str(exc)
    return Found(directory.name, directory, numbers, bundle, _size(bundle), fault)


def _size(bundle: Bundle | None) -> int:
    if bundle is None:
        return 0
    return sum(path.stat().st_size for path in bundle.directory.rglob("*") if path.is_file())


def _wrong_size(bundle: Bundle) -> str | None:
    """Find a file that was cut, or that is only a pointer to the real one."""
    files = bundle.manifest.get("files")
    for relative, expected in files.items() if isinstance(files, dict) else ():
        wanted = expected.get("bytes") if isinstance(expected, dict) else None
        size = (bundle.directory / relative).stat().st_size
        if isinstance(wanted, int) and size != wanted:
            return f"{relative} has {size} bytes, the manifest says {wanted}; copy or export again"
    return None
