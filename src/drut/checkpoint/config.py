"""`rl_agent_config.json`: the checkpoint's own settings, parsed and checked."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from drut.errors import CheckpointFormatError, CheckpointNotFoundError

CONFIG_NAME: Final = "rl_agent_config.json"
WEIGHTS_NAME: Final = "model.safetensors"
TOKENIZER_DIR: Final = "tokenizer"
ENCODER_DIR: Final = "encoder"

OptionLayout: TypeAlias = Literal["sequential", "parallel"]


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """Settings of one checkpoint. Temperatures are kept as written; decoding clamps them."""

    encoder: str  # hub id of the base encoder
    head_layers: int
    actions: int = 1  # outputs of the act head: number of act_costs plus one
    max_len: int = 512  # tokens of a whole sequence
    head_max_len: int = 192  # tokens of instructions and options inside it
    temperature: tuple[object, object, object] = (1.0, 1.0, 1.0)  # choice, score, noul
    temperature_by_options: Mapping[str, object] = field(default_factory=dict)
    option_layout: OptionLayout = "sequential"
    amp_dtype: str = "fp16"
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)  # the file as read

    @property
    def parallel(self) -> bool:
        """Whether options are laid out in parallel, each seeing only itself and the rest."""
        return self.option_layout == "parallel"


def read_config(directory: Path) -> CheckpointConfig:
    """Read `rl_agent_config.json` of a checkpoint or bundle directory.

    Raises:
        CheckpointNotFoundError: the file is missing.
        CheckpointFormatError: it is not a JSON object or a value cannot be used.
    """
    path = directory / CONFIG_NAME
    if not path.is_file():
        raise CheckpointNotFoundError(
            f"{directory} has no {CONFIG_NAME}, so it is not a decision checkpoint; "
            "give the directory that holds it (perhaps a subfolder=)"
        )
    return parse_config(read_json_object(path), where=str(path))


def parse_config(raw: Mapping[str, Any], *, where: str = CONFIG_NAME) -> CheckpointConfig:
    """Check the settings and fill in the format's defaults."""
    missing = [key for key in ("encoder", "head_layers") if key not in raw]
    if missing:
        raise CheckpointFormatError(f"{where} lacks {', '.join(missing)}")
    return CheckpointConfig(
        encoder=_text(raw, "encoder", "", where),
        head_layers=_whole(raw, "head_layers", 0, where, least=0),
        actions=_actions(raw.get("act_costs", {}), where),
        max_len=_whole(raw, "max_len", 512, where, least=1),
        head_max_len=_whole(raw, "head_max_len", 192, where, least=1),
        temperature=_temperature(raw.get("temperature", [1.0, 1.0, 1.0]), where),
        temperature_by_options=_buckets(raw.get("temperature_by_options", {}), where),
        option_layout=_layout(raw.get("option_layout", "sequential"), where),
        amp_dtype=_text(raw, "amp_dtype", "fp16", where),
        raw=dict(raw),
    )


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a file that must hold one JSON object."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as exc:
        raise CheckpointFormatError(
            f"{path} is not valid JSON ({exc}); download or export it again"
        ) from exc
    if not isinstance(value, dict):
        raise CheckpointFormatError(f"{path} holds a {type(value).__name__}, not a JSON object")
    return value


def _text(raw: Mapping[str, Any], key: str, default: str, where: str) -> str:
    value = raw.get(key, default)
    if not isinstance(value, str):
        raise CheckpointFormatError(f"{where}: {key} must be a string, got {value!r}")
    return value


def _whole(raw: Mapping[str, Any], key: str, default: int, where: str, *, least: int) -> int:
    value = raw.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise CheckpointFormatError(
            f"{where}: {key} must be a whole number of at least {least}, got {value!r}"
        )
    return value


def _actions(value: object, where: str) -> int:
    # Only the number of entries matters; upstream accepts a list as well.
    if not isinstance(value, dict | list):
        raise CheckpointFormatError(f"{where}: act_costs must be an object, got {value!r}")
    return len(value) + 1


def _temperature(value: object, where: str) -> tuple[object, object, object]:
    if not isinstance(value, list | tuple) or len(value) != 3:
        raise CheckpointFormatError(
            f"{where}: temperature must be a list of three numbers (choice, score, noul), "
            f"got {value!r}"
        )
    return value[0], value[1], value[2]


def _buckets(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise CheckpointFormatError(
            f"{where}: temperature_by_options must be an object, got {value!r}"
        )
    return dict(value)


def _layout(value: object, where: str) -> OptionLayout:
    if value == "sequential":
        return "sequential"
    if value == "parallel":
        return "parallel"
    raise CheckpointFormatError(
        f"{where}: option_layout must be 'sequential' or 'parallel', got {value!r}"
    )
