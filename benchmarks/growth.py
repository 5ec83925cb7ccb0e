"""How time and memory grow with states, questions, options and the length of a state."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from benchmarks import workloads
from benchmarks.checkpoints import Prepared
from benchmarks.engines import PEER, Bench, Variant
from benchmarks.figures import exponent
from benchmarks.peer import Worker, WorkerError
from benchmarks.suite import say

OWN: Final = ("drut int8", "drut fp32", "drut fp16")
"""Curves are of the peer and of the first of these that is there."""

STREAMED: Final = (100, 1_000, 10_000, 100_000)
STREAM_SECONDS: Final = 240.0
"""A longer stream is not begun where the rate so far says that it would take more than this."""

Curve = dict[str, list[float]]


def measure(
    bench: Bench, prepared: Prepared, variants: Sequence[Variant], *, quick: bool
) -> dict[str, Any]:
    """Curves by what grows, then by variant: sizes, CPU seconds, exponent; memory of streams."""
    chosen = _chosen(variants)
    found: dict[str, Any] = {name: {} for name in (*_sizes(quick), "streamed states")}
    for variant in chosen:
        say(f"growth: {variant.label}")
        try:
            _measure_one(bench, prepared, variant, found, quick)
        except WorkerError as exc:
            found.setdefault("failed", []).append(f"{variant.label}: {exc}")
            say(f"  failed: {exc}")
    return found


def _chosen(variants: Sequence[Variant]) -> list[Variant]:
    by_label = {variant.label: variant for variant in variants}
    own = next((label for label in OWN if label in by_label), None)
    return [by_label[label] for label in (PEER, own) if label is not None and label in by_label]


def _measure_one(
    bench: Bench, prepared: Prepared, variant: Variant, found: dict[str, Any], quick: bool
) -> None:
    with bench.start(variant) as worker:
        worker.ask("load", **bench.loading(variant, prepared))
        for name, sizes in _sizes(quick).items():
            found[name][variant.label] = _timed(worker, sizes, ASKED[name], 1 if quick else 3)
        own = not variant.upstream
        counts = STREAMED[: 2 if quick else (4 if own else 3)]
        found["streamed states"][variant.label] = _streamed(worker, counts)


def _sizes(quick: bool) -> dict[str, tuple[int, ...]]:
    if quick:
        return {"states": (16, 64), "questions": (1, 8), "options": (2, 64), "words": (16, 256)}
    return {
        "states": (4, 16, 64, 256),
        "questions": (1, 2, 4, 8, 16, 32),
        "options": (2, 8, 32, 128, 200),
        "words": (16, 32, 64, 128, 256, 320),
    }


def _states(size: int) -> dict[str, Any]:
    texts = workloads.mixed_states(size)
    return {"method": "batch", "states": texts, "questions": workloads.TEAM}


def _questions(size: int) -> dict[str, Any]:
    text = workloads.text_of_words(60, seed=2)
    return {"method": "one", "states": [text], "questions": workloads.questions(size)}


def _options(size: int) -> dict[str, Any]:
    asked = workloads.many_options(size)
    return {"method": "one", "states": [workloads.SHORT], "questions": asked}


def _words(size: int) -> dict[str, Any]:
    text = workloads.text_of_words(size, seed=2)
    return {"method": "one", "states": [text], "questions": workloads.TEAM}


ASKED: Final[Mapping[str, Callable[[int], dict[str, Any]]]] = {
    "states": _states,
    "questions": _questions,
    "options": _options,
    "words": _words,
}


def _timed(
    worker: Worker, sizes: Sequence[int], asked: Callable[[int], dict[str, Any]], repeat: int
) -> dict[str, Any]:
    """Smallest CPU seconds of a few calls at each size, and the fitted exponent."""
    curve: Curve = {"sizes": [], "cpu": [], "wall": []}
    for size in sizes:
        made = worker.ask("time", warm=1, repeat=repeat, **asked(size))
        curve["sizes"].append(size)
        for kind in ("cpu", "wall"):
            curve[kind].append(min(made[kind]))
    return {**curve, "exponent": exponent(curve["sizes"], curve["cpu"])}


def _streamed(worker: Worker, counts: Sequence[int]) -> dict[str, Any]:
    """Peak memory and CPU seconds of so many distinct states."""
    curve: Curve = {"sizes": [], "cpu": [], "peak": [], "growth": []}
    rate = 0.0
    for count in counts:
        if rate * count > STREAM_SECONDS:
            say(f"  {count} streamed states left out: {rate * count:.0f} s")
            break
        made = worker.ask(
            "stream", count=count, states=[workloads.SHORT[:40]], questions=workloads.TEAM
        )
        rate = made["wall"] / count
        curve["sizes"].append(count)
        curve["cpu"].append(made["cpu"])
        curve["peak"].append(made["peak"])
        curve["growth"].append(max(made["peak"] - made["before"], 0))
    found: dict[str, Any] = dict(curve)
    if len(curve["sizes"]) > 1:
        found["exponent"] = exponent(curve["sizes"], curve["cpu"])
        found["exponent of peak memory"] = exponent(curve["sizes"], curve["peak"])
    return found
