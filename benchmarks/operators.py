"""Where the time of a forward pass goes inside ONNX Runtime: kinds of operators, as a table.

    python -m benchmarks.operators BUNDLE [BUNDLE ...]

One row of 128 tokens on one thread. Each operator counts with the median of its runs, from ONNX
Runtime's own profile, which adds about a microsecond to each: shares of many small operators are
upper bounds. A column for every bundle, for instance one in float32 and one in int8.
"""

import argparse
import json
import statistics
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.floor import opened

KINDS: Final = (
    ("products in int8", ("MatMulIntegerToFloat", "MatMulInteger", "DynamicQuantizeMatMul")),
    ("products in float32", ("MatMul", "FusedMatMul", "Gemm", "FusedGemm")),
    ("attention", ("Attention", "Softmax")),
    ("activation functions", ("Gelu", "BiasGelu", "QuickGelu", "Relu")),
    ("layer norms", ("LayerNormalization", "SimplifiedLayerNormalization")),
    ("levels of tokens", ("Abs", "ReduceMax", "Max", "Expand", "QuantizeLinear")),
    ("adding and scaling", ("Add", "Sub", "Mul", "Div")),
    ("moving", ("Transpose", "Reshape", "Split", "Concat", "Slice", "Shape")),
)
"""An operator is of the first kind that names it."""

REST: Final = "rest"
RUNS: Final = 60
NOT_COUNTED: Final = 10
"""Of the runs: the first ones warm up."""


def kind_of(operator: str) -> str:
    """What an operator's time counts for."""
    return next((kind for kind, names in KINDS if operator in names), REST)


def by_kind(events: Iterable[dict[str, Any]], skip: int = 0) -> Counter[str]:
    """Microseconds of a pass by kind, from the events of a profile.

    Args:
        events: of several passes.
        skip: passes at the beginning that do not count.
    """
    taken: dict[tuple[str, str], list[int]] = defaultdict(list)
    for event in events:
        if event.get("name", "").endswith("_kernel_time"):
            taken[event["args"]["op_name"], event["name"]].append(event["dur"])
    found: Counter[str] = Counter()
    for (operator, _), durations in taken.items():
        found[kind_of(operator)] += statistics.median(durations[skip:])
    return found


def measure(bundle: Path, threads: int) -> Counter[str]:
    """Microseconds by kind of one pass of a bundle's graph."""
    with tempfile.TemporaryDirectory() as directory:

        def profile(options: Any) -> None:
            options.enable_profiling = True
            options.profile_file_prefix = str(Path(directory) / "passes")

        runtime, batch = opened(bundle, profile, threads=threads)
        for _ in range(RUNS):
            runtime.forward(batch)
        events = json.loads(Path(runtime.session.end_profiling()).read_text(encoding="utf-8"))
        runtime.close()
    return by_kind(events, NOT_COUNTED)


def table(found: Sequence[tuple[str, Counter[str]]]) -> str:
    """Milliseconds and shares, a column for each bundle."""
    lines = [f"{'':24}" + "".join(f"{name:>22}" for name, _ in found)]
    for kind in [*(name for name, _ in KINDS), REST]:
        cells = ((each[kind], each.total()) for _, each in found)
        lines.append(
            f"{kind:24}"
            + "".join(f"{taken / 1e3:>12.2f} ms{taken / whole:>7.1%}" for taken, whole in cells)
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("bundles", nargs="+", type=Path, help="directories of exported bundles")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(arguments)
    print(table([(each.name, measure(each, given.threads)) for each in given.bundles]))


if __name__ == "__main__":
    main()
