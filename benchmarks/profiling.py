"""Where the time of one call and of a batch of 64 goes, as a table.

    python -m benchmarks.profiling [--bundle starter] [--runtime onnxruntime] [--repeat 20]

Own time of functions under cProfile, summed by what their module is for. The profiler slows Python
down and not the engine, so the shares of Python are upper bounds. The queue is off: it would move
the forward passes to other threads, which cProfile does not see.
"""

import argparse
import cProfile
import pstats
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import drut
from benchmarks import workloads

PARTS: Final = (
    ("forward pass", ("forward", "InferenceSession", "onnxruntime", "openvino", "runtimes/")),
    ("tokenise and encode", ("encode_batch", "tokenizers", "encoding/", "checkpoint/tokenizer")),
    ("plan and collate", ("batching.py", "execution/", "tensors.py", "numpy")),
    ("decode", ("decoding/", "usage.py")),
    ("hooks", ("hooks/",)),
    ("read the questions", ("questions.py", "schema.py")),
    ("rest of drut", ("drut/",)),
)
"""A function belongs to the first part whose words its place or name has."""

REST: Final = "rest of Python"


def part_of(place: str, name: str) -> str:
    """What a function's time counts for."""
    spelled = f"{place.replace(chr(92), '/')} {name}"
    for part, words in PARTS:
        if any(word in spelled for word in words):
            return part
    return REST


def shares(stats: dict[tuple[str, int, str], Sequence[Any]]) -> dict[str, float]:
    """Own time by part, as shares of all."""
    spent: Counter[str] = Counter()
    for (place, _, name), figures in stats.items():
        spent[part_of(place, name)] += figures[2]
    total = sum(spent.values()) or 1.0
    return {part: spent[part] / total for part, _ in [*PARTS, (REST, ())]}


def profiled(call: Callable[[], object], repeat: int) -> tuple[float, dict[str, float]]:
    """Milliseconds of a call under the profiler, and the shares."""
    call()
    profile = cProfile.Profile()
    profile.enable()
    for _ in range(repeat):
        call()
    profile.disable()
    stats: Any = pstats.Stats(profile)
    return stats.total_tt / repeat * 1e3, shares(stats.stats)


def main(arguments: Sequence[str] | None = None) -> None:
    """Profile and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--bundle", default="starter", help="name or path of an exported bundle")
    parser.add_argument("--runtime", default="onnxruntime")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=20)
    given = parser.parse_args(arguments)
    options = {"runtime": given.runtime, "threads": given.threads, "queue": False}
    with drut.load(given.bundle, device="cpu", **options) as agent:
        mixed = workloads.mixed_states(64)
        calls: dict[str, Callable[[], object]] = {
            "one short state": lambda: agent.predict(workloads.SHORT, workloads.TEAM),
            "64 mixed lengths": lambda: agent.predict_batch(mixed, workloads.TEAM),
        }
        made = {name: profiled(call, given.repeat) for name, call in calls.items()}
    print(f"{'':24}" + "".join(f"{name:>20}" for name in made))
    print(f"{'ms a call':24}" + "".join(f"{taken:>20.2f}" for taken, _ in made.values()))
    for part in next(iter(made.values()))[1]:
        print(f"{part:24}" + "".join(f"{found[part]:>20.1%}" for _, found in made.values()))


if __name__ == "__main__":
    main()
