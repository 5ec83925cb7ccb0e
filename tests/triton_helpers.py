"""Runtimes on a server, and batches to send there."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from drut.runtimes.triton import TritonRuntime
from drut.runtimes.triton_options import TritonOptions
from drut.tensors import Batch
from tiny_checkpoint import checkpoint

PROTOCOLS = ("http", "grpc")


@contextmanager
def runtime(url: str, *, device: str = "auto", **options: Any) -> Iterator[TritonRuntime]:
    """A runtime of the tiny checkpoint on the model `tiny`, closed in the end."""
    named = {"model": "tiny", **options}
    opened = TritonRuntime(TritonOptions(url, **named), checkpoint(), device=device)
    try:
        yield opened
    finally:
        opened.close()


def some_batch(rows: int = 2, tokens: int = 5, options: int = 3, *, seed: int = 0) -> Batch:
    """Rows of random tokens; the last option of the last row is padding."""
    random = np.random.default_rng(seed)
    mask = np.ones((rows, options), np.bool_)
    mask[-1, -1] = False
    return Batch(
        input_ids=random.integers(1, 1000, (rows, tokens)),
        attention_mask=np.ones((rows, tokens), np.int64),
        marker_pos=np.zeros((rows, options), np.int64),
        marker_mask=mask,
        qtype=np.zeros(rows, np.int64),
    )
