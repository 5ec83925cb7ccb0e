"""What it is worth to compute the last head layer where its result is read.

Exports one random model of ModernBERT-base's or of the starter's size twice, with the last head
layer at the first token and the markers, and with it at every token, and times both graphs in turn.

    python -m benchmarks.head_places --size base
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from drut.runtimes.ort import OrtOptions, OrtRuntime
from drut_export.encoders import build_encoder
from drut_export.graph import build_graph, save_graph
from drut_export.modeling import DecisionModel, gather
from drut_export.trial_batches import ModelFacts, TrialShape, make_batch

SIZES = {
    "base": (
        {
            "model_type": "modernbert",
            "hidden_size": 768,
            "num_hidden_layers": 22,
            "num_attention_heads": 12,
            "intermediate_size": 1152,
            "vocab_size": 50368,
        },
        2,
    ),
    "starter": (
        {
            "model_type": "bert",
            "hidden_size": 384,
            "num_hidden_layers": 6,
            "num_attention_heads": 12,
            "intermediate_size": 1536,
            "vocab_size": 8000,
        },
        1,
    ),
}
SHAPES = (TrialShape(1, 64, 3), TrialShape(1, 128, 3), TrialShape(1, 512, 3), TrialShape(8, 128, 3))


class EverywhereModel(DecisionModel):
    """The same model; its last head layer runs at every token and is read at few."""

    def decide(
        self, hidden: Tensor, attention_mask: Tensor, qtype: Tensor, places: Tensor | None = None
    ) -> Tensor:
        decided = super().decide(hidden, attention_mask, qtype)
        return decided if places is None else gather(decided, places)


def opened(kind: type[DecisionModel], size: str, directory: Path) -> OrtRuntime:
    torch.manual_seed(0)
    config, layers = SIZES[size]
    model = kind(build_encoder(config), head_layers=layers, actions=2).eval()
    place = directory / kind.__name__
    place.mkdir()
    save_graph(build_graph(model), place)
    return OrtRuntime(place / "model.onnx", OrtOptions(device="cpu", threads=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="starter")
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        everywhere = opened(EverywhereModel, given.size, Path(directory))
        needed = opened(DecisionModel, given.size, Path(directory))
        facts = ModelFacts(vocabulary=SIZES[given.size][0]["vocab_size"])
        for shape in SHAPES:
            batch = make_batch(shape, facts)
            difference = np.abs(everywhere.forward(batch).options - needed.forward(batch).options)
            spent: dict[OrtRuntime, list[float]] = {everywhere: [], needed: []}
            for _ in range(given.rounds):
                for runtime, seconds in spent.items():
                    start = time.process_time()
                    runtime.forward(batch)
                    seconds.append(time.process_time() - start)
            before, after = (statistics.median(seconds) * 1e3 for seconds in spent.values())
            print(
                f"{shape}: {before:.1f} -> {after:.1f} ms of CPU time, x {before / after:.3f}, "
                f"logits differ by {difference.max():.1g}"
            )


if __name__ == "__main__":
    main()
