"""Bar charts and curves on log axes as SVG, drawn by hand: no plotting library for two pictures."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from math import ceil, floor, log10
from typing import Final

WIDTH: Final = 760
LEFT, RIGHT = 190, 700
INK, GRID, LIMIT = "#222222", "#dddddd", "#b3261e"
COLOURS: Final = ("#7a7a7a", "#b08d57", "#a5683b", "#3b6ea5", "#2f8f6b", "#7a5ca5")
ROW: Final = 22

Bars = Mapping[str, Mapping[str, float]]
"""By group, then by variant."""


def bars(
    title: str, groups: Bars, unit: str, targets: Mapping[str, Mapping[str, float]] | None = None
) -> str:
    """Horizontal bars; a red stroke marks a target of that bar.

    Args:
        title: heading, plain text.
        groups: lengths by group and variant, none below zero.
        unit: behind every number.
        targets: by group and variant.
    """
    variants = list(dict.fromkeys(name for group in groups.values() for name in group))
    marks = [mark for group in (targets or {}).values() for mark in group.values()]
    top = max([value for group in groups.values() for value in group.values()] + marks + [1e-9])
    lines: list[str] = []
    y = 52.0
    for name, group in groups.items():
        lines.append(_text(16, y + 4, name, anchor="start", weight="bold"))
        y += ROW
        for variant, value in group.items():
            colour = COLOURS[variants.index(variant) % len(COLOURS)]
            mark = (targets or {}).get(name, {}).get(variant)
            lines += _bar(y, variant, value, top, colour, unit)
            if mark is not None:
                x = _along(mark, top)
                lines.append(f'<path d="M{x:.1f} {y - 10:.1f}v18" stroke="{LIMIT}"/>')
            y += ROW
        y += 8
    return _picture(title, y, lines)


def _along(value: float, top: float) -> float:
    return LEFT + value / top * (RIGHT - 60 - LEFT)


def _bar(y: float, variant: str, value: float, top: float, colour: str, unit: str) -> Iterator[str]:
    x = _along(value, top)
    yield _text(LEFT - 8, y + 4, variant, anchor="end")
    yield (f'<rect x="{LEFT}" y="{y - 7:.1f}" width="{x - LEFT:.1f}" height="14" fill="{colour}"/>')
    yield _text(x + 6, y + 4, f"{value:.3g}{unit}", anchor="start")


def curves(title: str, lines_of: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> str:
    """Curves on two log axes, each named at its end.

    Args:
        title: heading, plain text.
        lines_of: sizes and values by name, all above zero.
    """
    xs = [x for sizes, _ in lines_of.values() for x in sizes]
    ys = [y for _, values in lines_of.values() for y in values]
    box = (_decades(xs), _decades(ys))
    lines = [*_axes(box)]
    for number, (name, (sizes, values)) in enumerate(lines_of.items()):
        colour = COLOURS[number * 3 % len(COLOURS)]
        points = [_point(x, y, box) for x, y in zip(sizes, values, strict=True)]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        lines.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        lines += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
        legend = 60 + 18 * number
        lines.append(f'<rect x="76" y="{legend - 9}" width="10" height="10" fill="{colour}"/>')
        lines.append(_text(92, legend, name, anchor="start"))
    return _picture(title, 380, lines)


def _decades(values: Sequence[float]) -> tuple[int, int]:
    low, high = floor(log10(min(values))), ceil(log10(max(values)))
    return low, max(high, low + 1)


Box = tuple[tuple[int, int], tuple[int, int]]


def _point(x: float, y: float, box: Box) -> tuple[float, float]:
    (left, right), (bottom, top) = box
    across = (log10(x) - left) / (right - left)
    up = (log10(y) - bottom) / (top - bottom)
    return 64 + across * (RIGHT - 64), 340 - up * 290


def _axes(box: Box) -> Iterator[str]:
    (left, right), (bottom, top) = box
    for power in range(bottom, top + 1):
        _, y = _point(10.0**left, 10.0**power, box)
        yield f'<path d="M64 {y:.1f}H{RIGHT}" stroke="{GRID}"/>'
        yield _text(58, y + 4, f"{10.0**power:g}", anchor="end")
    for power in range(left, right + 1):
        x, _ = _point(10.0**power, 10.0**bottom, box)
        yield f'<path d="M{x:.1f} 340v5" stroke="{INK}"/>'
        yield _text(x, 358, f"{10**power:g}")


def _picture(title: str, height: float, lines: Sequence[str]) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
            f'width="{WIDTH}" height="{height:.0f}" role="img" font-family="sans-serif" '
            f'font-size="12" fill="{INK}">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{WIDTH}" height="{height:.0f}" fill="white"/>',
            f'<text x="16" y="26" font-size="15" font-weight="bold">{escape(title)}</text>',
            *lines,
            "</svg>",
            "",
        ]
    )


def _text(x: float, y: float, text: str, *, anchor: str = "middle", weight: str = "") -> str:
    bold = f' font-weight="{weight}"' if weight else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{bold}>{escape(text)}</text>'
