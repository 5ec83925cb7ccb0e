"""The results page and its pictures, from the JSON of a run.

python -m benchmarks.page [--results benchmarks/results/DATE-cpu.json] [--docs docs]
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks import drawing
from benchmarks.checkpoints import ROOT
from benchmarks.engines import PEER
from benchmarks.targets import TARGETS

RESULTS: Final = ROOT / "benchmarks" / "results"
CALLS: Final = ("wall", "cpu")
Found = Mapping[str, Any]


def page(found: Found) -> str:
    """The page in Markdown."""
    lines = [
        "# Measured beside upstream",
        "",
        *_introduction(found),
        "",
        "## Targets",
        "",
        *_targets(found),
    ]
    for name, results in found["checkpoints"].items():
        lines += ["", f"## {_titles(name)}", "", *_checkpoint(name, results)]
    if "growth" in found:
        lines += ["", "## Growth", "", *_growth(found["growth"])]
    if "floor" in found:
        lines += ["", "## The floor of the matrix products", "", *_floor(found["floor"])]
    return "\n".join(lines) + "\n"


def pictures(found: Found) -> dict[str, str]:
    """SVG by file name."""
    made = {}
    for name, results in found["checkpoints"].items():
        groups = _ratio_groups(results)
        if groups:
            title = f"{name}: times as fast as laya on torch, wall time"
            made[f"ratios-{name}.svg"] = drawing.bars(title, groups, "x", _marks(results))
    for name, by_variant in found.get("growth", {}).items():
        if name == "failed" or not by_variant:
            continue
        drawn = {label: (each["sizes"], each["cpu"]) for label, each in by_variant.items()}
        made[_curve_file(name)] = drawing.curves(f"CPU seconds over {name}", drawn)
        peaks = {
            label: (each["sizes"], [value / 2**20 for value in each["peak"]])
            for label, each in by_variant.items()
            if "peak" in each
        }
        if peaks:
            made["growth-memory.svg"] = drawing.curves(f"peak MiB over {name}", peaks)
    return made


def _curve_file(name: str) -> str:
    return f"growth-{name.replace(' ', '-')}.svg"


def _introduction(found: Found) -> Iterator[str]:
    machine = found["machine"]
    command = "make bench-quick" if found["quick"] else "make bench"
    flags = ", ".join(machine["flags"]) or "none that matter"
    versions = dict(machine["versions"])
    for results in found["checkpoints"].values():
        for each in results["loaded"].values():
            versions |= each["versions"]
    yield f"Made by `{command}` on {found['date']}, {found['threads']} threads on the device "
    yield f"`{found['device']}` of a machine with {machine['processors']} {machine['architecture']}"
    yield f"processors ({flags}), load {machine['load'][0]:g} at the start."
    yield "Versions: " + ", ".join(f"{name} {value}" for name, value in versions.items()) + "."
    yield ""
    yield "Every variant runs in its own process; they take turns within a round. Figures are"
    yield f"medians, ratios are those of {PEER} by the variant's: above 1 is faster than upstream."
    yield "Where other work shares the machine, wall time suffers and CPU time is steadier."
    if found["quick"]:
        yield ""
        yield "**A quick run: few rounds, wide spreads.**"


def _targets(found: Found) -> Iterator[str]:
    rows = found["targets"]
    reached = sum(row["reached"] for row in rows)
    yield f"{reached} of {len(rows)} reached."
    yield ""
    yield "| checkpoint | what | variant | target | measured | by CPU time | |"
    yield "|---|---|---|--:|--:|--:|---|"
    for row in rows:
        cpu = f"{row['cpu']:.2f}" if row.get("cpu") is not None else ""
        verdict = "reached" if row["reached"] else "**missed**"
        yield (
            f"| {row['checkpoint']} | {row['name']} | {row['variant']} | {row['wanted']:g} | "
            f"{row['measured']:.2f} | {cpu} | {verdict} |"
        )


def _titles(name: str) -> str:
    known = {"starter": "The starter", "base": "A checkpoint of ModernBERT-base's size"}
    return known.get(name, name)


def _checkpoint(name: str, results: Found) -> Iterator[str]:
    if name == "base":
        yield "Its weights are random: times are those of a real checkpoint, answers mean nothing."
        yield ""
    if _ratio_groups(results):
        yield f"![ratios](benchmarks/ratios-{name}.svg)"
        yield ""
    yield from _agreement(results["agreement"])
    yield from _calls(results)
    yield from _callers(results["callers"])
    yield from _cold(results["cold"])
    if results["failed"]:
        yield ""
        yield "Not measured: " + "; ".join(sorted(set(results["failed"]))) + "."


def _agreement(agreement: Found) -> Iterator[str]:
    yield f"Answers to the evaluation cases, beside those of {PEER}, in the same run:"
    yield ""
    yield "| variant | answers | equal decisions | largest difference of a probability |"
    yield "|---|--:|--:|--:|"
    for label, same in agreement.items():
        yield f"| {label} | {same['answers']} | {same['equal']:.1%} | {same['largest']:.4f} |"


def _calls(results: Found) -> Iterator[str]:
    agreement = results["agreement"]
    yield ""
    yield "| call | variant | wall ms (quartiles) | CPU ms | wall ratio | CPU ratio | equal |"
    yield "|---|---|--:|--:|--:|--:|--:|"
    for name, by_variant in results["calls"].items():
        for label, figures in by_variant.items():
            wall, cpu = (figures[kind] for kind in CALLS)
            ratios = figures.get("ratio", {})
            shown = " | ".join(f"{ratios[kind]:.2f}" if ratios else "" for kind in CALLS)
            equal = f"{agreement[label]['equal']:.1%}" if label in agreement else ""
            yield (
                f"| {name} | {label} | {wall['median'] * 1e3:.1f} "
                f"({wall['q1'] * 1e3:.1f}-{wall['q3'] * 1e3:.1f}) | {cpu['median'] * 1e3:.1f} | "
                f"{shown} | {equal} |"
            )


def _callers(by_count: Found) -> Iterator[str]:
    if not by_count:
        return
    yield ""
    yield "| callers | variant | calls a second | p50 ms | p95 ms | p99 ms | CPU ms each | ratio |"
    yield "|--:|---|--:|--:|--:|--:|--:|--:|"
    for count, by_variant in by_count.items():
        for label, figures in by_variant.items():
            late = " | ".join(f"{figures[f'p{share}'] * 1e3:.1f}" for share in (50, 95, 99))
            ratio = f"{figures['ratio']:.2f}" if "ratio" in figures else ""
            yield (
                f"| {count} | {label} | {figures['per_second']['median']:.1f} | {late} | "
                f"{figures['cpu']['median'] * 1e3:.1f} | {ratio} |"
            )


def _cold(by_variant: Found) -> Iterator[str]:
    yield ""
    yield "| variant | fresh process to first answer, s | ratio | resident MiB | times less |"
    yield "|---|--:|--:|--:|--:|"
    for label, figures in by_variant.items():
        ratios = figures.get("ratio", {})
        first, held = (
            f"{ratios[kind]:.2f}" if ratios else "" for kind in ("first_answer", "resident")
        )
        yield (
            f"| {label} | {figures['first_answer']['median']:.2f} | {first} | "
            f"{figures['resident']['median'] / 2**20:.0f} | {held} |"
        )


def _growth(growth: Found) -> Iterator[str]:
    yield "Exponents are slopes in log-log: 1 grows in step, below 1 slower. CPU time on the first"
    yield "checkpoint above."
    yield ""
    yield "| what grows | variant | sizes | exponent of time | exponent of peak memory |"
    yield "|---|---|---|--:|--:|"
    for name, by_variant in growth.items():
        if name == "failed":
            continue
        for label, curve in by_variant.items():
            memory, time = curve.get("exponent of peak memory"), curve.get("exponent")
            sizes = ", ".join(f"{size:g}" for size in curve["sizes"])
            shown = (f"{value:.2f}" if value is not None else "" for value in (time, memory))
            yield f"| {name} | {label} | {sizes} | {' | '.join(shown)} |"
    for name, by_variant in growth.items():
        if name != "failed" and by_variant:
            yield ""
            yield f"![{name}](benchmarks/{_curve_file(name)})"
    streamed = growth.get("streamed states")
    if streamed:
        yield ""
        yield "![memory](benchmarks/growth-memory.svg)"


def _floor(floors: Found) -> Iterator[str]:
    yield "One row of 128 tokens, one thread, CPU time: the products with weights alone, each run"
    yield "by itself, and the whole pass (`python -m benchmarks.floor`)."
    yield ""
    yield "| checkpoint | precision | products ms | pass ms | share |"
    yield "|---|---|--:|--:|--:|"
    for name, by_precision in floors.items():
        for precision, figures in by_precision.items():
            yield (
                f"| {name} | {precision} | {figures['floor_ms']:.1f} | "
                f"{figures['forward_ms']:.1f} | {figures['share']:.0%} |"
            )


def _ratio_groups(results: Found) -> dict[str, dict[str, float]]:
    """Wall ratios by call and variant, of the calls that have a target."""
    wanted = {target.place[1] for target in TARGETS if target.place[0] == "calls"}
    groups = {}
    for name, by_variant in results["calls"].items():
        made = {
            label: figures["ratio"]["wall"]
            for label, figures in by_variant.items()
            if "ratio" in figures
        }
        if made and name in wanted:
            groups[name] = made
    return groups


def _marks(results: Found) -> dict[str, dict[str, float]]:
    return {
        target.place[1]: {
            label: wanted
            for label, wanted in target.wanted.items()
            if label in results["calls"].get(target.place[1], {})
        }
        for target in TARGETS
        if target.place[0] == "calls"
    }


def newest(directory: Path) -> Path:
    """The results file with the latest date.

    Raises:
        FileNotFoundError: there is none.
    """
    files = sorted(directory.glob("*.json"))
    if not files:
        raise FileNotFoundError(f"no results in {directory}; measure first with: make bench")
    return files[-1]


def write(found: Found, docs: Path) -> Path:
    """Write the page and its pictures; pictures of an earlier run go."""
    place = docs / "benchmarks"
    place.mkdir(parents=True, exist_ok=True)
    for old in place.glob("*.svg"):
        old.unlink()
    for name, text in pictures(found).items():
        (place / name).write_text(text, encoding="utf-8")
    written = docs / "benchmarks.md"
    written.write_text(page(found), encoding="utf-8")
    return written


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page and print where it lies."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--results", type=Path)
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    given = parser.parse_args(arguments)
    source = given.results or newest(RESULTS)
    print(write(json.loads(source.read_text(encoding="utf-8")), given.docs))


if __name__ == "__main__":
    main()
