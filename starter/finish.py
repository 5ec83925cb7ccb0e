"""From the best snapshot to a checkpoint: 8-bit grid, temperatures, licences."""

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch

from drut.checkpoint.config import CONFIG_NAME
from drut.decoding.calibration import bucket
from drut_export.encoders import build_encoder
from drut_export.modeling import DecisionModel
from starter import evalsets
from starter.bank import HERE
from starter.checkpoint import (
    HEAD_LAYERS,
    Parts,
    agent_config,
    read_parts,
    round_to_int8_grid,
    save_checkpoint,
)
from starter.examples import Example
from starter.metrics import KINDS, Array, fit_temperature, of_kind
from starter.model_data import Encoder
from starter.train import BUILD_DIR, all_logits

CHECKPOINT_DIR: Final = BUILD_DIR / "checkpoint"
NOTICES_DIR: Final = HERE / "notices"
RECORDED: Final = ("seen", "step", "tokens", "seconds", "loss")  # of the snapshot's run
LEAST_IN_BUCKET: Final = 150  # items that make a temperature of its own worth fitting


def finish(build: Path = BUILD_DIR, target: Path = CHECKPOINT_DIR) -> dict[str, Any]:
    """Write the checkpoint of the best snapshot; returns its settings."""
    parts = read_parts(build)
    snapshot = torch.load(build / "best.pt", weights_only=True)
    weights = round_to_int8_grid(snapshot["weights"])
    encoder = build_encoder(parts.encoder_config)
    model = DecisionModel(encoder, head_layers=HEAD_LAYERS, actions=1)
    model.load_state_dict(weights)
    items = evalsets.schema_items(evalsets.DEVELOPMENT)
    logits = all_logits(model, Encoder(parts.build_tokenizer()), items, amp=False)
    settings = agent_config(*fitted_temperatures(logits, items))
    settings["training"] = {name: snapshot["record"][name] for name in RECORDED}
    save_checkpoint(target, weights, Parts(parts.encoder_config, parts.tokenizer, settings))
    for notice in NOTICES_DIR.iterdir():
        shutil.copyfile(notice, target / notice.name)
    return settings


def fitted_temperatures(
    logits: Sequence[Array], items: Sequence[Example]
) -> tuple[list[float], dict[str, float]]:
    """Temperatures by question type, and by option count where there are enough items."""
    by_type: list[float] = []
    buckets: dict[str, float] = {}
    for kind in KINDS:
        places = of_kind(items, kind)
        by_type.append(_fit(places, logits, items))
        sizes: dict[str, list[int]] = {}
        for place in places:
            sizes.setdefault(bucket(kind, len(items[place].options)), []).append(place)
        if len(sizes) > 1:
            buckets |= {
                name: _fit(inside, logits, items)
                for name, inside in sorted(sizes.items())
                if len(inside) >= LEAST_IN_BUCKET
            }
    return by_type, buckets


def _fit(places: Sequence[int], logits: Sequence[Array], items: Sequence[Example]) -> float:
    return fit_temperature([logits[i] for i in places], [items[i].answer for i in places])


def main(arguments: list[str] | None = None) -> None:
    """Write the checkpoint and print its settings' place."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, default=BUILD_DIR)
    parser.add_argument("--target", type=Path, default=CHECKPOINT_DIR)
    given = parser.parse_args(arguments)
    settings = finish(given.build, given.target)
    print(f"{given.target / CONFIG_NAME}: temperatures {settings['temperature']}")


if __name__ == "__main__":
    main()
