"""Training in one run: warm start from similarities, answers, then answers with similarities."""

import argparse
import json
import math
import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from drut.tensors import QTYPES
from drut_export.modeling import DecisionModel, gather
from starter import evalsets, objective
from starter.bank import HERE, bank_files, load_schemas, sample_texts, usable
from starter.checkpoint import WORD_EMBEDDINGS, Parts, new_model, write_parts
from starter.examples import Example
from starter.generate import Generator
from starter.metrics import KINDS, Array, fit_temperature, of_kind, shares, summarise
from starter.minilm import Embedder, load_tokenizer
from starter.model_data import Batch, Encoder, Row, bucketed
from starter.similar import EmbeddedRelations
from starter.vocabulary import choose_tokens, count_tokens, unchanged_share, wordnet_texts
from starter.wordnet import load_wordnet

BUILD_DIR: Final = HERE / "build"
LONGEST_ROW: Final = 256
POOL: Final = 2048
WARM_EXAMPLES: Final = 10_000
WARM_WEIGHT: Final = 6.0
KEPT_WEIGHT: Final = 0.5  # of the warm start's loss on choice questions ever after
AUXILIARY_WEIGHT: Final = 0.5
AGREE_FROM: Final = 15_000  # examples before similarities join the answers
SOFT_SHARE: Final = 0.15  # of the examples from then on
# Where an answer is known it must outweigh the similarities, which are often wrong about it.
AGREEMENT_WITH_ANSWER: Final = 0.10
STEPS_OF_RISE: Final = 60
LEAST_RATE: Final = 0.02
AVERAGING: Final = 0.99
HEAD_FACTOR: Final = 2.5
BETAS: Final = (0.9, 0.98)  # forgets the large gradients of the warm start within 50 steps


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of a run. It ends after `examples` or `minutes`, whichever comes first."""

    examples: int = 204_000
    minutes: float = 600.0
    rate: float = 2e-4
    tokens: int = 1500  # in a batch, padding included
    seed: int = 0
    threads: int = 2
    float32: bool = False
    snapshot_minutes: float = 5.0
    build: Path = BUILD_DIR
    resume: bool = False


@dataclass(slots=True)
class Setup:
    """What a run works with."""

    model: DecisionModel
    parts: Parts
    encoder: Encoder
    generator: Generator
    embedder: Embedder
    held_out: list[Example]


@dataclass(slots=True)
class Progress:
    """Where a run stands; saved with every snapshot."""

    seen: int = 0
    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best: float = math.inf


def prepare(options: Options) -> Setup:
    """Load the bank, WordNet, the encoder and the held-out schemas used to choose a model."""
    torch.manual_seed(options.seed)
    random.seed(options.seed)
    torch.set_num_threads(options.threads)
    schemas = usable(load_schemas(bank_files()))
    net = load_wordnet()
    full = load_tokenizer()
    counts = count_tokens(full, sample_texts(schemas), wordnet_texts(net))
    kept = choose_tokens(full.get_vocab(), counts)
    model, parts = new_model(kept)
    write_parts(options.build, parts)
    small = parts.build_tokenizer()
    held_out = evalsets.schema_items(evalsets.DEVELOPMENT)
    same = unchanged_share(full, small, [item.state for item in held_out])
    print(f"{len(schemas)} schemas, {len(kept)} tokens, {same:.3f} of held-out words as before")
    embedder = Embedder()
    relations = EmbeddedRelations(schemas, embedder, options.seed)
    generator = Generator(schemas, options.seed + 1, relations, net)
    return Setup(model, parts, Encoder(small, LONGEST_ROW), generator, embedder, held_out)


class Trainer:
    """One run over a setup."""

    def __init__(self, setup: Setup, options: Options) -> None:
        self.setup = setup
        self.options = options
        self.progress = Progress()
        self.model = setup.model
        frozen = self.model.encoder.get_parameter(WORD_EMBEDDINGS)
        frozen.requires_grad_(False)
        self.trained = {k: p for k, p in self.model.named_parameters() if p.requires_grad}
        self.average = {name: p.detach().clone() for name, p in self.trained.items()}
        self.optimiser = torch.optim.AdamW(
            self._groups(), betas=BETAS, weight_decay=0.01, fused=True
        )
        self._shuffle = random.Random(options.seed + 2)
        self._loss, self._accuracy = 0.0, 0.0
        options.build.mkdir(parents=True, exist_ok=True)
        if options.resume:
            self._restore()

    def run(self) -> None:
        """Train to the end of the schedule; snapshots on the way and at the end."""
        clock, saved = time.monotonic() - self.progress.seconds, self.progress.seconds
        for batch in self._batches():
            self._step(batch)
            self.progress.seconds = time.monotonic() - clock
            if self.progress.step % 50 == 0:
                self._report()
            if self.progress.seconds - saved > 60 * self.options.snapshot_minutes:
                self.snapshot()
                saved = self.progress.seconds
            if self._done() >= 1:
                break
        self.snapshot()

    def snapshot(self) -> None:
        """Save the run's state, and the averaged weights if they are the best so far."""
        loss, figures = self._assess()
        progress = self.progress
        record = {"loss": round(loss, 4), **figures, **asdict(progress)}
        print(json.dumps(record), flush=True)
        if loss < progress.best:
            progress.best = loss
            self._save("best.pt", {"weights": self._averaged(), "record": record})
        state = {
            "progress": asdict(progress),
            "trained": {name: p.detach() for name, p in self.trained.items()},
            "average": self.average,
            "optimiser": self.optimiser.state_dict(),
            "record": record,
        }
        self._save("last.pt", state)

    def _groups(self) -> list[dict[str, Any]]:
        body = [p for name, p in self.trained.items() if name.startswith("encoder.")]
        head = [p for name, p in self.trained.items() if not name.startswith("encoder.")]
        rate = self.options.rate
        return [
            {"params": body, "lr": rate, "base": rate},
            {"params": head, "lr": rate * HEAD_FACTOR, "base": rate * HEAD_FACTOR},
        ]

    def _done(self) -> float:
        by_examples = self.progress.seen / self.options.examples
        return max(by_examples, self.progress.seconds / (60 * self.options.minutes))

    def _batches(self) -> Iterator[Batch]:
        setup = self.setup
        while True:
            examples = [self._draw() for _ in range(POOL)]
            setup.embedder.learn(
                text for e in examples if self._is_compared(e) for text in (e.core, *e.anchors)
            )
            rows = [row for row in setup.encoder.rows(examples) if _is_whole(row)]
            for batch in bucketed(rows, self.options.tokens, self._shuffle):
                yield setup.encoder.collate(batch)

    def _draw(self) -> Example:
        generator = self.setup.generator
        soft = self.progress.seen >= AGREE_FROM and generator.rng.random() < SOFT_SHARE
        return generator.similarity() if soft else generator.sample()

    def _is_compared(self, example: Example) -> bool:
        return self.progress.seen < AGREE_FROM or example.kind == "choice"

    def _step(self, batch: Batch) -> None:
        rise = min(1.0, (self.progress.step + 1) / STEPS_OF_RISE)
        fall = max(LEAST_RATE, 0.5 * (1 + math.cos(math.pi * min(1.0, self._done()))))
        for group in self.optimiser.param_groups:
            group["lr"] = group["base"] * rise * fall
        self.model.train()
        loss, logits = self._losses(batch)
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(list(self.trained.values()), 1.0)
        self.optimiser.step()
        self._follow()
        hard = ~batch.soft
        hits = objective.masked_mean((logits.argmax(dim=1) == batch.answer).float(), hard).item()
        self._loss += 0.02 * (loss.item() - self._loss)
        self._accuracy += 0.02 * (hits - self._accuracy)
        self.progress.seen += len(batch.examples)
        self.progress.tokens += int(batch.attention.sum())
        self.progress.step += 1

    def _losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss to minimise, and the logits."""
        hidden, logits = forward(self.model, batch, amp=not self.options.float32)
        answers = objective.answer_loss(logits, batch)
        seen = self.progress.seen
        if seen < AGREE_FROM:
            loss = objective.masked_mean(answers, ~batch.soft)
        else:
            loss = self._answers_and_similarities((hidden, logits), answers, batch)
        auxiliary = AUXILIARY_WEIGHT * max(0.0, 1 - 1.5 * self._done())
        if auxiliary > 0:
            loss = loss + auxiliary * objective.auxiliary_loss(hidden, batch)
        if seen < WARM_EXAMPLES:
            known = objective.anchors(batch, self.setup.embedder)
            weight = WARM_WEIGHT * (1 - seen / WARM_EXAMPLES)
            loss = loss + weight * objective.regression_loss(hidden, known, batch)
        return loss, logits

    def _answers_and_similarities(
        self, outputs: tuple[Tensor, Tensor], answers: Tensor, batch: Batch
    ) -> Tensor:
        hidden, logits = outputs
        compared = batch.qtype == QTYPES["choice"]
        rows = answers * ~batch.soft
        kept = logits.new_zeros(())
        if compared.any():
            picked = _chosen_rows(batch, compared)
            known = objective.anchors(picked, self.setup.embedder)
            agreement = objective.similarity_loss(logits[compared], known.similarities(), picked)
            weight = torch.where(picked.soft, 1.0, AGREEMENT_WITH_ANSWER)
            rows = rows.masked_scatter(compared, rows[compared] + weight * agreement)
            kept = KEPT_WEIGHT * objective.regression_loss(hidden[compared], known, picked)
        return rows.mean() + kept

    def _follow(self) -> None:
        decay = min(AVERAGING, (self.progress.step + 1) / (self.progress.step + 10))
        torch._foreach_lerp_(
            list(self.average.values()),
            [p.detach() for p in self.trained.values()],
            1 - decay,
        )

    def _averaged(self) -> dict[str, Tensor]:
        weights = {name: t.detach().clone() for name, t in self.model.state_dict().items()}
        return weights | {name: tensor.clone() for name, tensor in self.average.items()}

    def _assess(self) -> tuple[float, dict[str, float]]:
        """Mean NLL over the question types of the held-out schemas, and accuracies."""
        own = {name: p.detach().clone() for name, p in self.trained.items()}
        self.model.load_state_dict(self.average, strict=False)
        items = self.setup.held_out
        logits = all_logits(self.model, self.setup.encoder, items)
        self.model.load_state_dict(own, strict=False)
        losses: list[float] = []
        figures: dict[str, float] = {}
        for kind in KINDS:
            places = of_kind(items, kind)
            chosen, asked = [logits[i] for i in places], [items[i] for i in places]
            temperature = fit_temperature(chosen, [item.answer for item in asked])
            summary = summarise([shares(z, temperature) for z in chosen], asked)
            losses.append(summary.nll)
            figures[kind] = round(summary.accuracy, 3)
            figures[f"{kind}_T"] = temperature
        return sum(losses) / len(losses), figures

    def _report(self) -> None:
        p = self.progress
        print(
            f"step {p.step} seen {p.seen} loss {self._loss:.3f} accuracy {self._accuracy:.3f} "
            f"{p.tokens / p.seconds:.0f} tokens/s {p.seconds:.0f} s",
            flush=True,
        )

    def _save(self, name: str, content: Mapping[str, Any]) -> None:
        path = self.options.build / name
        scratch = path.with_suffix(".new")
        torch.save(dict(content), scratch)
        scratch.replace(path)

    def _restore(self) -> None:
        state = torch.load(self.options.build / "last.pt", weights_only=True)
        self.progress = Progress(**state["progress"])
        self.model.load_state_dict(state["trained"], strict=False)
        self.average = state["average"]
        self.optimiser.load_state_dict(state["optimiser"])
        for group in self.optimiser.param_groups:
            group["betas"] = BETAS
        # A fresh part of the stream, not the one already seen.
        self.setup.generator.rng.seed(self.options.seed + 1 + self.progress.seen)


def forward(model: DecisionModel, batch: Batch, *, amp: bool) -> tuple[Tensor, Tensor]:
    """The steps of the model's own forward, returning encoder states and logits in float32."""
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
        hidden = model.encode(batch.ids, batch.attention)
        decided = model.decide(hidden, batch.attention, batch.qtype)
        logits = model.score(gather(decided, batch.markers.clamp(min=0)), batch.marker_mask)
    return hidden.float(), logits


