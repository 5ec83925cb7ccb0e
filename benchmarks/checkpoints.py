"""The checkpoints of the benchmark, and drut's exports of them, made once under build/.

    python -m benchmarks.checkpoints [--only starter] [--precisions fp32,int8]

`starter` is restored from the bundle that ships. `base` has ModernBERT-base's size and weights
from a fixed seed: its speed is that of a real checkpoint, its answers mean nothing. Its tokenizer
is the starter's.
"""

import argparse
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drut.checkpoint.bundle import read_bundle

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "benchmarks" / "build"
SHIPPED = ROOT / "model_repository" / "starter"
BASE_ENCODER: dict[str, Any] = {
    "model_type": "modernbert",
    "hidden_size": 768,
    "num_hidden_layers": 22,
    "num_attention_heads": 12,
    "intermediate_size": 1152,
    "vocab_size": 50368,
    "max_position_embeddings": 8192,
    "local_attention": 128,
    "layer_types": ["sliding_attention" if layer % 3 else "full_attention" for layer in range(22)],
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 160000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    },
    "pad_token_id": 0,
}
SETTINGS: dict[str, Any] = {
    "encoder": "offline/random-base",
    "head_layers": 2,
    "act_costs": {"act": 0.0},
    "max_len": 512,
    "head_max_len": 192,
    "amp_dtype": "bf16",
    "temperature": [1.0, 1.0, 1.0],
    "temperature_by_options": {},
}


@dataclass(frozen=True, slots=True)
class Prepared:
    """A checkpoint and the model repository that holds its exports as `NAME-PRECISION`."""

    name: str
    directory: Path
    repository: Path

    def bundle(self, precision: str) -> Path:
        """Where the export of a precision lies, made or not."""
        return self.repository / f"{self.name}-{precision}"


def prepare(name: str, build: Path = BUILD) -> Prepared:
    """Make the checkpoint `starter` or `base` unless it is there."""
    directory = build / "checkpoints" / name
    if not directory.is_dir():
        scratch = directory.with_name(f".{name}")
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        MAKERS[name](scratch)
        scratch.rename(directory)
    return Prepared(name, directory, build / "repository")


def export(prepared: Prepared, precision: str) -> Path:
    """Export the checkpoint in a precision unless that is there; the bundle's directory."""
    from drut_export.repository import ExportRequest, export_checkpoint

    place = prepared.bundle(precision)
    if not place.is_dir():
        request = ExportRequest(prepared.directory, place.name, prepared.repository, precision)
        export_checkpoint(request)
    return place


def _restore_starter(directory: Path) -> None:
    from starter.restore import restore

    restore(read_bundle(SHIPPED), directory)


def _random_base(directory: Path) -> None:
    write_random(directory, BASE_ENCODER, SETTINGS)


def write_random(directory: Path, encoder: dict[str, Any], settings: dict[str, Any]) -> None:
    """Write a checkpoint of seeded weights, each matrix scaled by its number of inputs."""
    import torch
    from safetensors.torch import save_file

    from drut_export.encoders import build_encoder
    from drut_export.modeling import DecisionModel

    torch.manual_seed(11)
    actions = len(settings["act_costs"]) + 1
    model = DecisionModel(
        build_encoder(encoder), head_layers=settings["head_layers"], actions=actions
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=parameter.shape[1] ** -0.5)
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    weights["temperature"] = torch.ones(3)
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    shutil.copytree(read_bundle(SHIPPED).directory / "tokenizer", directory / "tokenizer")
    _json(directory / "rl_agent_config.json", settings)
    (directory / "encoder").mkdir()
    _json(directory / "encoder" / "config.json", encoder)


def _json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


MAKERS = {"starter": _restore_starter, "base": _random_base}


def main(arguments: Sequence[str] | None = None) -> None:
    """Make what is missing and print where it lies."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", choices=MAKERS)
    parser.add_argument("--precisions", default="fp32,int8,bf16")
    given = parser.parse_args(arguments)
    for name in [given.only] if given.only else MAKERS:
        prepared = prepare(name)
        print(prepared.directory, flush=True)
        for precision in given.precisions.split(","):
            print(export(prepared, precision), flush=True)


if __name__ == "__main__":
    main()
