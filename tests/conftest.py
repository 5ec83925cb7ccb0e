"""Fixtures that several folders of tests share."""

from collections.abc import Callable

import pytest

import drut
from conformance.recording import RecordingRuntime, recorded_agent
from drut.checkpoint.bundle import Bundle
from drut.checkpoint.opened import Checkpoint, open_bundle, open_checkpoint
from drut.runtimes.base import Runtime
from drut.runtimes.opening import RuntimeOptions, open_runtime
from exports import CHECKPOINTS, exported
from golden_values import GOLDEN

__all__ = ["exported"]

RUNTIMES = ("torch", "onnxruntime", "openvino")


@pytest.fixture(scope="session", params=RUNTIMES)
def golden_agent(
    request: pytest.FixtureRequest, exported: Callable[[str], Bundle]
) -> dict[str, tuple[drut.Agent, RecordingRuntime]]:
    """An agent per golden checkpoint, on each runtime, that remembers what the model saw."""
    return {name: recorded_agent(*_open(request.param, name, exported)) for name in CHECKPOINTS}


def _open(kind: str, name: str, exported: Callable[[str], Bundle]) -> tuple[Checkpoint, Runtime]:
    if kind != "torch":
        checkpoint = open_bundle(exported(name))
        return checkpoint, open_runtime(kind, checkpoint, RuntimeOptions(device="cpu", threads=1))
    from drut_export.checkpoint_loading import load_model
    from drut_export.torch_reference import TorchRuntime

    checkpoint = open_checkpoint(GOLDEN / name)
    return checkpoint, TorchRuntime(load_model(GOLDEN / name, checkpoint.config))
