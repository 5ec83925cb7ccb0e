"""A histogram as SVG, drawn by hand: one picture is not worth a plotting library."""

from collections.abc import Iterator, Sequence
from html import escape
from math import log10
from typing import Final

from drut_export.verify_report import BINS, BINS_PER_DECADE, LOWEST_DECADE, bin_start

WIDTH: Final = 760
HEIGHT: Final = 380
LEFT, RIGHT, TOP, BOTTOM = 64, 744, 56, 312
ZERO_WIDTH: Final = 28
"""Pixels of the bar of differences that are nothing, or too small for the axis."""

GAP: Final = 24
INK, GRID, BAR, LIMIT = "#222222", "#dddddd", "#3b6ea5", "#b3261e"
TICKS: Final = 4


def draw_distribution(distribution: Sequence[int], *, limit: float, title: str) -> str:
    """Draw how often differences of each size occur, on a log axis.

    Args:
        distribution: counts as `drut_export.verify_report.distribution_of` returns them.
        limit: largest difference that is allowed, drawn as a line.
        title: heading, plain text.
    """
    total = sum(distribution)
    top = _round_up(max(*distribution, TICKS))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12" fill="{INK}">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="26" font-size="15" font-weight="bold">{escape(title)}</text>',
        *_counts_axis(top),
        *_sizes_axis(),
        *_bars(distribution, top),
        *_limit(limit),
        _text((LEFT + RIGHT) / 2, BOTTOM + 44, f"absolute difference, {total} probabilities"),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _x(exponent: float) -> float:
    """Place of ten to a power on the log axis."""
    start = LEFT + ZERO_WIDTH + GAP
    return start + (exponent - LOWEST_DECADE) / -LOWEST_DECADE * (RIGHT - start)


def _y(count: float, top: int) -> float:
    return BOTTOM - count / top * (BOTTOM - TOP)


def _counts_axis(top: int) -> Iterator[str]:
    for step in range(TICKS + 1):
        count = top * step // TICKS
        y = _y(count, top)
        yield f'<path d="M{LEFT} {y:.1f}H{RIGHT}" stroke="{GRID}"/>'
        yield _text(LEFT - 8, y + 4, str(count), anchor="end")


def _sizes_axis() -> Iterator[str]:
    yield f'<path d="M{LEFT} {BOTTOM}H{RIGHT}" stroke="{INK}"/>'
    yield _text(LEFT + ZERO_WIDTH / 2, BOTTOM + 18, "0")
    for exponent in range(LOWEST_DECADE, 1):
        yield f'<path d="M{_x(exponent):.1f} {BOTTOM}v5" stroke="{INK}"/>'
        yield _text(_x(exponent), BOTTOM + 18, f"1e{exponent}" if exponent else "1")


def _bars(distribution: Sequence[int], top: int) -> Iterator[str]:
    wide = (_x(0) - _x(LOWEST_DECADE)) / BINS
    for index, count in enumerate(distribution):
        if not count:
            continue
        x, width = (_x(bin_start(index)), wide - 1) if index else (LEFT, ZERO_WIDTH)
        y = min(_y(count, top), BOTTOM - 1.5)  # a single one must be seen beside thousands
        yield (
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{BOTTOM - y:.1f}" '
            f'fill="{BAR}"><title>{count} {_range(index)}</title></rect>'
        )


def _range(index: int) -> str:
    if not index:
        return f"below 1e{LOWEST_DECADE}"
    start = bin_start(index)
    return f"from {10**start:.1e} to {10 ** (start + 1 / BINS_PER_DECADE):.1e}"


def _limit(limit: float) -> Iterator[str]:
    x = _x(min(0.0, max(float(LOWEST_DECADE), log10(limit))))
    anchor = "end" if x > (LEFT + RIGHT) / 2 else "start"
    yield f'<path d="M{x:.1f} {TOP - 18}V{BOTTOM}" stroke="{LIMIT}" stroke-dasharray="5 3"/>'
    place = x - 6 if anchor == "end" else x + 6
    yield _text(place, TOP - 8, f"allowed: {limit:.2g}", anchor=anchor, fill=LIMIT)


def _text(x: float, y: float, text: str, *, anchor: str = "middle", fill: str = INK) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}">{text}</text>'


def _round_up(count: int) -> int:
    """The next number that `TICKS` divides and that is easy to read."""
    step = 1
    while step * TICKS < count:
        step = step * 2 if str(step)[0] in "15" else step * 5 // 2
    return step * TICKS
