"""Losses: cross-entropy with graded levels, agreement with similarities, the warm start."""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional as F

from drut.tensors import QTYPES
from starter.minilm import Embedder
from starter.model_data import Batch

SMOOTHING: Final = 0.04
LEVEL_SPREAD: Final = 0.45  # in levels
SIMILARITY_SCALE: Final = 25.0
OWN_SHARE: Final = 0.55  # of the model's own logits in the distillation target
AUXILIARY_SCALE: Final = 12.0


@dataclass(frozen=True, slots=True)
class Anchors:
    """Sentence embeddings of a batch: options [rows, options, width], states [rows, width]."""

    options: Tensor
    states: Tensor

    def similarities(self) -> Tensor:
        """Cosine of every option with its state, float32 [rows, options]."""
        return torch.einsum("rkd,rd->rk", self.options, self.states)


def anchors(batch: Batch, embedder: Embedder) -> Anchors:
    """Look up the embeddings of a batch's anchors and cores; padded options are zero."""
    states = embedder.matrix([example.core for example in batch.examples])
    options = torch.zeros(*batch.markers.shape, states.shape[-1])
    for row, example in enumerate(batch.examples):
        options[row, : len(example.anchors)] = embedder.matrix(example.anchors)
    return Anchors(options, states)


def answer_loss(logits: Tensor, batch: Batch) -> Tensor:
    """Loss against the right answers, float32 [rows].

    Choice and noul: smoothed cross-entropy. Score: cross-entropy with a bell of levels around the
    right one, plus the ranked probability score, which charges for distance.
    """
    real = batch.marker_mask.float()
    count = real.sum(dim=1).clamp(min=2)
    log_shares = logits.log_softmax(dim=-1)
    is_score = batch.qtype == QTYPES["score"]
    right = F.one_hot(batch.answer, logits.shape[1]).float()
    smoothed = right * (1 - SMOOTHING) + SMOOTHING * real / count[:, None]
    target = torch.where(is_score[:, None], _bell(batch.answer, real), smoothed)
    cross_entropy = -(target * log_shares * real).sum(dim=1)
    gap = log_shares.exp().cumsum(dim=1) - target.cumsum(dim=1)
    ranked = (gap.square() * real).sum(dim=1) / (count - 1)
    return cross_entropy + is_score.float() * ranked


def similarity_loss(logits: Tensor, similarities: Tensor, batch: Batch) -> Tensor:
    """Divergence from a mix of the model's own answer and the encoder's similarities, [rows]."""
    target = OWN_SHARE * logits.detach() + (1 - OWN_SHARE) * SIMILARITY_SCALE * similarities
    target = target.masked_fill(~batch.marker_mask, -1e4)
    log_target = target.log_softmax(dim=-1)
    return (log_target.exp() * (log_target - logits.log_softmax(dim=-1))).sum(dim=1)


def regression_loss(hidden: Tensor, known: Anchors, batch: Batch) -> Tensor:
    """How far marker states are from option embeddings and [CLS] is from the state's; scalar."""
    marked = _markers(hidden, batch)
    misses = (1 - F.cosine_similarity(marked, known.options, dim=-1)) * batch.marker_mask
    markers = misses.sum() / batch.marker_mask.sum()
    return markers + (1 - F.cosine_similarity(hidden[:, 0], known.states, dim=-1)).mean()


def auxiliary_loss(hidden: Tensor, batch: Batch) -> Tensor:
    """Answer loss of two plain cosines: markers with the state's mean and with [CLS]; scalar."""
    marked = _markers(hidden, batch)
    inside = batch.state_mask.float()[..., None]
    mean = (hidden * inside).sum(dim=1) / inside.sum(dim=1).clamp(min=1)
    losses = []
    for state in (mean, hidden[:, 0]):
        logits = AUXILIARY_SCALE * F.cosine_similarity(marked, state[:, None], dim=-1)
        logits = logits.masked_fill(~batch.marker_mask, -1e4)
        losses.append(masked_mean(answer_loss(logits, batch), ~batch.soft))
    return 0.5 * (losses[0] + losses[1])


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the rows of the mask; zero if there is none."""
    return (values * mask).sum() / mask.sum().clamp(min=1)


def _bell(answer: Tensor, real: Tensor) -> Tensor:
    levels = torch.arange(real.shape[1])[None].float()
    bell = torch.exp(-((levels - answer[:, None]) ** 2) / (2 * LEVEL_SPREAD**2)) * real
    return bell / bell.sum(dim=1, keepdim=True)


def _markers(hidden: Tensor, batch: Batch) -> Tensor:
    index = batch.markers[..., None].expand(-1, -1, hidden.shape[-1])
    return hidden.gather(1, index)
