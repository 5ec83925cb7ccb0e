"""From a snapshot to a checkpoint that drut reads as it was trained."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from starter import evalsets, evaluate, export, finish
from starter.answering import BundleAnswerer, CheckpointAnswerer, reordered
from starter.checkpoint import round_to_int8_grid, write_parts
from starter.examples import Example

import drut
from drut.checkpoint.opened import open_checkpoint
from drut_export.checkpoint_loading import load_model
from drut_export.torch_reference import TorchRuntime

RECORD = {"seen": 9, "step": 2, "tokens": 99, "seconds": 120.0, "loss": 0.5, "best": 0.6}


@pytest.fixture
def checkpoint(tiny_setup, bank_file, tmp_path, monkeypatch):
    """The tiny model finished, its temperatures fitted on the tiny bank."""
    monkeypatch.setattr(evalsets, "DEVELOPMENT", bank_file)
    build, target = tmp_path / "build", tmp_path / "checkpoint"
    write_parts(build, tiny_setup.parts)
    weights = tiny_setup.model.state_dict()
    weights["scorer.3.weight"] = weights["scorer.3.weight"] * 40  # overconfident
    torch.save({"weights": weights, "record": RECORD}, build / "best.pt")
    finish.finish(build, target)
    return target


def agent(directory):
    opened = open_checkpoint(directory)
    return drut.Agent(opened, runtime=TorchRuntime(load_model(directory, opened.config)))


def test_overconfidence_is_corrected(checkpoint):
    settings = json.loads((checkpoint / "rl_agent_config.json").read_text(encoding="utf-8"))
    assert all(1 <= temperature <= 5 for temperature in settings["temperature"])
    assert max(settings["temperature"]) > 1.5
    assert settings["training"]["seen"] == 9


def test_matrices_fit_into_eight_bits(checkpoint):
    weights = load_file(checkpoint / "model.safetensors")
    wide = [tensor for tensor in weights.values() if tensor.dim() == 2 and tensor.numel() >= 4096]
    assert wide
    for tensor in wide:
        steps = 127 * tensor / tensor.abs().amax(dim=1, keepdim=True).clamp(min=1e-9)
        assert torch.allclose(steps, steps.round(), atol=1e-3)


def test_rounding_moves_by_half_a_step_at_most():
    weight = torch.randn(64, 80, generator=torch.Generator().manual_seed(1))
    rounded = round_to_int8_grid({"w": weight})["w"]
    step = weight.abs().amax(dim=1, keepdim=True) / 127
    assert ((rounded - weight).abs() <= 0.5001 * step).all()
    assert not torch.equal(rounded, weight)


def test_licences_travel_with_the_checkpoint(checkpoint):
    assert "Apache License" in (checkpoint / "LICENSE").read_text(encoding="utf-8")
    notice = (checkpoint / "NOTICE").read_text(encoding="utf-8")
    assert "all-MiniLM-L6-v2" in notice
    assert "WordNet 3.0 Copyright" in notice


@pytest.mark.parametrize("turned", [False, True], ids=["natural order", "turned round"])
def test_drut_answers_as_the_training_code_does(checkpoint, tiny_setup, monkeypatch, turned):
    items = [
        *tiny_setup.held_out[::3],
        evalsets.make_item("choice", "Pick", [f"option {i}" for i in range(30)], 3, "x " * 90),
        evalsets.make_item(
            "choice", "Team?", ["a: about b", "Late (EU)"], 0, '{"text": "é [MASK]"}'
        ),
        evalsets.make_item("noul", "Is it so? " * 60, (), 1, "state " * 400),
    ]
    if turned:
        items = [reordered(item, range(len(item.options))[::-1]) for item in items]
    monkeypatch.setattr(drut, "load", lambda path, device: agent(path))
    expected = CheckpointAnswerer(checkpoint).probabilities(items)
    given = BundleAnswerer(checkpoint).probabilities(items)
    assert {item.kind for item in items} == {"choice", "score", "noul"}
    for item, right, found in zip(items, expected, given, strict=True):
        assert found == pytest.approx(right, abs=2e-4), item.instructions


class Fixed:
    """Answers every item with its first option, unless it was reshuffled."""

    def probabilities(self, items):
        return [self._of(item) for item in items]

    def _of(self, item: Example):
        place = item.order[0] if item.order else 0
        return np.eye(len(item.options))[place] * 0.6 + 0.4 / len(item.options)


@pytest.fixture
def report(monkeypatch, bank_file, tmp_path):
    monkeypatch.setattr(evalsets, "DEVELOPMENT", bank_file)
    monkeypatch.setattr(evalsets, "UNSEEN", bank_file)
    return evaluate.evaluate(Fixed(), baseline=False)


def test_every_order_but_the_natural_one_changes_the_answer(report):
    # Whatever stands first is answered: only orders that keep the first option keep the answer.
    assert report["sets"]["test_cases"]["noul"]["order_changes"] == 1
    assert 0.5 < report["sets"]["test_cases"]["choice"]["order_changes"] < 1


def test_missed_bars_are_reported(report):
    bars = {bar["name"]: bar for bar in report["bars"]}
    assert not bars["test cases, choice"]["met"]
    assert bars["test cases, choice"]["bar"] == "at least 0.85"
    assert not bars["unseen schemas, answers changed by order"]["met"]
    table = evaluate.as_markdown(report)
    assert "| test cases, choice | " in table
    assert table.count("**no**") == sum(not bar["met"] for bar in report["bars"])


def test_only_the_text_between_the_marks_is_replaced(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{evaluate.START}\nold\n{evaluate.END}\nafter\n", encoding="utf-8")
    evaluate.write_readme("new", readme)
    expected = f"before\n{evaluate.START}\nnew\n{evaluate.END}\nafter\n"
    assert readme.read_text(encoding="utf-8") == expected


def test_the_committed_readme_has_the_marks():
    text = evaluate.README.read_text(encoding="utf-8")
    assert text.count(evaluate.START) == text.count(evaluate.END) == 1


@pytest.fixture
def exporting(monkeypatch):
    """Stands in for the exporter, remembers the request, fails if told so."""
    from bundles import write_bundle
    from drut.checkpoint.bundle import read_bundle

    class Exporter:
        fails = False
        request = None

        def __call__(self, request, progress):
            self.request = request
            if self.fails:
                raise RuntimeError("no room")
            return read_bundle(write_bundle(request.repository, request.name, request.version))

    exporter = Exporter()
    monkeypatch.setattr(export, "export_checkpoint", exporter)
    return exporter


def test_a_new_bundle_takes_the_place_of_the_old_one(exporting, tmp_path):
    old = tmp_path / "starter" / "7"
    old.mkdir(parents=True)
    bundle = export.export(tmp_path / "checkpoint", tmp_path)
    assert bundle.directory == tmp_path / "starter" / "1"
    assert not old.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["starter"]
    assert export.size(bundle) > 1000
    assert exporting.request.precision == "int8-weights"
    assert exporting.request.source == (
        "starter (trained from sentence-transformers/all-MiniLM-L6-v2)"
    )


def test_the_old_bundle_stays_if_the_export_fails(exporting, tmp_path):
    old = tmp_path / "starter" / "1"
    old.mkdir(parents=True)
    exporting.fails = True
    with pytest.raises(RuntimeError, match="no room"):
        export.export(tmp_path / "checkpoint", tmp_path)
    assert old.is_dir()
