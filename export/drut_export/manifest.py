"""`manifest.json`: what was exported from what, with which tools and how exactly."""

import importlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from drut.checkpoint.bundle import GRAPH_NAME, MANIFEST_FORMAT, MANIFEST_NAME
from drut.checkpoint.config import TOKENIZER_DIR, CheckpointConfig
from drut.checkpoint.source import sha256_of
from drut.checkpoint.tokenizer import TOKENIZER_NAME
from drut_export.triton_releases import GraphFormat
from drut_export.verify_report import VerifyReport

TOOLS: Final = ("torch", "transformers", "onnx", "onnxruntime", "drut")


def make_manifest(
    directory: Path,
    identity: Mapping[str, Any],
    config: CheckpointConfig,
    report: VerifyReport,
    form: GraphFormat,
) -> dict[str, Any]:
    """Content of `manifest.json` about the files that lie in a bundle directory.

    Args:
        directory: the finished bundle but for the manifest.
        identity: name, version, source, revision, license, precision and the encoder's positions;
            the version may still change.
        config: the checkpoint's settings.
        report: figures of the verification.
        form: opset and IR version of the graph.
    """
    files = {
        path.relative_to(directory).as_posix(): {
            "sha256": sha256_of(path),
            "bytes": path.stat().st_size,
        }
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
    return {
        "format": MANIFEST_FORMAT,
        **identity,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "graph": GRAPH_NAME,
        "opset": form.opset,
        "ir_version": form.ir_version,
        "for": form.made_for,
        "batch_invariant": report.batch_invariant,
        "option_layout": config.option_layout,
        "actions": config.actions,
        "max_len": config.max_len,
        "head_max_len": config.head_max_len,
        "temperature": list(config.temperature),
        "temperature_by_options": dict(config.temperature_by_options),
        "tokenizer_sha256": files[f"{TOKENIZER_DIR}/{TOKENIZER_NAME}"]["sha256"],
        "verification": report.as_dict(),
        "tools": {name: _version(name) for name in TOOLS},
        "files": files,
    }


def write_manifest(directory: Path, manifest: Mapping[str, Any]) -> None:
    """Write `manifest.json`, or write it anew."""
    text = json.dumps(manifest, indent=2, ensure_ascii=False)
    (directory / MANIFEST_NAME).write_text(text + "\n", encoding="utf-8")


def _version(module: str) -> str:
    try:
        return str(importlib.import_module(module).__version__)
    except (AttributeError, metadata.PackageNotFoundError):  # a source tree without metadata
        return "unknown"
