"""Logits to probabilities and confidence measures, for many rows at once."""

import math

import numpy as np
from numpy.typing import NDArray

from drut.tensors import Float32


def softmax(logits: Float32, temperature: float | Float32) -> Float32:
    """Softmax of `logits / temperature`, row by row.

    Padding changes the order of summation and with it the last digit, so answers are decoded from
    rows that have none.

    Args:
        logits: [rows, options], minus infinity where a row has no such option.
        temperature: of all the rows, or of each: [rows, 1].

    Returns:
        [rows, options] in float32.
    """
    scaled = logits / np.asarray(temperature, np.float32)
    shifted = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    probabilities: Float32 = shifted / shifted.sum(axis=1, keepdims=True)
    return probabilities


def entropy_confidence(probabilities: Float32) -> NDArray[np.float64]:
    """One minus the entropy as a share of its maximum: ``1 + sum(p ln p) / ln k``.

    Args:
        probabilities: [rows, options]; with fewer than two options the confidence is 1.

    Returns:
        [rows], from 0 to 1.
    """
    options = probabilities.shape[1]
    if options < 2:
        return np.ones(len(probabilities))
    p = probabilities.astype(np.float64)
    entropy = (p * np.log(np.maximum(p, 1e-12))).sum(axis=1)
    confidence: NDArray[np.float64] = np.minimum(
        np.maximum(1.0 + entropy / math.log(options), 0.0), 1.0
    )
    return confidence


def first_action_probability(act_logits: Float32) -> Float32:
    """Softmax of the act head's first output: [rows, actions] to [rows]."""
    if act_logits.shape[1] == 1:  # the rule, and not worth four array operations
        return np.ones(len(act_logits), np.float32)
    shifted = np.exp(act_logits - act_logits.max(axis=1, keepdims=True))
    first: Float32 = shifted[:, 0] / shifted.sum(axis=1)
    return first
