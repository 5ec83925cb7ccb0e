"""The reference runtime: the torch model itself, slow and trusted."""

import threading
from typing import Any

import numpy as np
import torch

from drut.errors import ForwardError, RuntimeClosedError
from drut.runtimes.base import RuntimeInfo
from drut.tensors import Batch, Logits
from drut_export.modeling import DecisionModel


class TorchRuntime:
    """Runs a `DecisionModel` on the CPU in float32, one call at a time.

    Every other runtime is compared with this one.
    """

    def __init__(self, model: DecisionModel) -> None:
        self._model: DecisionModel | None = model.eval().float().cpu()
        self._lock = threading.Lock()
        self._info = RuntimeInfo(
            name="torch",
            device="cpu",
            requested_device="cpu",
            parallel=model.parallel,
            actions=model.actions,
            details={"torch": str(torch.__version__)},
        )

    @property
    def info(self) -> RuntimeInfo:
        """Facts about what runs."""
        return self._info

    def forward(self, batch: Batch) -> Logits:
        """Run one batch; row i of the result answers row i."""
        feed: dict[str, Any] = {
            name: torch.from_numpy(np.ascontiguousarray(array))
            for name, array in batch.feed().items()
        }
        with self._lock, torch.inference_mode():
            if self._model is None:
                raise RuntimeClosedError("the torch runtime was closed; open a new one")
            try:
                options, actions = self._model(**feed)
            except (RuntimeError, ValueError, IndexError) as exc:
                raise ForwardError(
                    f"torch could not run a batch of shape {batch.input_ids.shape}: {exc}"
                ) from exc
        return Logits(options.numpy(), actions.numpy())

    def close(self) -> None:
        """Let go of the model; later calls of `forward` raise `RuntimeClosedError`."""
        with self._lock:
            self._model = None
