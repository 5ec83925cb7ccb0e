"""A checkpoint directory to a model and back, with every tensor accounted for."""

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from drut.checkpoint.config import (
    CONFIG_NAME,
    ENCODER_DIR,
    TOKENIZER_DIR,
    WEIGHTS_NAME,
    CheckpointConfig,
    read_json_object,
)
from drut.errors import CheckpointFormatError, CheckpointNotFoundError
from drut_export.encoders import build_encoder, without_initial_weights
from drut_export.modeling import DecisionModel

SHOWN: Final = 5
ENCODER_CONFIG: Final = f"{ENCODER_DIR}/config.json"

UNREAD: Final = "encoder.pooler."
"""BERT encoders are saved with a pooling layer, which the decision head never reads."""


def load_model(directory: Path, config: CheckpointConfig) -> DecisionModel:
    """Build the model of a checkpoint directory in float32 and eval mode.

    Files in float16 or bfloat16 are cast up, so their rounding stays.

    Raises:
        CheckpointNotFoundError: the encoder's config or the weights are missing.
        CheckpointFormatError: the encoder cannot be built, or a tensor is missing, surplus, of
            another shape, or not finite.
    """
    encoder_config = _existing(directory, ENCODER_CONFIG)
    weights = _existing(directory, WEIGHTS_NAME)
    with without_initial_weights():
        model = DecisionModel(
            build_encoder(read_json_object(encoder_config)),
            head_layers=config.head_layers,
            actions=config.actions,
            parallel=config.parallel,
        )
    expected = model.state_dict()
    state = {
        name: tensor
        for name, tensor in _read_weights(weights).items()
        if name in expected or not name.startswith(UNREAD)
    }
    check_state(state, expected, where=weights)
    model.load_state_dict(state, assign=True)
    return model.eval()


def check_state(
    found: Mapping[str, Tensor], expected: Mapping[str, Tensor], *, where: Path
) -> None:
    """Compare names, shapes and finiteness of a file's tensors with those of the model.

    Raises:
        CheckpointFormatError: naming the first tensors that do not fit.
    """
    both = [name for name in expected if name in found]
    shapes = [
        f"{name} {list(found[name].shape)} instead of {list(expected[name].shape)}"
        for name in both
        if found[name].shape != expected[name].shape
    ]
    problems = [
        ("lacks", [name for name in expected if name not in found]),
        ("has unknown", [name for name in found if name not in expected]),
        ("has other shapes:", shapes),
        ("holds NaN or infinity in", [n for n in both if not _is_finite(found[n])]),
    ]
    told = [f"{what} {_shown(names)}" for what, names in problems if names]
    if told:
        raise CheckpointFormatError(
            f"{where} does not fit {CONFIG_NAME} and {ENCODER_CONFIG}: it {'; it '.join(told)}; "
            "check head_layers and act_costs, or download the checkpoint again"
        )


def save_checkpoint(
    directory: Path,
    model: DecisionModel,
    config: Mapping[str, Any],
    tokenizer_files: Iterable[Path],
    dtype: torch.dtype = torch.float16,
) -> None:
    """Write a checkpoint directory: settings, weights, encoder config and tokenizer.

    Args:
        directory: made if it is not there; files of these names are replaced.
        model: the model to store, cast to `dtype`.
        config: content of `rl_agent_config.json`.
        tokenizer_files: files to copy into `tokenizer/`.
        dtype: float type of the stored weights.

    Raises:
        CheckpointFormatError: a weight is not finite, perhaps only in `dtype`.
    """
    state = {name: value.to(dtype).contiguous() for name, value in model.state_dict().items()}
    check_state(state, model.state_dict(), where=directory / WEIGHTS_NAME)
    for part in (directory, directory / ENCODER_DIR, directory / TOKENIZER_DIR):
        part.mkdir(parents=True, exist_ok=True)
    _write_json(directory / CONFIG_NAME, config)
    save_file(state, directory / WEIGHTS_NAME, metadata={"format": "pt"})
    # Written through a private temporary file; readable to the same people as the rest.
    shutil.copymode(directory / CONFIG_NAME, directory / WEIGHTS_NAME)
    _write_json(directory / ENCODER_CONFIG, _encoder_settings(model))
    for file in tokenizer_files:
        shutil.copyfile(file, directory / TOKENIZER_DIR / file.name)


def _existing(directory: Path, name: str) -> Path:
    path = directory / name
    if not path.is_file():
        raise CheckpointNotFoundError(
            f"{directory} has no {name}, which an export reads; download the whole checkpoint"
        )
    return path


def _read_weights(path: Path) -> dict[str, Tensor]:
    try:
        return {name: value.float() for name, value in load_file(path).items()}
    except (SafetensorError, ValueError) as exc:
        raise CheckpointFormatError(
            f"{path} is not a readable safetensors file ({exc}); download it again"
        ) from exc


def _is_finite(tensor: Tensor) -> bool:
    # NaN and infinity both survive into the extremes, which are found without a copy.
    return not tensor.numel() or all(bool(end.isfinite()) for end in tensor.aminmax())


def _encoder_settings(model: DecisionModel) -> dict[str, Any]:
    config: Any = model.encoder.config
    settings = dict(config.to_dict())
    for name in ("dtype", "torch_dtype", "_name_or_path"):
        settings.pop(name, None)
    return settings


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _shown(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")
