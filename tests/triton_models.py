"""Model repositories for the server: bundles with a stand-in graph, ready in no time."""

import json
import os
import time
from pathlib import Path
from typing import Any

from bundles import write_bundle
from drut.checkpoint.bundle import read_bundle
from drut.checkpoint.config import read_config
from drut.triton_model import DECISION_SUFFIX, MAX_QUEUED
from drut_export.pbtxt import QueueBounds
from drut_export.triton_files import write_triton_files
from tiny_checkpoint import TINY, TINY_PARALLEL

ON_A_GPU = "instance_group [ { kind: KIND_GPU count: 1 } ]"
ON_THE_CPU = "instance_group [ { kind: KIND_CPU count: 1 } ]"

PUPPET = """
import json
import time
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.script = Path(args["model_repository"], "behaviour.json")

    def execute(self, requests):
        script = json.loads(self.script.read_text())
        masks = [self.tensor(request, "marker_mask") for request in requests]
        real = any(mask.any() for mask in masks)  # a warm-up has no option
        if real and script["seconds"]:
            self.script.with_name("busy").touch()
            time.sleep(script["seconds"])
        if real and script["fails"]:
            fault = pb_utils.TritonError("the puppet fails", pb_utils.TritonError.INTERNAL)
            return [pb_utils.InferenceResponse(error=fault) for _ in requests]
        return [
            pb_utils.InferenceResponse([
                pb_utils.Tensor("logits", np.zeros(mask.shape, np.float32)),
                pb_utils.Tensor("act_logits", np.zeros((len(mask), 2), np.float32)),
            ])
            for mask in masks
        ]

    def tensor(self, request, name):
        return pb_utils.get_input_tensor_by_name(request, name).as_numpy()
"""


def serve_bundle(
    repository: Path,
    name: str = "tiny",
    version: int = 1,
    *,
    parallel: bool = False,
    target: Any = "cpu",
    **manifest: Any,
) -> Path:
    """Write a bundle whose graph is a stand-in, its config and its decision model.

    Returns:
        `<repository>/<name>/`.
    """
    source = TINY_PARALLEL if parallel else TINY
    config = read_config(source)
    facts = {
        "option_layout": config.option_layout,
        "actions": 2,  # of the stand-in graph
        "max_len": config.max_len,
        "head_max_len": config.head_max_len,
        **manifest,
    }
    write_bundle(repository, name, version, source=source, parallel=parallel, **facts)
    write_triton_files(repository / name, target=target)
    return repository / name


def serve_puppet(
    repository: Path, name: str = "tiny", *, bounds: QueueBounds | None = None, **manifest: Any
) -> Path:
    """The same with a graph that does what `behave` tells it: sleep, or fail.

    Args:
        repository: as above.
        name: as above.
        bounds: of the server's queue for the graph.
        manifest: as above.

    Returns:
        `<repository>/<name>/`.
    """
    model = serve_bundle(repository, name, **manifest)
    write_triton_files(model, bounds=bounds)
    edit_config(model, 'backend: "onnxruntime"', 'backend: "python"')
    (model / "1" / "model.py").write_text(PUPPET, encoding="utf-8")
    behave(model)
    return model


def bound_decision(model: Path, requests: int) -> None:
    """Let the decision model of a bundle hold so many requests at most."""
    old, new = (
        f'key: "max_queue" value: {{ string_value: "{number}" }}'
        for number in (MAX_QUEUED, requests)
    )
    edit_config(model.with_name(f"{model.name}{DECISION_SUFFIX}"), old, new)


def behave(model: Path, *, seconds: float = 0.0, fails: bool = False) -> None:
    """Tell a puppet, also a running one, what its next passes do."""
    (model / "busy").unlink(missing_ok=True)
    _replace(model / "behaviour.json", json.dumps({"seconds": seconds, "fails": fails}))


def wait_busy(model: Path, *, seconds: float = 20.0) -> None:
    """Return once a puppet sleeps for the first time since it was told to."""
    end = time.monotonic() + seconds
    while not (model / "busy").exists():
        assert time.monotonic() < end, "the puppet was not asked"
        time.sleep(0.01)


def edit_config(model: Path, old: str, new: str) -> None:
    """Change one place of a model's config, in one step: the server may be reading it."""
    path = model / "config.pbtxt"
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, text
    _replace(path, text.replace(old, new))


def _replace(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text, encoding="utf-8")
    os.replace(beside, path)


def move_to_cpu(model: Path) -> None:
    """Let a config for a GPU load here: Triton refuses the kind, and ignores the accelerator."""
    edit_config(model, ON_A_GPU, ON_THE_CPU)


def served_version(model: Path) -> int:
    """The highest version of a bundle."""
    return read_bundle(model).version
