"""What a graph may need where an older server runs it: releases of Triton and their ONNX Runtime.

The table says what a release has at least; docs/export.md says where its lines come from, and
tests/slow/test_older_engines.py runs graphs in these versions of ONNX Runtime.
"""

import re
from dataclasses import dataclass
from typing import Final

from drut.errors import ExportError

PREFIX: Final = "triton:"


@dataclass(frozen=True, slots=True)
class GraphFormat:
    """Which ONNX a graph's file is written in."""

    opset: int
    ir_version: int
    made_for: str | None = None  # what it was chosen for, such as "triton:24.10"


PRESENT: Final = GraphFormat(opset=24, ir_version=10)
"""Attention became one operator in 23, but only with 24 does ONNX Runtime take every batch size."""

PORTABLE: Final = GraphFormat(opset=18, ir_version=8)
"""Attention in single steps; every release of the table reads it."""


@dataclass(frozen=True, slots=True)
class TritonRelease:
    """What the ONNX Runtime in Triton's image reads from one release on, at least."""

    since: tuple[int, int]  # year and month of the image's tag
    onnxruntime: str
    opset: int
    ir_version: int


RELEASES: Final = (
    TritonRelease((23, 12), "1.16.3", 19, 9),
    TritonRelease((24, 9), "1.19.2", 21, 10),
    TritonRelease((25, 3), "1.20.1", 21, 10),
)
"""Oldest first; what lies between two lines has at least what the older one says."""

LAST: Final = (26, 6)

_NAME: Final = re.compile(re.escape(PREFIX) + r"(\d\d)\.(0[1-9]|1[0-2])")


def format_for(name: str | None) -> GraphFormat:
    """The format of a graph that is to run in a release of Triton; None: the present one.

    Args:
        name: `triton:YY.MM`, after the tag of Triton's image.

    Raises:
        ExportError: no such release is known.
    """
    if name is None:
        return PRESENT
    release = _release(name)
    chosen = PRESENT if _reads(release, PRESENT) else PORTABLE
    return GraphFormat(chosen.opset, chosen.ir_version, name)


def known_names() -> str:
    """The names that `format_for` takes, for people."""
    first, last = (f"{PREFIX}{year}.{month:02}" for year, month in (RELEASES[0].since, LAST))
    return f"{first} to {last}, one a month"


def _release(name: str) -> TritonRelease:
    found = _NAME.fullmatch(name)
    tag = (int(found[1]), int(found[2])) if found else (0, 0)
    if not RELEASES[0].since <= tag <= LAST:
        raise ExportError(
            f"there is no {name!r} to export for; known are {known_names()}. Leave it out for the "
            f"present format, opset {PRESENT.opset}"
        )
    return [release for release in RELEASES if release.since <= tag][-1]


def _reads(release: TritonRelease, wanted: GraphFormat) -> bool:
    return release.opset >= wanted.opset and release.ir_version >= wanted.ir_version
