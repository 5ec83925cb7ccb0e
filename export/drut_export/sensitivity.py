"""Which matrix products have to stay in float32: by the measured effect on answers."""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Final

ALLOWED: Final = 0.005
"""Mean difference of a row's probabilities, on the texts of the probe, that int8 may cause."""

MOST_GROUPS: Final = 40
"""Groups that are measured one by one: each takes a session and some passes."""

_NUMBER: Final = re.compile(r"\.(\d+)\.")

Distance = Callable[[Collection[str]], float]


def choose_left_out(
    sizes: Mapping[str, int], distance: Distance, *, allowed: float = ALLOWED
) -> frozenset[str]:
    """Choose weights to leave out until the answers are as close as allowed.

    Nothing is left out if all of them together are close enough. Otherwise each group is measured
    alone, and those that move the answers most for their size go first. Effects add up like noise,
    by their squares; the result is measured again and further groups go while it is too far.

    Args:
        sizes: elements of each weight, in the graph's order.
        distance: how far answers move if all weights but those given compute in int8.
        allowed: the distance to reach.

    Returns:
        Names of the weights to leave out; all of them where nothing less is close enough.
    """
    left_out: set[str] = set()
    if distance(left_out) <= allowed:
        return frozenset()
    groups = group_weights(sizes)
    alone = [distance(set(sizes) - set(group)) ** 2 for group in groups]
    per_size = [
        effect / sum(sizes[name] for name in group)
        for group, effect in zip(groups, alone, strict=True)
    ]
    order = sorted(range(len(groups)), key=lambda index: -per_size[index])
    rest = sum(alone)
    for index in order:
        left_out |= set(groups[index])
        rest -= alone[index]
        if rest <= allowed**2 and distance(left_out) <= allowed:
            break
    return frozenset(left_out)


def group_weights(names: Collection[str], most: int = MOST_GROUPS) -> list[tuple[str, ...]]:
    """Group weights of one role in neighbouring layers: as few layers a group as `most` allows."""
    band = 1
    while len(groups := _bands(names, band)) > most and band < len(names):
        band += 1
    return groups


def _bands(names: Collection[str], band: int) -> list[tuple[str, ...]]:
    found: dict[tuple[str, int], list[str]] = defaultdict(list)
    for name in names:
        number = _NUMBER.search(name)
        layer = int(number[1]) // band if number else 0
        found[_NUMBER.sub(".*.", name, count=1), layer].append(name)
    return [tuple(group) for group in found.values()]
