"""A bundle's files for Triton: the graph's config, and the decision model beside it."""

import os
import re
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from drut.checkpoint.bundle import Bundle, read_bundle, versions
from drut.checkpoint.housekeeping import remove
from drut.errors import InvalidRequestError
from drut.triton_model import DECISION_SUFFIX
from drut_export.pbtxt import (
    CONFIG_PBTXT,
    GENERATED,
    QueueBounds,
    Target,
    render_decision_pbtxt,
    render_pbtxt,
)

MODEL_PY: Final = '''\
"""Texts in, answers out; everything is in drut, which Triton's Python has to have installed."""

from drut.triton_model.model import TritonPythonModel

__all__ = ["TritonPythonModel"]
'''

DECISION_VERSION: Final = "1"
"""The decision model has one version: which bundle it answers with is a parameter of its config."""

_TARGET: Final = re.compile(r'gpu_execution_accelerator[^"]*name: "(\w+)"')
_QUEUED: Final = re.compile(r"^    max_queue_size: (\d+)$", re.MULTILINE)
_WAIT: Final = re.compile(r"^    default_timeout_microseconds: (\d+)$", re.MULTILINE)
_THREADS: Final = re.compile(r'key: "intra_op_thread_count" value: \{ string_value: "(\d+)" \}')


def write_triton_files(
    model: Path,
    *,
    target: Target | None = None,
    threads: int | None = None,
    version: int | None = None,
    bounds: QueueBounds | None = None,
) -> list[Path]:
    """Write or renew the files that Triton reads, and nothing of the bundle itself.

    Args:
        model: `<repository>/<name>/` with at least one version.
        target: where the graph runs; None: as the present config says, else `cpu`.
        threads: of one pass on the CPU; None: as the present config says, else a default.
        version: the version to serve, for a rollback; None: the highest.
        bounds: of the server's queue for the graph; None: as the present config says, else none.

    Returns:
        Configs that were left alone, since somebody has made them their own.

    Raises:
        CheckpointNotFoundError: there is no such version.
        InvalidRequestError: the decision model's place is taken by a bundle.
        OSError: a file cannot be written.
    """
    bundle = read_bundle(model, version)
    # A version is what its directory says: a bundle may have been moved to another number.
    manifest = {**bundle.manifest, "version": bundle.version}
    decision = decision_directory(model)
    present = _read(model / CONFIG_PBTXT)
    chosen = target or _target_of(present)
    texts = {
        model / CONFIG_PBTXT: render_pbtxt(
            model.name,
            manifest,
            target=chosen,
            threads=threads or _threads_of(present, chosen == _target_of(present)),
            pinned=version is not None and version != max(versions(model)),
            bounds=bounds_of(model) if bounds is None else bounds,
        ),
        decision / DECISION_VERSION / "model.py": MODEL_PY,
        decision / CONFIG_PBTXT: render_decision_pbtxt(
            decision.name, model.name, manifest, target=chosen
        ),
    }
    left = []
    for path, text in texts.items():
        if path.name == CONFIG_PBTXT and not may_replace(path):
            left.append(path)
        else:
            write_whole(path, text)
    return left


def bounds_of(model: Path) -> QueueBounds:
    """Bounds of the server's queue in the config that drut has written for a bundle, if any."""
    text = _read(model / CONFIG_PBTXT)
    queued, wait = _QUEUED.search(text), _WAIT.search(text)
    return QueueBounds(int(queued[1]) if queued else 0, int(wait[1]) / 1e6 if wait else 0.0)


def follow_versions(model: Path) -> None:
    """Let the files for Triton follow after a version has gone, where there are any."""
    if _is_our_decision(model):
        write_triton_files(model)


def remove_decision(model: Path) -> None:
    """Remove the decision model of a bundle that is about to go, unless somebody has changed it.

    Raises:
        InvalidRequestError: it is a link to somewhere else.
        OSError: it cannot be moved or deleted.
    """
    if _is_our_decision(model):
        remove(model.parent, model.with_name(f"{model.name}{DECISION_SUFFIX}"))


def _is_our_decision(model: Path) -> bool:
    decision = model.with_name(f"{model.name}{DECISION_SUFFIX}")
    return _is_decision(decision) and may_replace(decision / CONFIG_PBTXT)


def decision_directory(model: Path) -> Path:
    """Where the decision model of a bundle lies.

    Raises:
        InvalidRequestError: a bundle lies there.
    """
    directory = model.with_name(f"{model.name}{DECISION_SUFFIX}")
    if versions(directory):
        raise InvalidRequestError(
            f"{directory} is a bundle, so the decision model of {model.name!r} has no place; "
            "give one of the two another name"
        )
    return directory


def refuse_decision(model: Path) -> None:
    """Refuse to put a bundle where a decision model lies.

    Raises:
        InvalidRequestError: one lies there.
    """
    if _is_decision(model):
        raise InvalidRequestError(
            f"{model} is the decision model of another bundle; choose another name"
        )


def _is_decision(directory: Path) -> bool:
    return (directory / DECISION_VERSION / "model.py").is_file() and not versions(directory)


def may_replace(path: Path) -> bool:
    """Whether a config may be written anew: it is not there, or nobody has made it their own."""
    return not path.exists() or path.read_text(encoding="utf-8").startswith(GENERATED)


def write_whole(path: Path, text: str) -> None:
    """Write a file in one step, unless it reads like this already: Triton may be looking."""
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    try:
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def bundles_in(repository: Path) -> list[Bundle]:
    """The highest version of every bundle in a model repository, by name."""
    return [read_bundle(path) for path in models_in(repository)]


def models_in(repository: Path) -> list[Path]:
    """Directories of a model repository that hold bundles, by name."""
    entries: Iterable[Path] = repository.iterdir() if repository.is_dir() else ()
    return sorted(entry for entry in entries if versions(entry))


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _target_of(text: str) -> Target:
    found = _TARGET.search(text)
    if found is None:
        return "cpu"
    return "tensorrt" if found[1] == "tensorrt" else "cuda"


def _threads_of(text: str, same_target: bool) -> int | None:
    found = _THREADS.search(text)
    return int(found[1]) if found and same_target else None
