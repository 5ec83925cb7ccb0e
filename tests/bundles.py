"""Bundles as `drut export` leaves them, made in no time: the graph is a stand-in."""

import hashlib
import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

from drut.checkpoint.config import CONFIG_NAME, TOKENIZER_DIR
from graphs import decision_model
from tiny_checkpoint import TINY


def write_bundle(
    repository: Path,
    name: str = "tiny",
    version: int | str = 1,
    *,
    source: Path = TINY,
    parallel: bool = False,
    **manifest: Any,
) -> Path:
    """Write `<repository>/<name>/<version>/` and return it; `manifest` overrides entries."""
    directory = repository / name / str(version)
    directory.mkdir(parents=True)
    config = json.loads((source / CONFIG_NAME).read_text(encoding="utf-8"))
    config["temperature_by_options"] = {}  # the golden ones are out of range, which warns
    (directory / CONFIG_NAME).write_text(json.dumps(config), encoding="utf-8")
    shutil.copytree(source / TOKENIZER_DIR, directory / TOKENIZER_DIR)
    (directory / "model.onnx").write_bytes(_graph(parallel))
    files = {
        path.relative_to(directory).as_posix(): {
            "sha256": sha256(path),
            "bytes": path.stat().st_size,
        }
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
    content = {
        "format": 1,
        "name": name,
        "graph": "model.onnx",
        "precision": "fp32",
        "revision": None,
        "tokenizer_sha256": files["tokenizer/tokenizer.json"]["sha256"],
        "files": files,
        **manifest,
    }
    (directory / "manifest.json").write_text(json.dumps(content), encoding="utf-8")
    return directory


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@cache
def _graph(parallel: bool) -> bytes:
    return decision_model(parallel=parallel).SerializeToString()
