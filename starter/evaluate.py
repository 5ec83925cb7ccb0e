"""Accuracy, calibration and order stability on the held-out sets; writes `report.json`.

The table in README.md between the two marker comments is made from the report.
"""

import argparse
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from drut.checkpoint.bundle import Bundle, read_bundle
from drut.checkpoint.config import CONFIG_NAME, read_json_object
from drut_export.graph import EXTERNAL_NAME
from starter import evalsets
from starter.answering import Answerer, BundleAnswerer, CheckpointAnswerer, reordered
from starter.bank import HERE, Kind
from starter.baseline import cosine_accuracy
from starter.examples import Example, shuffled
from starter.export import NAME, REPOSITORY, size
from starter.metrics import KINDS, Array, of_kind, summarise
from starter.minilm import Embedder

REPORT: Final = HERE / "report.json"
README: Final = HERE / "README.md"
START, END = "<!-- figures: made by evaluate.py -->", "<!-- end of figures -->"
RESHUFFLES: Final = 3
BARS: Final[Mapping[str, float]] = {"choice": 0.85, "noul": 0.90, "score": 0.80}
LARGEST_ECE: Final = 0.08
MOST_CHANGED: Final = 0.03
SETS: Final = ("test_cases", "unseen_schemas", "dev_schemas")


def load_set(name: str) -> list[Example]:
    """The items of a set."""
    if name == "test_cases":
        return evalsets.written_cases()
    path = evalsets.UNSEEN if name == "unseen_schemas" else evalsets.DEVELOPMENT
    return evalsets.schema_items(path)


def evaluate(answerer: Answerer, *, baseline: bool = True) -> dict[str, Any]:
    """All figures, by set and question type."""
    embedder = Embedder() if baseline else None
    sets = {name: _set_figures(load_set(name), answerer, embedder) for name in SETS}
    return {"sets": sets, "bars": _bars(sets)}


def _set_figures(
    items: Sequence[Example], answerer: Answerer, embedder: Embedder | None
) -> dict[str, Any]:
    probabilities = answerer.probabilities(items)
    figures: dict[str, Any] = {}
    for kind in KINDS:
        places = of_kind(items, kind)
        asked, given = [items[i] for i in places], [probabilities[i] for i in places]
        row = summarise(given, asked).as_dict()
        row["low"], row["high"] = (round(x, 3) for x in _interval(row["accuracy"], len(asked)))
        if kind == "score":
            row["within_one"], row["correlation"] = _graded(given, asked)
        if embedder is not None:
            row["cosine"] = round(cosine_accuracy(items, kind, embedder), 4)
        row["order_changes"] = round(_order_changes(asked, given, answerer), 4)
        figures[kind] = row
    figures["all"] = summarise(probabilities, items).as_dict()
    counts = [len(of_kind(items, kind)) for kind in KINDS]
    changes = [figures[kind]["order_changes"] for kind in KINDS]
    figures["all"]["order_changes"] = round(float(np.average(changes, weights=counts)), 4)
    return figures


def _graded(given: Sequence[Array], asked: Sequence[Example]) -> tuple[float, float]:
    """Share of answers at most one level off, and correlation of expected and right level."""
    expected = np.array([float((p * np.arange(len(p))).sum()) for p in given])
    near = [abs(int(p.argmax()) - item.answer) <= 1 for p, item in zip(given, asked, strict=True)]
    share = [item.answer / (len(item.options) - 1) for item in asked]
    scaled = expected / np.array([len(p) - 1 for p in given])
    return round(float(np.mean(near)), 4), round(float(np.corrcoef(scaled, share)[0, 1]), 4)


def _order_changes(
    asked: Sequence[Example], given: Sequence[Array], answerer: Answerer, seed: int = 11
) -> float:
    """Share of reshuffled questions whose answer differs from the one in natural order."""
    rng = random.Random(seed)
    moved: list[Example] = []
    first: list[int] = []
    for item, probabilities in zip(asked, given, strict=True):
        for order in _orders(item.kind, len(item.options), rng):
            moved.append(reordered(item, order))
            first.append(int(probabilities.argmax()))
    answers = answerer.probabilities(moved)
    return float(np.mean([p.argmax() != best for p, best in zip(answers, first, strict=True)]))


def _orders(kind: Kind, count: int, rng: random.Random) -> list[tuple[int, ...]]:
    if kind == "noul":
        return [(1, 0)]
    natural = tuple(range(count))
    found: list[tuple[int, ...]] = []
    while len(found) < RESHUFFLES:
        order = shuffled(count, rng)
        if order != natural:
            found.append(order)
    return found


