"""A training run of twenty steps with a tiny random encoder."""

import json
import re

import pytest
import torch
from starter import objective
from starter.train import AGREE_FROM, Options, Trainer, all_logits, forward, parse_options

BATCH_TOKENS = 500


@pytest.fixture(autouse=True)
def small_pool(monkeypatch):
    monkeypatch.setattr("starter.train.POOL", 64)


@pytest.fixture
def options(tmp_path):
    """About twenty steps, at a rate that a tiny model needs."""
    return Options(examples=160, rate=0.02, tokens=BATCH_TOKENS, build=tmp_path / "build")


def weights(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def changed(before, after):
    return {name for name in before if not torch.equal(before[name], after[name])}


def fixed_batch(setup):
    generator = type(setup.generator)(setup.generator.choices, seed=77)
    return setup.encoder.collate(setup.encoder.rows([generator.choice() for _ in range(24)]))


@torch.no_grad()
def warm_loss(setup, batch):
    """How far the markers are from their options' embeddings."""
    hidden, _ = forward(setup.model.eval(), batch, amp=False)
    known = objective.anchors(batch, setup.embedder)
    return objective.regression_loss(hidden, known, batch).item()


def test_twenty_steps_warm_the_model_up(tiny_setup, options, capsys):
    batch = fixed_batch(tiny_setup)
    before, start = weights(tiny_setup.model), warm_loss(tiny_setup, batch)
    trainer = Trainer(tiny_setup, options)
    trainer.run()
    assert 15 <= trainer.progress.step <= 60
    assert trainer.progress.seen >= options.examples
    assert warm_loss(tiny_setup, batch) < 0.8 * start
    learnt = changed(before, weights(tiny_setup.model))
    assert learnt >= {
        "encoder.encoder.layer.0.attention.self.query.weight",
        "head.layers.0.linear1.weight",
        "type_emb.weight",
        "scorer.3.weight",
    }
    assert "encoder.embeddings.word_embeddings.weight" not in learnt
    record = json.loads(capsys.readouterr().out.splitlines()[-1].replace("Infinity", "0"))
    assert record["seen"] == trainer.progress.seen


def test_later_steps_learn_answers_and_similarities(tiny_setup, options):
    trainer = Trainer(tiny_setup, options)
    trainer.progress.seen = AGREE_FROM
    trainer.options = Options(
        examples=AGREE_FROM + 160, rate=0.02, tokens=BATCH_TOKENS, build=options.build
    )
    before = weights(tiny_setup.model)
    trainer.run()
    after = weights(tiny_setup.model)
    assert "scorer.3.weight" in changed(before, after)
    assert all(torch.isfinite(tensor).all() for tensor in after.values())


def test_a_run_goes_on_from_its_snapshot(tiny_setup, options):
    first = Trainer(tiny_setup, options)
    first.run()
    trained, average = weights(tiny_setup.model), dict(first.average)
    stream = [first.setup.generator.sample() for _ in range(20)]
    with torch.no_grad():
        for parameter in tiny_setup.model.parameters():
            parameter.add_(1.0)
    further = Options(
        examples=options.examples + 80,
        rate=0.02,
        tokens=BATCH_TOKENS,
        build=options.build,
        resume=True,
    )
    second = Trainer(tiny_setup, further)
    assert second.progress == first.progress
    frozen = "encoder.embeddings.word_embeddings.weight"
    assert changed(trained, weights(tiny_setup.model)) <= {frozen, "temperature"}
    assert all(torch.equal(second.average[name], average[name]) for name in average)
    moments = second.optimiser.state_dict()["state"].values()
    assert {int(moment["step"]) for moment in moments} == {first.progress.step}
    assert [second.setup.generator.sample() for _ in range(20)] != stream
    second.run()
    assert second.progress.seen >= further.examples
    assert changed(trained, weights(tiny_setup.model)) > {frozen}


def test_the_best_snapshot_holds_averaged_weights(tiny_setup, options):
    trainer = Trainer(tiny_setup, options)
    trainer.run()
    best = torch.load(options.build / "best.pt", weights_only=True)
    assert set(best["weights"]) == set(tiny_setup.model.state_dict())
    name = "head.layers.0.linear1.weight"
    assert torch.equal(best["weights"][name], trainer.average[name])
    assert not torch.equal(best["weights"][name], tiny_setup.model.state_dict()[name])
    trainer.progress.best = 0.0
    (options.build / "best.pt").unlink()
    trainer.snapshot()
    assert not (options.build / "best.pt").exists()


def test_assessing_leaves_the_trained_weights_alone(tiny_setup, options):
    trainer = Trainer(tiny_setup, options)
    with torch.no_grad():
        for tensor in trainer.average.values():
            tensor.add_(0.5)
    before = weights(tiny_setup.model)
    trainer.snapshot()
    assert changed(before, weights(tiny_setup.model)) == set()


def test_logits_come_in_the_items_order(tiny_setup):
    items = tiny_setup.held_out
    together = all_logits(tiny_setup.model, tiny_setup.encoder, items, amp=False)
    assert [len(logits) for logits in together] == [len(item.options) for item in items]
    for item, logits in list(zip(items, together, strict=True))[::5]:
        alone = all_logits(tiny_setup.model, tiny_setup.encoder, [item], amp=False)[0]
        assert logits == pytest.approx(alone, abs=1e-5)


def test_every_setting_can_be_given():
    options = parse_options(["--minutes", "3", "--snapshot-minutes", "1", "--resume", "--float32"])
    assert (options.minutes, options.snapshot_minutes) == (3.0, 1.0)
    assert options.resume
    assert options.float32
    assert re.fullmatch(r".*build", str(options.build))
