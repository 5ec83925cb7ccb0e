"""Small random decision models, cheaper than a golden checkpoint and of any shape."""

import json
from typing import Any

import numpy as np
import torch

from drut.tensors import Batch
from drut_export.encoders import build_encoder
from drut_export.modeling import DecisionModel
from golden_values import GOLDEN

BERT = {
    "model_type": "bert",
    "vocab_size": 50,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "max_position_embeddings": 40,
}


def modernbert_config(**changes: Any) -> dict[str, Any]:
    """The tiny checkpoint's encoder config, with changes."""
    path = GOLDEN / "tiny-checkpoint" / "encoder" / "config.json"
    return {**json.loads(path.read_text(encoding="utf-8")), **changes}


def random_model(config: dict[str, Any] | None = None, **options: Any) -> DecisionModel:
    """A seeded model whose weights are large enough for every part to matter."""
    torch.manual_seed(7)
    settings = {"head_layers": 2, "actions": 2, **options}
    model = DecisionModel(build_encoder(config or modernbert_config()), **settings)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=0.15)
    return model.eval()


def tensors(batch: Batch) -> dict[str, torch.Tensor]:
    """A batch as keyword arguments of `DecisionModel.forward`."""
    return {name: torch.from_numpy(array) for name, array in batch.feed().items()}


def run(model: DecisionModel, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """Option logits and act logits as arrays."""
    with torch.inference_mode():
        options, actions = model(**tensors(batch))
    return options.numpy(), actions.numpy()
