"""Medians, spreads, ratios and growth exponents of measured seconds."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which that share lies, between neighbours by interpolation."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and quartiles."""
    return {
        "median": statistics.median(values),
        "q1": quantile(values, 0.25),
        "q3": quantile(values, 0.75),
        "n": len(values),
    }


def ratio(peer: Mapping[str, Any], own: Mapping[str, Any]) -> float:
    """How many times less `own` takes, by medians."""
    return float(peer["median"]) / float(own["median"])


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Slope of the least-squares line through the logarithms: 1 is linear, 2 is quadratic.

    Raises:
        ValueError: fewer than two different sizes, or something that is not above zero.
    """
    if len(set(sizes)) < 2 or min(*sizes, *values) <= 0:
        raise ValueError("a growth exponent needs two different sizes, and all values above zero")
    across, up = [math.log(size) for size in sizes], [math.log(value) for value in values]
    middle_x, middle_y = statistics.fmean(across), statistics.fmean(up)
    moved = sum((x - middle_x) * (y - middle_y) for x, y in zip(across, up, strict=True))
    return moved / sum((x - middle_x) ** 2 for x in across)


def agreement(
    own: Sequence[Mapping[str, Mapping[str, float]]],
    peer: Sequence[Mapping[str, Mapping[str, float]]],
) -> dict[str, float]:
    """Share of equal decisions, and the largest difference of a probability.

    Raises:
        ValueError: the two did not answer the same questions with the same options.
    """
    equal = count = 0
    largest = 0.0
    for mine, theirs in zip(own, peer, strict=True):
        if mine.keys() != theirs.keys():
            raise ValueError("the engines answered different questions")
        for name, probabilities in mine.items():
            others = theirs[name]
            if probabilities.keys() != others.keys():
                raise ValueError(f"the engines answered {name!r} with different options")
            count += 1
            equal += max(probabilities, key=probabilities.__getitem__) == max(
                others, key=others.__getitem__
            )
            apart = (abs(value - others[option]) for option, value in probabilities.items())
            largest = max(largest, *apart)
    return {"equal": equal / count if count else 1.0, "largest": largest, "answers": count}
