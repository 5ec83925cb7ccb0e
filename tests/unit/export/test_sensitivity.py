from collections.abc import Collection

from drut_export.sensitivity import choose_left_out, group_weights

EFFECTS = {"a.0.x": 0.001, "a.1.x": 0.01, "a.2.x": 0.002, "head": 0.003}
SIZES = dict.fromkeys(EFFECTS, 100)


class Measured:
    """Effects that add up by their squares, and how often they were asked for."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, left_out: Collection[str]) -> float:
        self.calls += 1
        return float(sum(e * e for n, e in EFFECTS.items() if n not in left_out) ** 0.5)


def test_nothing_is_left_out_where_all_is_close_enough() -> None:
    measured = Measured()
    assert choose_left_out(SIZES, measured, allowed=0.02) == frozenset()
    assert measured.calls == 1


def test_the_weight_with_the_largest_effect_goes_first_and_no_more_than_needed() -> None:
    assert choose_left_out(SIZES, Measured(), allowed=0.005) == {"a.1.x"}
    assert choose_left_out(SIZES, Measured(), allowed=0.0025) == {"a.1.x", "head"}


def test_a_large_weight_is_kept_longer_than_a_small_one_of_the_same_effect() -> None:
    sizes = {**SIZES, "a.1.x": 100_000}
    assert choose_left_out(sizes, Measured(), allowed=0.0101) == {"head", "a.2.x"}


def test_all_go_where_nothing_less_is_close_enough() -> None:
    assert choose_left_out(SIZES, Measured(), allowed=0.0) == set(SIZES)


def test_neighbouring_layers_are_grouped_until_there_are_few_enough_groups() -> None:
    names = [f"layers.{number}.{role}" for number in range(8) for role in ("up", "down")]
    assert len(group_weights(names, most=16)) == 16
    groups = group_weights(names, most=8)
    assert groups[0] == ("layers.0.up", "layers.1.up")
    assert sorted(name for group in groups for name in group) == sorted(names)
    assert len(groups) == 8
