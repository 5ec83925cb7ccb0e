"""Logits to probabilities and confidence measures, for a whole batch at once."""

import math

import numpy as np

from drut.tensors import Bool, Float32


def softmax(logits: Float32, mask: Bool, temperature: Float32) -> Float32:
    """Softmax of `logits / temperature` over the real options of each row.

    Args:
        logits: [rows, options].
        mask: [rows, options], true for real options.
        temperature: [rows].

    Returns:
        [rows, options] in float32; 0 where `mask` is false.
    """
    scaled = np.where(mask, logits / temperature[:, None], np.float32(-np.inf))
    shifted = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    probabilities: Float32 = shifted / shifted.sum(axis=1, keepdims=True)
    return probabilities


def entropy_confidence(probabilities: Float32, options: int) -> float:
    """One minus the entropy as a share of its maximum: ``1 + sum(p ln p) / ln k``.

    Args:
        probabilities: [options] or longer; the first k count.
        options: k; with fewer than two options the confidence is 1.
    """
    if options < 2:
        return 1.0
    p = probabilities[:options].astype(np.float64)
    value = 1.0 + float((p * np.log(np.clip(p, 1e-12, 1.0))).sum()) / math.log(options)
    return min(1.0, max(0.0, value))


def first_action_probability(act_logits: Float32) -> Float32:
    """Softmax of the act head's first output: [rows, actions] to [rows]."""
    shifted = np.exp(act_logits - act_logits.max(axis=1, keepdims=True))
    first: Float32 = shifted[:, 0] / shifted.sum(axis=1)
    return first
