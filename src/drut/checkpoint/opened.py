"""A checkpoint ready to encode for: its settings, its tokenizer, and where they came from."""

from dataclasses import dataclass
from pathlib import Path

from drut.checkpoint.bundle import Bundle, read_bundle
from drut.checkpoint.config import CheckpointConfig, read_config
from drut.checkpoint.tokenizer import CheckpointTokenizer, read_tokenizer


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What an agent needs of a checkpoint besides a runtime."""

    model_id: str  # the name or path it was asked for by
    config: CheckpointConfig
    tokenizer: CheckpointTokenizer
    directory: Path
    revision: str | None = None
    bundle: Bundle | None = None  # the exported graph's bundle, if it was opened from one


def open_checkpoint(
    directory: Path, *, model_id: str | None = None, revision: str | None = None
) -> Checkpoint:
    """Read settings and tokenizer of a checkpoint directory; the weights are not touched."""
    return Checkpoint(
        model_id or str(directory),
        read_config(directory),
        read_tokenizer(directory),
        directory,
        revision,
    )


def open_bundle(bundle: Bundle | Path, *, model_id: str | None = None) -> Checkpoint:
    """Read settings and tokenizer of an exported bundle."""
    found = read_bundle(bundle) if isinstance(bundle, Path) else bundle
    return Checkpoint(
        model_id or found.name,
        read_config(found.directory),
        read_tokenizer(found.directory),
        found.directory,
        found.manifest.get("revision"),
        found,
    )
