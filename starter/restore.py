"""From the bundle that ships back to its checkpoint, for readers of the format that need weights.

The bundle's graph holds every weight, stored as int8 with scales, and the checkpoint's weights lie
on that grid: what comes back is what was exported. `build/` need not be kept.
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Final

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor

from drut.checkpoint.bundle import Bundle, read_bundle
from drut.checkpoint.config import CONFIG_NAME, TOKENIZER_DIR
from starter.checkpoint import Parts, save_checkpoint
from starter.export import NAME, REPOSITORY

RESTORED_DIR: Final = Path(__file__).parent / "build" / "restored"
VALUES, SCALES, TRANSPOSED, PART = ".int8", ".scales", ".T", ".part"
HEADS: Final = 12  # of all-MiniLM-L6-v2; no tensor's shape tells


def restore(bundle: Bundle, directory: Path) -> Path:
    """Write the checkpoint of a bundle: weights in float32, settings, tokenizer, encoder config.

    Args:
        bundle: an export of the starter with the precision `int8-weights`.
        directory: made if it is not there; files of these names are replaced.
    """
    weights = read_weights(bundle.graph)
    weights["temperature"] = torch.ones(3)  # part of the format; the config's are in force
    settings = json.loads((bundle.directory / CONFIG_NAME).read_text(encoding="utf-8"))
    tokenizer = json.loads((bundle.directory / TOKENIZER_DIR / "tokenizer.json").read_text("utf-8"))
    save_checkpoint(directory, weights, Parts(encoder_config(weights), tokenizer, settings))
    for name in ("LICENSE", "NOTICE"):
        shutil.copyfile(bundle.directory / name, directory / name)
    return directory


def read_weights(graph: Path) -> dict[str, Tensor]:
    """Weights of a graph by the checkpoint's names, int8 ones multiplied out."""
    stored = {each.name: numpy_helper.to_array(each) for each in onnx.load(graph).graph.initializer}
    weights = {}
    for name, array in stored.items():
        key = name.removesuffix(VALUES)
        if key != name:
            array = array.astype(np.float32) * stored[key + SCALES]
        elif name.endswith(SCALES) or array.dtype != np.float32 or name.startswith("constant_"):
            continue
        if key.endswith(TRANSPOSED):
            key, array = key.removesuffix(TRANSPOSED), array.T
        weights[key] = torch.from_numpy(np.array(array, order="C"))
    return joined(weights)


def joined(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Put `<name>.part0`, `<name>.part1` and so on together again, row below row."""
    parts: dict[str, dict[int, Tensor]] = {}
    for key in [key for key in weights if PART in key]:
        name, number = key.rsplit(PART, 1)
        parts.setdefault(name, {})[int(number)] = weights.pop(key)
    for name, found in parts.items():
        weights[name] = torch.cat([found[number] for number in sorted(found)])
    return weights


def encoder_config(weights: dict[str, Tensor]) -> dict[str, object]:
    """Config of the BERT encoder that these weights fit."""
    vocabulary, width = weights["encoder.embeddings.word_embeddings.weight"].shape
    layers = {name.split(".")[3] for name in weights if name.startswith("encoder.encoder.layer.")}
    return {
        "model_type": "bert",
        "vocab_size": vocabulary,
        "hidden_size": width,
        "num_hidden_layers": len(layers),
        "num_attention_heads": HEADS,
        "intermediate_size": len(weights["encoder.encoder.layer.0.intermediate.dense.bias"]),
        "max_position_embeddings": len(weights["encoder.embeddings.position_embeddings.weight"]),
        "type_vocab_size": len(weights["encoder.embeddings.token_type_embeddings.weight"]),
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
    }


def main(arguments: list[str] | None = None) -> None:
    """Restore the starter that ships and print where the checkpoint lies."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RESTORED_DIR)
    given = parser.parse_args(arguments)
    print(restore(read_bundle(REPOSITORY / NAME), given.output))


if __name__ == "__main__":
    main()
