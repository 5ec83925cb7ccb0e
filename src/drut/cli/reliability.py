"""Reliability diagrams as SVG, drawn by hand: accuracy by confidence, before and after."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from drut.decoding.fitting import Reliability

SIDE: Final = 240  # pixels of a plot's square
COUNTS: Final = 44  # height of the counts below it
LEFT, TOP, RIGHT, BOTTOM = 64, 84, 24, 16
BETWEEN: Final = 84  # from one plot to the next in a row
ROW: Final = SIDE + COUNTS + 104
TICKS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
INK, GRID, BAR, GAP = "#222222", "#dddddd", "#3b6ea5", "#b3261e"


@dataclass(frozen=True, slots=True)
class Panel:
    """One row of the picture: the same records before and after."""

    name: str
    before: Reliability
    after: Reliability


def draw_reliability(panels: Sequence[Panel], *, title: str) -> str:
    """Draw two plots per panel: share of right answers by confidence, with counts below.

    Where a bar ends below the diagonal, the answers of that confidence are too sure of themselves.

    Args:
        panels: at least one.
        title: heading, plain text.
    """
    # XML has no form for control characters, which a file's name may hold.
    title = "".join(character if character.isprintable() else "?" for character in title)
    width = LEFT + 2 * SIDE + BETWEEN + RIGHT
    height = TOP + len(panels) * ROW + BOTTOM
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="12" fill="{INK}">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        _text(LEFT, 26, title, size=15, anchor="start", bold=True),
        *_legend(),
    ]
    for index, panel in enumerate(panels):
        top = TOP + index * ROW + 28
        for column, (when, seen) in enumerate((("before", panel.before), ("after", panel.after))):
            left = LEFT + column * (SIDE + BETWEEN)
            lines += _plot((left, top), seen, f"{panel.name}, {when}: ECE {seen.error:.3f}")
    return "\n".join([*lines, "</svg>"]) + "\n"


def _legend() -> Iterator[str]:
    y = 46
    yield f'<rect x="{LEFT}" y="{y - 10}" width="12" height="12" fill="{BAR}"/>'
    yield _text(LEFT + 18, y, "share of right answers", anchor="start")
    yield (
        f'<rect x="{LEFT + 170}" y="{y - 10}" width="12" height="12" fill="{GAP}" '
        f'fill-opacity="0.25" stroke="{GAP}"/>'
    )
    yield _text(LEFT + 188, y, "gap to the mean confidence", anchor="start")
    yield _text(LEFT, y + 20, "The dashed line is perfect calibration.", anchor="start")


def _plot(corner: tuple[int, int], seen: Reliability, heading: str) -> Iterator[str]:
    """One square of bars with axes, and the counts below it."""
    left, top = corner
    bottom = top + SIDE
    yield _text(left, top - 10, heading, anchor="start", bold=True)
    for tick in TICKS:
        x, y = left + tick * SIDE, bottom - tick * SIDE
        yield _line((left, y), (left + SIDE, y), GRID)
        yield _text(left - 8, y + 4, f"{tick:g}", anchor="end")
        yield _text(x, bottom + COUNTS + 24, f"{tick:g}")
    yield from _bars(corner, seen)
    yield _line((left, bottom), (left + SIDE, top), INK, dashed=True)
    yield _line((left, top), (left, bottom), INK)
    yield _line((left, bottom), (left + SIDE, bottom), INK)
    yield from _counts((left, bottom + 8), seen)
    total = int(seen.counts.sum())
    yield _text(left + SIDE / 2, bottom + COUNTS + 42, f"confidence ({total:,} answers)")
    x, y = left - 42, top + SIDE / 2
    yield f'<g transform="rotate(-90 {x} {y:g})">{_text(x, y, "share right")}</g>'


def _bars(corner: tuple[int, int], seen: Reliability) -> Iterator[str]:
    left, top = corner
    bins = len(seen.counts)
    wide = SIDE / bins
    for index in range(bins):
        if not seen.counts[index]:
            continue
        right, sure = float(seen.accuracy[index]), float(seen.confidence[index])
        x = left + index * wide + 1
        yield _rect((x, top + SIDE * (1 - right)), (wide - 2, SIDE * right), f'fill="{BAR}"')
        low, high = min(right, sure), max(right, sure)
        yield _rect(
            (x, top + SIDE * (1 - high)),
            (wide - 2, SIDE * (high - low)),
            f'fill="{GAP}" fill-opacity="0.25" stroke="{GAP}"',
        )


def _counts(corner: tuple[int, int], seen: Reliability) -> Iterator[str]:
    """Bars of how many answers fall into each bin, the fullest as high as there is room."""
    left, top = corner
    most = max(1, int(seen.counts.max()))
    wide = SIDE / len(seen.counts)
    for index, number in enumerate(seen.counts):
        tall = COUNTS * int(number) / most
        if tall:
            place = (left + index * wide + 1, top + COUNTS - tall)
            yield _rect(place, (wide - 2, tall), f'fill="{INK}" fill-opacity="0.45"')
    yield _line((left, top + COUNTS), (left + SIDE, top + COUNTS), INK)
    yield _text(left - 8, top + 10, f"{most:,}", anchor="end")


def _rect(corner: tuple[float, float], size: tuple[float, float], style: str) -> str:
    x, y = corner
    return f'<rect x="{x:.2f}" y="{y:.2f}" width="{size[0]:.2f}" height="{size[1]:.2f}" {style}/>'


def _line(
    start: tuple[float, float], end: tuple[float, float], colour: str, *, dashed: bool = False
) -> str:
    dashes = ' stroke-dasharray="5 4"' if dashed else ""
    return (
        f'<line x1="{start[0]:.2f}" y1="{start[1]:.2f}" x2="{end[0]:.2f}" y2="{end[1]:.2f}" '
        f'stroke="{colour}"{dashes}/>'
    )


def _text(
    x: float, y: float, text: str, *, anchor: str = "middle", bold: bool = False, size: int = 12
) -> str:
    style = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"{style}>'
        f"{escape(text)}</text>"
    )
