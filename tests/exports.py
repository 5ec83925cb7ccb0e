"""Real exports of the golden checkpoints, made once per test run and shared by all workers."""

import functools
import hashlib
import os
import shutil
import uuid
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Literal

import pytest

from drut.checkpoint.bundle import Bundle, read_bundle
from golden_values import GOLDEN

ROOT = Path(__file__).parents[1]
SOURCES = (ROOT / "export" / "drut_export", ROOT / "src" / "drut" / "tensors.py")
TOOLS = ("torch", "transformers", "onnxscript", "onnxruntime")
CHECKPOINTS = ("tiny-checkpoint", "tiny-checkpoint-parallel", "tiny-checkpoint-128")


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Bundle]:
    """Name of a golden checkpoint to its fp32 bundle; the bundle is not to be changed."""
    cache = shared_directory(tmp_path_factory)
    return lambda name: export_once(GOLDEN / name, cache)


def shared_directory(factory: pytest.TempPathFactory) -> Path:
    """A directory of this test run; the same one for all of its workers."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@functools.cache
def export_once(
    checkpoint: Path,
    cache: Path,
    precision: str = "fp32",
    target: Literal["cpu", "cuda", "tensorrt"] = "cpu",
) -> Bundle:
    """Export into `cache` unless the same export lies there already.

    Workers that come at the same time both export; the first one to finish is kept. No locks:
    a directory appears under its final name by one rename.
    """
    # Imported here: most tests need neither torch nor transformers.
    from drut_export.repository import ExportRequest, export_checkpoint

    done = cache / f"export-{_key(checkpoint, f'{precision} {target}')}"
    if not done.exists():
        repository = cache / f"exporting-{uuid.uuid4().hex}"
        export_checkpoint(
            ExportRequest(checkpoint, checkpoint.name, repository, precision, target=target)
        )
        try:
            repository.rename(done)
        except OSError:  # somebody else was faster
            shutil.rmtree(repository)
    return read_bundle(done / checkpoint.name)


def _key(checkpoint: Path, precision: str) -> str:
    digest = hashlib.sha256(precision.encode())
    for root in (*SOURCES, checkpoint):
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if path.is_file() and path.suffix != ".pyc":
                digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    for tool in TOOLS:
        digest.update(metadata.version(tool).encode())
    return digest.hexdigest()[:16]
