"""What operators count for, and that a pass counts once."""

from collections import Counter

import pytest
from benchmarks.operators import KINDS, REST, by_kind, kind_of, table


def event(operator: str, name: str, taken: int) -> dict:
    return {"name": f"{name}_kernel_time", "dur": taken, "args": {"op_name": operator}}


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        ("MatMulIntegerToFloat", "products in int8"),
        ("MatMul", "products in float32"),
        ("QuantizeLinear", "levels of tokens"),
        ("BiasGelu", "activation functions"),
        ("Gather", REST),
    ],
)
def test_an_operator_counts_for_its_kind(operator: str, kind: str) -> None:
    assert kind_of(operator) == kind


def test_no_operator_is_of_two_kinds() -> None:
    names = [name for _, kind in KINDS for name in kind]
    assert len(names) == len(set(names))


def test_every_operator_counts_with_the_median_of_its_passes_without_the_first() -> None:
    passes = [("a", 900), ("a", 10), ("a", 12), ("a", 11), ("b", 700), ("b", 1), ("b", 3), ("b", 2)]
    events = [event("MatMul", name, taken) for name, taken in passes]
    other = {"name": "model_run", "dur": 10_000}
    assert by_kind([*events, other], skip=1) == {"products in float32": 13}


def test_the_table_has_a_column_for_each_bundle() -> None:
    lines = table([("x", Counter({"attention": 500, REST: 1500})), ("y", Counter({REST: 7}))])
    (row,) = (line for line in lines.splitlines() if line.startswith("attention"))
    assert row.split() == ["attention", "0.50", "ms", "25.0%", "0.00", "ms", "0.0%"]
