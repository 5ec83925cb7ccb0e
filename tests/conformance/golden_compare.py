"""Compares what drut answers with what upstream answered, field by field."""

from collections.abc import Iterator
from typing import Any

ROUNDING = 1.01e-4
"""A four-digit number may differ by one in the last digit where a float sits on the edge."""


def differences(got: Any, want: Any, path: str = "") -> Iterator[str]:
    """Yield one line per difference; floats may differ by the last digit."""
    if isinstance(want, dict):
        # What upstream does not report: the tokens of every single question.
        surplus = set(got) - set(want) - ({"questions"} if path.endswith("/usage") else set())
        if surplus or set(want) - set(got):
            yield f"{path}: keys {list(got)} instead of {list(want)}"
            return
        if [key for key in got if key in want] != list(want):
            yield f"{path}: key order {list(got)} instead of {list(want)}"
        for key in want:
            yield from differences(got[key], want[key], f"{path}/{key}")
    elif isinstance(want, list):
        if len(got) != len(want):
            yield f"{path}: {len(got)} entries instead of {len(want)}"
            return
        for index, (mine, theirs) in enumerate(zip(got, want, strict=True)):
            yield from differences(mine, theirs, f"{path}/{index}")
    elif isinstance(want, float):
        if type(got) is not float or abs(got - want) > ROUNDING:
            yield f"{path}: {got!r} instead of {want!r}"
    elif got != want or type(got) is not type(want):
        yield f"{path}: {got!r} instead of {want!r}"
