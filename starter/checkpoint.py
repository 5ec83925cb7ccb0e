"""Building the starter's model from MiniLM, and reading and writing it as a checkpoint."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from drut.checkpoint.config import (
    CONFIG_NAME,
    ENCODER_DIR,
    TOKENIZER_DIR,
    WEIGHTS_NAME,
    read_config,
)
from drut_export.checkpoint_loading import load_model
from drut_export.encoders import build_encoder
from drut_export.modeling import DecisionModel
from starter.minilm import HUB_ID, load_encoder, load_tokenizer, minilm_dir
from starter.vocabulary import cut_embeddings, cut_tokenizer

HEAD_LAYERS: Final = 1
MAX_LEN: Final = 512
HEAD_MAX_LEN: Final = 192
WORD_EMBEDDINGS: Final = "embeddings.word_embeddings.weight"
PARTS_NAME: Final = "parts.json"
DROPPED_KEYS: Final = ("_name_or_path", "architectures", "transformers_version")
SAVED_TOKENIZER: Final = {
    "clean_up_tokenization_spaces": False,
    "cls_token": "[CLS]",
    "do_lower_case": True,
    "mask_token": "[MASK]",
    "model_max_length": MAX_LEN,
    "pad_token": "[PAD]",
    "sep_token": "[SEP]",
    "tokenizer_class": "BertTokenizer",
    "unk_token": "[UNK]",
}


@dataclass(frozen=True, slots=True)
class Parts:
    """What a checkpoint consists of beside its weights."""

    encoder_config: dict[str, Any]
    tokenizer: dict[str, Any]  # content of tokenizer.json
    settings: dict[str, Any] = field(default_factory=dict)  # content of rl_agent_config.json

    def build_tokenizer(self) -> Tokenizer:
        """The tokenizer with truncation and padding off."""
        tokenizer = Tokenizer.from_str(json.dumps(self.tokenizer))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer


def new_model(kept: Sequence[int]) -> tuple[DecisionModel, Parts]:
    """MiniLM with the kept tokens and an untrained head.

    Torch's random state decides the head's first weights.
    """
    raw = json.loads((minilm_dir() / "config.json").read_text(encoding="utf-8"))
    config = {key: value for key, value in raw.items() if key not in DROPPED_KEYS}
    config["vocab_size"] = len(kept)
    encoder = build_encoder(config)
    weights = dict(load_encoder().state_dict())
    weights[WORD_EMBEDDINGS] = cut_embeddings(weights[WORD_EMBEDDINGS], kept)
    encoder.load_state_dict(weights)
    model = DecisionModel(encoder, head_layers=HEAD_LAYERS, actions=1)
    return model, Parts(config, cut_tokenizer(minilm_dir() / "tokenizer.json", kept))


def agent_config(temperatures: Sequence[float], buckets: Mapping[str, float]) -> dict[str, Any]:
    """The content of `rl_agent_config.json`."""
    return {
        "encoder": HUB_ID,
        "head_layers": HEAD_LAYERS,
        "act_costs": {},
        "max_len": MAX_LEN,
        "head_max_len": HEAD_MAX_LEN,
        "amp_dtype": "bf16",
        "temperature": list(temperatures),
        "temperature_by_options": dict(buckets),
    }


def save_checkpoint(directory: Path, weights: Mapping[str, Tensor], parts: Parts) -> None:
    """Write weights (float32), settings, tokenizer and encoder config."""
    for folder in (directory / TOKENIZER_DIR, directory / ENCODER_DIR):
        folder.mkdir(parents=True, exist_ok=True)
    stored = {name: tensor.detach().float().contiguous() for name, tensor in weights.items()}
    width = parts.encoder_config["hidden_size"]
    # Never read, but other readers of the format build BERT with it and refuse to go without.
    stored["encoder.pooler.dense.weight"] = torch.zeros(width, width)
    stored["encoder.pooler.dense.bias"] = torch.zeros(width)
    save_file(stored, directory / WEIGHTS_NAME, metadata={"format": "pt"})
    _write_json(directory / CONFIG_NAME, parts.settings)
    _write_json(directory / ENCODER_DIR / "config.json", parts.encoder_config)
    _write_json(directory / TOKENIZER_DIR / "tokenizer.json", parts.tokenizer)
    _write_json(directory / TOKENIZER_DIR / "tokenizer_config.json", SAVED_TOKENIZER)


def write_parts(directory: Path, parts: Parts) -> None:
    """Keep encoder config and tokenizer beside a run's snapshots."""
    directory.mkdir(parents=True, exist_ok=True)
    _write_json(directory / PARTS_NAME, {"encoder": parts.encoder_config, "tok": parts.tokenizer})


def read_parts(directory: Path) -> Parts:
    """Read what `write_parts` wrote."""
    raw = json.loads((directory / PARTS_NAME).read_text(encoding="utf-8"))
    return Parts(raw["encoder"], raw["tok"])


def load_checkpoint(directory: Path) -> tuple[DecisionModel, Tokenizer, dict[str, Any]]:
    """Read a checkpoint: model in eval mode, tokenizer, settings."""
    settings = json.loads((directory / CONFIG_NAME).read_text(encoding="utf-8"))
    model = load_model(directory, read_config(directory))
    tokenizer = load_tokenizer(directory / TOKENIZER_DIR / "tokenizer.json")
    return model.eval(), tokenizer, settings


@torch.no_grad()
def round_to_int8_grid(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Round every matrix, row by row, to what 8-bit storage with one scale a row can hold.

    The values stay float32, so that any reader of the format sees the model that ships.
    """
    return {
        name: _rounded(tensor) if _is_matrix(tensor) else tensor.detach().clone()
        for name, tensor in weights.items()
    }


def _is_matrix(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.dim() == 2 and tensor.numel() >= 4096


def _rounded(tensor: Tensor) -> Tensor:
    scale = tensor.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 127
    return (tensor / scale).round().clamp(-127, 127) * scale


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    text = json.dumps(content, ensure_ascii=False, indent=2)
    path.write_text(text + "\n", encoding="utf-8")
