"""The decision model for optimum's ONNX exporter, where `optimum.exporters.onnx` is installed.

`drut export` does not use it: it traces with torch's present exporter. This is for whoever has a
tool chain around optimum; the graph it gets has the inputs, outputs and axes of `drut.tensors`.
Importing this module needs nothing of optimum; `register` does.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import torch
import transformers
from torch import Tensor, nn

from drut.errors import MissingDependencyError
from drut.tensors import OUTPUTS, TensorSpec, graph_inputs
from drut_export.modeling import DecisionModel
from drut_export.trial_batches import ModelFacts, TrialShape, make_batch

MODEL_TYPE: Final = "drut-decision"
TASK: Final = "typed-decision"
"""The name under which optimum's `TasksManager` knows the task."""

OPSET: Final = 18
TOLERANCE: Final = 1e-4
"""What optimum's own validation allows between torch and the graph, absolute."""


class DecisionConfig(transformers.PretrainedConfig):  # type: ignore[no-untyped-call]
    """What the exporter has to know of a decision model."""

    model_type = MODEL_TYPE

    def __init__(
        self,
        *,
        vocab_size: int = 1,
        actions: int = 1,
        parallel: bool = False,
        **others: Any,
    ) -> None:
        super().__init__(**others)
        self.vocab_size = vocab_size
        self.actions = actions
        self.parallel = parallel


class OptimumDecision(nn.Module):
    """A decision model with the `config` that optimum looks for."""

    def __init__(self, model: DecisionModel) -> None:
        super().__init__()
        self.model = model
        encoder: Any = model.encoder.config
        self.config = DecisionConfig(
            vocab_size=int(encoder.vocab_size), actions=model.actions, parallel=model.parallel
        )

    def forward(  # noqa: PLR0913, PLR0917 - the graph's inputs
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        marker_pos: Tensor,
        marker_mask: Tensor,
        qtype: Tensor,
        position_ids: Tensor | None = None,
        option_ids: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Answer as `DecisionModel.forward`, by output name."""
        answers = self.model(
            input_ids, attention_mask, marker_pos, marker_mask, qtype, position_ids, option_ids
        )
        return dict(zip((spec.name for spec in OUTPUTS), answers, strict=True))


@cache
def register() -> type:
    """Make optimum know `MODEL_TYPE` and `TASK`; returns the `OnnxConfig` it then uses.

    Raises:
        MissingDependencyError: optimum's exporter is not installed.
    """
    try:
        from optimum.exporters.onnx.base import OnnxConfig
        from optimum.exporters.tasks import TasksManager
        from optimum.utils import NormalizedConfig
    except ImportError as exc:
        raise MissingDependencyError(
            f"optimum's ONNX exporter is not installed here ({exc}); it comes with optimum-onnx, "
            "which needs transformers 4: see constraints-optimum.txt"
        ) from exc
    made = _onnx_config(OnnxConfig, NormalizedConfig)
    # A task is known once some model class stands for it.
    TasksManager._CUSTOM_CLASSES["pt", MODEL_TYPE, TASK] = (__name__, OptimumDecision.__name__)
    TasksManager.create_register("onnx")(MODEL_TYPE, TASK)(made)
    return made


def export_with_optimum(model: DecisionModel, path: Path, *, opset: int = OPSET) -> Path:
    """Export through optimum and let it compare the graph with the model.

    Args:
        model: the model.
        path: of the graph's file.
        opset: of the graph, at most what torch's older exporter knows.

    Raises:
        MissingDependencyError: optimum's exporter is not installed.
    """
    register()
    from optimum.exporters.onnx import export, validate_model_outputs
    from optimum.exporters.tasks import TasksManager

    wrapped = OptimumDecision(model).eval()
    make: Any = TasksManager.get_exporter_config_constructor(
        "onnx", wrapped, task=TASK, model_type=MODEL_TYPE, library_name="transformers"
    )
    config = make(wrapped.config)
    _, outputs = export(wrapped, config, path, opset=opset)
    validate_model_outputs(config, wrapped, path, outputs, atol=TOLERANCE, use_subprocess=False)
    return path


def _onnx_config(base: Any, normalized: Any) -> type:
    class DecisionOnnxConfig(base):  # type: ignore[misc]
        """Inputs, outputs, axes and example rows of a decision graph."""

        NORMALIZED_CONFIG_CLASS = normalized
        DEFAULT_ONNX_OPSET = OPSET
        ATOL_FOR_VALIDATION = TOLERANCE

        @property
        def inputs(self) -> dict[str, dict[int, str]]:
            return {
                spec.name: dict(enumerate(spec.axes))
                for spec in graph_inputs(parallel=self._config.parallel)
            }

        @property
        def outputs(self) -> dict[str, dict[int, str]]:
            return {spec.name: _dynamic(spec) for spec in OUTPUTS}

        def generate_dummy_inputs(self, framework: str = "pt", **shapes: Any) -> dict[str, Any]:
            return _example(self._config, framework, shapes)

    return DecisionOnnxConfig


def _dynamic(spec: TensorSpec) -> dict[int, str]:
    """Axes of an output that differ from call to call."""
    return {index: axis for index, axis in enumerate(spec.axes) if axis != "actions"}


def _example(config: Any, framework: str, shapes: Mapping[str, int]) -> dict[str, Any]:
    """Rows of mixed lengths and types; `shapes` has optimum's names for their sizes."""
    shape = TrialShape(
        rows=shapes.get("batch_size", 2),
        tokens=shapes.get("sequence_length", 16),
        options=shapes.get("num_choices", 4),
    )
    facts = ModelFacts(vocabulary=config.vocab_size, parallel=config.parallel)
    feed = make_batch(shape, facts).feed()
    if framework == "np":
        return dict(feed)
    return {name: torch.from_numpy(array) for name, array in feed.items()}
