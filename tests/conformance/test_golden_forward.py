"""The torch model and the exported graph against raw tensors of the original implementation."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from drut.checkpoint.bundle import Bundle
from drut.checkpoint.config import read_config
from drut.runtimes.base import Runtime
from drut.runtimes.ort import OrtOptions, OrtRuntime
from drut.tensors import PARALLEL_INPUTS, Batch, graph_inputs
from drut_export.checkpoint_loading import load_model
from drut_export.modeling import DecisionModel
from drut_export.torch_reference import TorchRuntime
from exports import exported
from golden_values import GOLDEN, golden_cases

__all__ = ["exported"]

CASES = golden_cases("forward.json")
IDS = [f"{case['checkpoint']}-{case['id']}" for case in CASES]

# The random weights amplify rounding: 7e-6 is torch's own spread between two attention kernels,
# 3e-5 what another library's order of summation makes of it.
TORCH_TOLERANCE = 1e-5
GRAPH_TOLERANCE = 1e-4


@cache
def model(name: str) -> DecisionModel:
    directory = GOLDEN / name
    return load_model(directory, read_config(directory))


def batch_of(case: dict[str, Any]) -> Batch:
    parallel = PARALLEL_INPUTS[0].name in case
    return Batch(
        **{
            spec.name: np.array(case[spec.name], spec.dtype)
            for spec in graph_inputs(parallel=parallel)
        }
    )


def check(runtime: Runtime, case: dict[str, Any], tolerance: float) -> None:
    answer = runtime.forward(batch_of(case))
    np.testing.assert_allclose(answer.options, case["logits"], rtol=0, atol=tolerance)
    np.testing.assert_allclose(answer.actions, case["act_logits"], rtol=0, atol=tolerance)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_the_model_gives_the_golden_logits(case: dict[str, Any]) -> None:
    check(TorchRuntime(model(case["checkpoint"])), case, TORCH_TOLERANCE)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_the_graph_gives_the_golden_logits(
    case: dict[str, Any], exported: Callable[[str], Bundle]
) -> None:
    runtime = OrtRuntime(exported(case["checkpoint"]).graph, OrtOptions(device="cpu", threads=1))
    check(runtime, case, GRAPH_TOLERANCE)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_encoder_and_head_give_the_golden_states(case: dict[str, Any]) -> None:
    decision = model(case["checkpoint"])
    tensors = {name: torch.from_numpy(array) for name, array in batch_of(case).feed().items()}
    mask = tensors["attention_mask"]
    with torch.inference_mode():
        encoded = decision.encode(
            tensors["input_ids"], mask, tensors.get("position_ids"), tensors.get("option_ids")
        )
        decided = decision.decide(encoded, mask, tensors["qtype"])
    for stage, hidden in (("encoder", encoded), ("head", decided)):
        first = hidden[:, 0, :8].numpy()
        np.testing.assert_allclose(first, case[f"{stage}_cls"], rtol=0, atol=TORCH_TOLERANCE)
        means = [
            float(row[real.bool()].abs().mean()) for row, real in zip(hidden, mask, strict=True)
        ]
        np.testing.assert_allclose(means, case[f"{stage}_abs_mean"], rtol=0, atol=TORCH_TOLERANCE)
