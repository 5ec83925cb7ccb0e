"""The shipped bundle gives its checkpoint back."""

from pathlib import Path

import numpy as np
import pytest
from starter.export import NAME, REPOSITORY
from starter.restore import main

import drut
from drut.checkpoint.opened import open_checkpoint
from drut_export.checkpoint_loading import load_model
from drut_export.torch_reference import TorchRuntime

QUESTIONS = drut.preset("triage")
STATES = ["I was charged twice, refund me.", {"text": "It crashes on start."}, "Thanks! " * 40]


@pytest.fixture(scope="module")
def restored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("restored")
    main(["--output", str(directory)])
    return directory


def test_torch_answers_from_the_restored_checkpoint_as_the_bundle_does(restored: Path) -> None:
    checkpoint = open_checkpoint(restored)
    model = load_model(restored, checkpoint.config)
    with drut.load(REPOSITORY / NAME, "cpu") as shipped:
        expected = shipped.logits(STATES, QUESTIONS)
        again = drut.Agent(checkpoint, runtime=TorchRuntime(model)).logits(STATES, QUESTIONS)
    for name, logits in expected.items():
        np.testing.assert_allclose(again[name], logits, rtol=0, atol=1e-4)


def test_the_checkpoint_is_complete(restored: Path) -> None:
    assert {path.name for path in restored.iterdir()} == {
        "LICENSE",
        "NOTICE",
        "encoder",
        "model.safetensors",
        "rl_agent_config.json",
        "tokenizer",
    }