def _interval(share: float, count: int) -> tuple[float, float]:
    """95 % Wilson interval of a share."""
    z = 1.96
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * np.sqrt(share * (1 - share) / count + (z / 2 / count) ** 2)
    return centre - half, centre + half


def _bars(sets: Mapping[str, Any]) -> list[dict[str, Any]]:
    tests, unseen = sets["test_cases"], sets["unseen_schemas"]
    bars = [
        _bar(f"test cases, {kind}", tests[kind]["accuracy"], least=BARS[kind]) for kind in KINDS
    ]
    if "cosine" in unseen["choice"]:
        bars += [
            _bar(f"unseen schemas, {kind}", unseen[kind]["accuracy"], least=unseen[kind]["cosine"])
            for kind in KINDS
        ]
    for name, figures in (("test cases", tests), ("unseen schemas", unseen)):
        bars.append(_bar(f"{name}, calibration error", figures["all"]["ece"], most=LARGEST_ECE))
        changed = figures["all"]["order_changes"]
        bars.append(_bar(f"{name}, answers changed by order", changed, most=MOST_CHANGED))
    return bars


def _bar(
    name: str, value: float, *, least: float | None = None, most: float | None = None
) -> dict[str, Any]:
    met = value >= least if least is not None else value <= (most or 0.0)
    limit = f"at least {round(least, 3):g}" if least is not None else f"at most {most:g}"
    return {"name": name, "value": round(value, 4), "bar": limit, "met": bool(met)}


def as_markdown(report: Mapping[str, Any]) -> str:
    """The report as tables."""
    lines = _about(report["bundle"]) if "bundle" in report else []
    lines += [
        "| set | type | items | chance | cosine, same encoder | **starter** (95 %) | ECE "
        "| changed by order |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, figures in report["sets"].items():
        for kind in (*KINDS, "all"):
            lines.append(_line(name.replace("_", " "), kind, figures[kind]))
    lines += ["", "| bar | value | wanted | met |", "| --- | --- | --- | --- |"]
    for bar in report["bars"]:
        met = "yes" if bar["met"] else "**no**"
        lines.append(f"| {bar['name']} | {bar['value']:.3f} | {bar['bar']} | {met} |")
    return "\n".join(lines)


def _about(facts: Mapping[str, Any]) -> list[str]:
    seen, minutes = facts["training"]["seen"], facts["training"]["seconds"] / 60
    return [
        f"Bundle of {facts['bytes'] / 1e6:.1f} MB, SHA-256 of its weights "
        f"`{facts['weights_sha256'][:16]}...`; made from {seen:,} examples, "
        f"{minutes:.0f} minutes of training.",
        "",
    ]


def _line(name: str, kind: str, row: Mapping[str, float]) -> str:
    cosine = f"{row['cosine']:.3f}" if "cosine" in row else ""
    interval = f" ({row['low']:.2f}-{row['high']:.2f})" if "low" in row else ""
    return (
        f"| {name} | {kind} | {row['items']} | {row['chance']:.2f} | {cosine} "
        f"| {row['accuracy']:.3f}{interval} | {row['ece']:.3f} | {row['order_changes']:.3f} |"
    )


def write_readme(table: str, path: Path = README) -> None:
    """Put the table between the README's markers."""
    text = path.read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    path.write_text(f"{before}{START}\n{table}\n{END}{after}", encoding="utf-8")


def main(arguments: list[str] | None = None) -> None:
    """Evaluate the shipped bundle, another one, or a checkpoint in torch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", type=Path, default=REPOSITORY / NAME)
    parser.add_argument("--checkpoint", type=Path, help="evaluate this one instead, in torch")
    parser.add_argument("--report", type=Path, default=REPORT)
    parser.add_argument("--no-readme", action="store_true", help="leave README.md as it is")
    given = parser.parse_args(arguments)
    if given.checkpoint:
        report = evaluate(CheckpointAnswerer(given.checkpoint))
    else:
        facts = _facts(read_bundle(given.bundle))
        report = {"bundle": facts, **evaluate(BundleAnswerer(given.bundle))}
    given.report.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    table = as_markdown(report)
    if not given.no_readme:
        write_readme(table)
    print(table)


def _facts(bundle: Bundle) -> dict[str, Any]:
    """Size and digest of what was evaluated, and the run that its weights are from."""
    settings = read_json_object(bundle.directory / CONFIG_NAME)
    return {
        "bytes": size(bundle),
        "weights_sha256": bundle.manifest["files"][EXTERNAL_NAME]["sha256"],
        "temperature": settings["temperature"],
        "training": settings["training"],
    }


if __name__ == "__main__":
    main()
