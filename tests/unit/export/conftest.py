from collections.abc import Callable
from pathlib import Path

import onnx_ir as ir
import pytest
import torch

from drut.checkpoint.bundle import Bundle
from drut_export import repository
from exports import exported

__all__ = ["exported"]

torch.set_num_threads(1)  # models this small only lose time to a second thread


@pytest.fixture
def traced(exported: Callable[[str], Bundle], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Exports of the tiny checkpoint take its graph from an earlier one: no tracing, no wait."""
    path = exported("tiny-checkpoint").graph
    monkeypatch.setattr(repository, "build_graph", lambda *_: ir.load(path))
    return path
