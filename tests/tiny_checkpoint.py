"""The golden tiny checkpoint, opened once, and small things to ask of it."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from drut.batching import PassPolicy
from drut.checkpoint.config import CheckpointConfig, read_config
from drut.checkpoint.opened import Checkpoint
from drut.checkpoint.tokenizer import CheckpointTokenizer, read_tokenizer
from drut.decoding.calibration import Calibration
from drut.execution.direct import DirectRunner
from drut.execution.passes import PassRunner
from drut.pipeline import Pipeline
from drut.runtimes.fake import FakeRuntime
from golden_values import GOLDEN

TINY = GOLDEN / "tiny-checkpoint"
TINY_PARALLEL = GOLDEN / "tiny-checkpoint-parallel"

NOUL = {"urgent": {"type": "noul", "instructions": "Is the customer in a hurry?"}}
CHOICE = {
    "team": {
        "type": "choice",
        "instructions": "Which team?",
        "criteria": {"billing": "money", "tech": "errors"},
    }
}
SCORE = {
    "sev": {
        "type": "score",
        "instructions": "How bad?",
        "criteria": ["minor", "annoying", "blocking"],
    }
}
ALL = {**NOUL, **CHOICE, **SCORE}


@cache
def tokenizer() -> CheckpointTokenizer:
    return read_tokenizer(TINY)


@cache
def config() -> CheckpointConfig:
    return read_config(TINY)


class CountingTokenizer:
    """The tiny tokenizer, which remembers the texts of every call."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def encode(self, text: str) -> list[int]:
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        self.calls.append(list(texts))
        return tokenizer().encode_all(texts)

    def __getattr__(self, name: str) -> Any:
        return getattr(tokenizer(), name)


def checkpoint(counting: CountingTokenizer | None = None, **changes: Any) -> Checkpoint:
    """The tiny checkpoint without weights, its settings changed."""
    return Checkpoint("tiny", replace(config(), **changes), counting or tokenizer(), TINY)


def pipeline(
    runtime: Any = None,
    *,
    counting: CountingTokenizer | None = None,
    max_batch_tokens: int | None = None,
    **options: Any,
) -> Pipeline:
    """A pipeline over the tiny checkpoint, with temperatures of one."""
    opened, runtime = checkpoint(counting), runtime or FakeRuntime()
    if max_batch_tokens is not None:
        policy = PassPolicy(max_tokens=max_batch_tokens)
        passes = PassRunner(runtime, policy, pad_id=opened.tokenizer.pad_id)
        options["runner"] = DirectRunner(passes)
    return Pipeline(opened, runtime, Calibration(), **options)


def text_of(tokens: int) -> str:
    """A text of exactly that many tokens of the tiny tokenizer."""
    text = "a" + " a" * (tokens - 1) if tokens else ""
    assert len(tokenizer().encode(text)) == tokens
    return text


def copy_of_tiny(directory: Path, source: Path = TINY) -> Path:
    """A writable copy of a golden checkpoint."""
    return Path(shutil.copytree(source, directory))
