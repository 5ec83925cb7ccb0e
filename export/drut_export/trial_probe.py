"""What a rewrite of a graph does to answers about real texts, measured before it is decided on."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from drut.runtimes.base import Runtime
from drut.runtimes.ort import OrtOptions, OrtRuntime
from drut.tensors import Float32
from drut_export.quantise_weights import constant
from drut_export.trial_batches import TrialCase

MEASURED: Final = ("everyday text", "other scripts", "text of special tokens")
"""Titles of the texts that are measured on; the verification has further ones."""

_BASE, _WEIGHTS, _TRIAL = "float32.onnx", "float32.data", "trial.onnx"


class Probe:
    """Runs variants of one float32 graph on the same texts.

    Args:
        reference: what the answers are compared with.
        cases: the texts.
        model: the float32 graph; it is written out once, and variants share its weights.
        directory: an empty directory for that, removed by whoever made it.
    """

    def __init__(
        self, reference: Runtime, cases: Iterable[TrialCase], model: ir.Model, directory: Path
    ) -> None:
        self._batches = [case.batch for case in cases]
        self._expected = [
            shares(reference.forward(batch).options, batch.marker_mask) for batch in self._batches
        ]
        self._directory = directory
        ir.save(model.clone(), directory / _BASE, external_data=_WEIGHTS)

    def model(self) -> ir.Model:
        """A copy of the graph to change; its weights are read from the disk as needed."""
        return ir.load(self._directory / _BASE)

    def distance(self, model: ir.Model) -> float:
        """Mean over all rows of the largest difference of a probability, at temperature 1."""
        session = self._session(model)
        worst: list[Float32] = []
        for batch, expected in zip(self._batches, self._expected, strict=True):
            (options,) = session.run(["logits"], batch.feed())
            found = shares(options, batch.marker_mask)
            worst.append(np.abs(found - expected).max(axis=1))
        return float(np.concatenate(worst).mean())

    def channel_maxima(self, names: Sequence[str]) -> dict[str, NDArray[np.float64]]:
        """Largest magnitude of each channel, the last axis, of values of the float32 graph."""
        return self._maxima(names, per_channel=True)

    def maxima(self, names: Sequence[str]) -> dict[str, float]:
        """Largest magnitude of values of the float32 graph; they have to be float32."""
        return {name: float(v.max()) for name, v in self._maxima(names, per_channel=False).items()}

    def _maxima(self, names: Sequence[str], *, per_channel: bool) -> dict[str, NDArray[np.float64]]:
        if not names:
            return {}
        model = self.model()
        outputs = [_largest(model.graph, name, per_channel=per_channel) for name in names]
        session = self._session(model)
        runs = [session.run(outputs, batch.feed()) for batch in self._batches]
        return {
            name: np.max([run[index] for run in runs], axis=0).astype(np.float64)
            for index, name in enumerate(names)
        }

    def _session(self, model: ir.Model) -> Any:
        for name in [n for n, v in model.graph.initializers.items() if not v.uses()]:
            del model.graph.initializers[name]
        path = self._directory / _TRIAL
        ir.save(model, path)
        return OrtRuntime(path, OrtOptions(device="cpu"), precision="int8").session


def shares(logits: Float32, real: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Probabilities at temperature 1 of the real options, zero elsewhere."""
    raised = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True)) * real
    return np.asarray(raised / raised.sum(axis=1, keepdims=True).clip(min=1e-300))


def _largest(graph: ir.Graph, name: str, *, per_channel: bool) -> str:
    """Add an output with the largest magnitudes of a value."""
    value = _value(graph, name)
    size = ir.node("Abs", [value])
    nodes = [size]
    if per_channel:
        shape = constant(graph, "probe.shape", np.asarray([0, 0, -1], np.int64))
        axes = constant(graph, "probe.axes", np.asarray([0, 1], np.int64))
        flat = ir.node("Reshape", [size.outputs[0], shape])
        largest = ir.node("ReduceMax", [flat.outputs[0], axes], {"keepdims": 0})
        nodes += [flat, largest]
    else:
        largest = ir.node("ReduceMax", [size.outputs[0]], {"keepdims": 0})
        nodes.append(largest)
    graph.extend(nodes)
    output = largest.outputs[0]
    output.name = f"probe.{name}"
    output.type = ir.TensorType(ir.DataType.FLOAT)
    output.shape = ir.Shape(["channels"] if per_channel else [])
    graph.outputs.append(output)
    return str(output.name)


def _value(graph: ir.Graph, name: str) -> ir.Value:
    return next(value for node in graph for value in node.outputs if value.name == name)