@torch.no_grad()
def all_logits(
    model: DecisionModel, encoder: Encoder, items: list[Example], *, amp: bool = True
) -> list[Array]:
    """Logits of each item's options, in the items' order."""
    model.eval()
    rows = encoder.rows(items)
    place = {id(row): number for number, row in enumerate(rows)}
    found: list[Array] = [np.empty(0)] * len(rows)
    for batch_rows in bucketed(rows, 4000, random.Random(0)):
        batch = encoder.collate(batch_rows)
        _, logits = forward(model, batch, amp=amp)
        for row, values in zip(batch_rows, logits.numpy(), strict=True):
            found[place[id(row)]] = values[: len(row.markers)].astype(np.float64)
    return found


def _chosen_rows(batch: Batch, chosen: Tensor) -> Batch:
    """The chosen rows of a batch."""
    keep = chosen.tolist()
    return Batch(
        ids=batch.ids[chosen],
        attention=batch.attention[chosen],
        markers=batch.markers[chosen],
        marker_mask=batch.marker_mask[chosen],
        state_mask=batch.state_mask[chosen],
        qtype=batch.qtype[chosen],
        answer=batch.answer[chosen],
        soft=batch.soft[chosen],
        examples=tuple(e for e, kept in zip(batch.examples, keep, strict=True) if kept),
    )


