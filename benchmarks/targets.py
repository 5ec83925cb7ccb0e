"""What drut set out to reach, beside what was measured. A miss is reported, never an error."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Target:
    """A figure to reach, as a ratio to upstream on torch, or as a share of the floor.

    Args:
        name: what it is about.
        place: keys below a checkpoint's results, `VARIANT` standing for the variant.
        wanted: by variant, the least that is enough.
    """

    name: str
    place: tuple[str, ...]
    wanted: Mapping[str, float]


INT8, BF16, FP32 = "drut int8", "drut bf16", "drut fp32"
COLD: Final = ("cold", "VARIANT", "ratio")
TARGETS: Final = (
    Target(
        "64 states of mixed lengths",
        ("calls", "64 mixed lengths", "VARIANT", "ratio", "wall"),
        {INT8: 5, BF16: 5, FP32: 2.4},
    ),
    Target(
        "one short state",
        ("calls", "one short state", "VARIANT", "ratio", "wall"),
        {INT8: 3, BF16: 2.2},
    ),
    Target(
        "16 questions about one state of 400 tokens",
        ("calls", "16 questions, one long state", "VARIANT", "ratio", "wall"),
        {INT8: 3, BF16: 3},
    ),
    Target("32 callers, throughput", ("callers", "32", "VARIANT", "ratio"), {INT8: 5, BF16: 5}),
    Target("cold start to the first answer", (*COLD, "first_answer"), {INT8: 5, BF16: 5}),
    Target("resident memory", (*COLD, "resident"), {INT8: 4, BF16: 4}),
)
FLOORS: Final = {"fp32": 0.85, "int8": 0.75}


def judge(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every target that was measured: checkpoint, name, variant, wanted, measured, CPU, reached."""
    rows = []
    for checkpoint, results in found["checkpoints"].items():
        for target in TARGETS:
            for variant, wanted in target.wanted.items():
                measured = _at(results, target.place, variant)
                if measured is None:
                    continue
                cpu = None
                if target.place[-1] == "wall":
                    cpu = _at(results, (*target.place[:-1], "cpu"), variant)
                rows.append(_row(checkpoint, target.name, variant, wanted, measured) | {"cpu": cpu})
    for checkpoint, floors in found.get("floor", {}).items():
        for precision, wanted in FLOORS.items():
            if precision in floors:
                share = floors[precision]["share"]
                name = "matrix products' floor, 1 thread"
                rows.append(_row(checkpoint, name, f"drut {precision}", wanted, share))
    return rows


def _row(
    checkpoint: str, name: str, variant: str, wanted: float, measured: float
) -> dict[str, Any]:
    return {
        "checkpoint": checkpoint,
        "name": name,
        "variant": variant,
        "wanted": wanted,
        "measured": measured,
        "reached": measured >= wanted,
    }


def _at(found: Any, place: tuple[str, ...], variant: str) -> float | None:
    for key in place:
        found = found.get(variant if key == "VARIANT" else key)
        if found is None:
            return None
    return float(found)


def table(found: Mapping[str, Any]) -> str:
    """The targets, and every ratio, as text for a terminal."""
    lines = [f"{'':10}{'':46}{'variant':18}{'target':>8}{'measured':>10}{'CPU':>8}"]
    for row in found["targets"]:
        cpu = f"{row['cpu']:.2f}" if row.get("cpu") is not None else ""
        lines.append(
            f"{row['checkpoint']:10}{row['name']:46}{row['variant']:18}{row['wanted']:>8g}"
            f"{row['measured']:>10.2f}{cpu:>8}{'' if row['reached'] else '  missed'}"
        )
    for checkpoint, results in found["checkpoints"].items():
        lines += ["", f"{checkpoint}: wall (CPU) ratio to laya torch; equal decisions, largest gap"]
        for label, same in results["agreement"].items():
            lines.append(f"  {label:18} {same['equal']:.1%} equal, {same['largest']:.4f} apart")
        for name, calls in results["calls"].items():
            cells = (
                f"{label} {figures['ratio']['wall']:.2f} ({figures['ratio']['cpu']:.2f})"
                for label, figures in calls.items()
                if "ratio" in figures
            )
            lines.append(f"  {name:32} {' | '.join(cells)}")
    return "\n".join(lines)
