"""Position and option ids of the parallel layout, in which options do not see each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from drut.tensors import Int64


@dataclass(frozen=True, slots=True)
class ParallelLayout:
    """Two ids per token of one sequence."""

    position_ids: Int64  # [tokens]; every option starts at the position of the first
    option_ids: Int64  # [tokens]; i + 1 inside option i, else 0


def parallel_layout(markers: Sequence[int], head_length: int, length: int) -> ParallelLayout:
    """Lay the options of a sequence side by side.

    Args:
        markers: position of every option's marker, ascending.
        head_length: tokens of the head; its last one is the separator behind the options.
        length: tokens of the whole, uncut sequence.
    """
    positions = np.arange(length, dtype=np.int64)
    option_ids = np.zeros(length, np.int64)
    if not markers:
        return ParallelLayout(positions, option_ids)
    start, end = markers[0], head_length - 1
    bounds = [*markers, end]
    longest = 0
    for index, (first, after) in enumerate(pairwise(bounds)):
        positions[first:after] = start + np.arange(after - first)
        option_ids[first:after] = index + 1
        longest = max(longest, after - first)
    positions[end:] = start + longest + np.arange(length - end)
    return ParallelLayout(positions, option_ids)