def _is_whole(row: Row) -> bool:
    """Whether the state was not cut: a cut one may lack what decides the answer."""
    return len(row.ids) < LONGEST_ROW


def parse_options(arguments: list[str] | None = None) -> Options:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    defaults = Options()
    parser.add_argument("--examples", type=int, default=defaults.examples)
    parser.add_argument("--minutes", type=float, default=defaults.minutes)
    parser.add_argument("--rate", type=float, default=defaults.rate)
    parser.add_argument("--tokens", type=int, default=defaults.tokens)
    parser.add_argument("--seed", type=int, default=defaults.seed)
    parser.add_argument("--threads", type=int, default=defaults.threads)
    parser.add_argument("--float32", action="store_true", help="no bfloat16; half as fast")
    parser.add_argument("--snapshot-minutes", type=float, default=defaults.snapshot_minutes)
    parser.add_argument("--build", type=Path, default=defaults.build)
    parser.add_argument("--resume", action="store_true", help="go on from the last snapshot")
    return Options(**vars(parser.parse_args(arguments)))


def main(arguments: list[str] | None = None) -> None:
    """Train and leave `best.pt` and `last.pt` in the build directory."""
    options = parse_options(arguments)
    setup = prepare(options)
    Trainer(setup, options).run()


if __name__ == "__main__":
    main()
