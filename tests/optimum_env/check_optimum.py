"""Run by tests/slow/test_optimum_environment.py with the Python of `make optimum-env`."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import transformers

from drut.runtimes.ort import OrtOptions, OrtRuntime
from drut_export.graph import check_contract
from drut_export.modeling import DecisionModel
from drut_export.optimum_exporter import MODEL_TYPE, TASK, export_with_optimum, register
from drut_export.precision import get_precision
from drut_export.torch_reference import TorchRuntime
from drut_export.trial_batches import ModelFacts
from drut_export.verify import verify
from small_models import BERT, modernbert_config, random_model

OLD_SPELLING = {
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0,
    "local_rope_theta": 10000.0,
}


def old_config() -> dict[str, object]:
    config = modernbert_config()
    return {k: v for k, v in config.items() if k not in ("layer_types", "rope_parameters")} | dict(
        OLD_SPELLING
    )


MODELS = {
    "modernbert": lambda: random_model(),
    "modernbert, old spelling": lambda: random_model(old_config()),
    "no head layers": lambda: random_model(head_layers=0),
    "parallel": lambda: random_model(parallel=True),
    "bert": lambda: random_model(BERT, head_layers=1, actions=3),
}


def test_this_is_the_environment_it_claims_to_be() -> None:
    assert transformers.__version__ == "4.57.6"


def test_optimum_knows_the_task() -> None:
    config = register()
    from optimum.exporters.tasks import TasksManager

    known = TasksManager.get_supported_tasks_for_model_type(
        MODEL_TYPE, "onnx", library_name="transformers"
    )
    assert list(known) == [TASK]
    assert TasksManager.get_model_class_for_task(TASK, model_type=MODEL_TYPE).__name__ == (
        "OptimumDecision"
    )
    assert register() is config


@pytest.mark.filterwarnings("ignore")  # what torch's older exporter says about itself
@pytest.mark.parametrize("name", MODELS)
def test_optimums_graph_has_the_contract_and_the_answers(name: str, tmp_path: Path) -> None:
    model: DecisionModel = MODELS[name]()
    path = export_with_optimum(model, tmp_path / "model.onnx")
    check_contract(ir.load(path), model)
    loaded = onnx.load(path)
    onnx.checker.check_model(loaded, full_check=True)
    assert [(each.domain, each.version) for each in loaded.opset_import] == [("", 18)]
    facts = ModelFacts(
        vocabulary=50, parallel=model.parallel, positions=40 if name == "bert" else None
    )
    runtime = OrtRuntime(path, OrtOptions(device="cpu", threads=1))
    report = verify(TorchRuntime(model), runtime, facts, get_precision("fp32").tolerance)
    assert report.batch_invariant


def test_both_spellings_of_a_config_are_the_same_encoder() -> None:
    new, old = (random_model(config) for config in (modernbert_config(), old_config()))
    for name, tensor in new.state_dict().items():
        assert np.array_equal(tensor, old.state_dict()[name]), name
