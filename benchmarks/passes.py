"""How the division of rows into passes changes what a row costs, as a table.

    python -m benchmarks.passes budget|padding|threads [--bundle starter] [--rounds 6]

`budget` runs rows of one length in passes of more and more tokens, `padding` rows of mixed lengths
with more and more padding, `threads` rows of one length with one or all threads a pass, one pass or
several side by side. Variants take turns; figures are medians per row. Nothing is asserted.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from drut.batching import CPU_MAX_TOKENS, CPU_PADDING, PassPolicy
from drut.checkpoint.bundle import read_version
from drut.execution.direct import DirectRunner
from drut.execution.passes import PassRunner
from drut.loading import find_version
from drut.runtimes.ort import OrtOptions, OrtRuntime
from drut.runtimes.threads import usable_cpus
from drut.tensors import EncodedRow

BUDGETS: Final = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
PADDINGS: Final = (0.0, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class Made:
    """What is measured."""

    bundle: Path  # version directory
    rows: int
    tokens: int

    def opened(self, threads: int) -> OrtRuntime:
        """A session of the bundle on the CPU."""
        bundle = read_version(self.bundle)
        return OrtRuntime(
            bundle.graph, OrtOptions("cpu", threads=threads), precision=bundle.precision
        )

    def alike(self) -> list[EncodedRow]:
        """Rows of one length."""
        return [_row(self.tokens, seed) for seed in range(self.rows)]

    def mixed(self) -> list[EncodedRow]:
        """Rows of log-normal lengths around it."""
        drawn = np.exp(np.random.default_rng(7).normal(np.log(self.tokens), 0.6, self.rows))
        lengths = np.clip(np.round(drawn), 24, 3 * self.tokens).astype(int)
        return [_row(length, seed) for seed, length in enumerate(lengths.tolist())]


def _row(tokens: int, seed: int) -> EncodedRow:
    ids = np.random.default_rng(seed).integers(5, 800, tokens)
    usage: Any = {}
    return EncodedRow(ids, np.arange(1, 5), 0, usage)


def in_turns(
    variants: Mapping[str, Callable[[], object]], rounds: int, rows: int
) -> dict[str, tuple[float, float]]:
    """Milliseconds of wall and CPU time per row, medians."""
    wall: dict[str, list[float]] = {name: [] for name in variants}
    cpu: dict[str, list[float]] = {name: [] for name in variants}
    for turn in range(rounds + 1):
        for name, call in variants.items():
            start, busy = time.perf_counter(), time.process_time()
            call()
            if turn:  # the first round warms up
                wall[name].append(time.perf_counter() - start)
                cpu[name].append(time.process_time() - busy)
    return {
        name: (
            statistics.median(wall[name]) * 1e3 / rows,
            statistics.median(cpu[name]) * 1e3 / rows,
        )
        for name in variants
    }


def _runners(
    runtime: OrtRuntime, policies: Mapping[str, PassPolicy], rows: Sequence[EncodedRow]
) -> dict[str, Callable[[], object]]:
    made = {
        name: DirectRunner(PassRunner(runtime, policy, pad_id=0))
        for name, policy in policies.items()
    }
    return {name: lambda each=each: each.run(rows) for name, each in made.items()}  # type: ignore[misc]


def budget(made: Made) -> dict[str, Callable[[], object]]:
    """Passes of at most so many tokens."""
    sizes = [size for size in BUDGETS if made.tokens <= size < 2 * made.tokens * made.rows]
    policies = {f"{size} tokens": PassPolicy(size) for size in sizes}
    return _runners(made.opened(usable_cpus()), policies, made.alike())


def padding(made: Made) -> dict[str, Callable[[], object]]:
    """Passes whose shortest row lacks at most such a share of the longest one."""
    policies = {f"{share:.2f}": PassPolicy(8192, max_padding=share) for share in PADDINGS}
    policies["row by row"] = PassPolicy(max_rows=1)
    return _runners(made.opened(usable_cpus()), policies, made.mixed())


def threads(made: Made) -> dict[str, Callable[[], object]]:
    """One session, its threads, the callers that use it at once, and the rows of a pass."""
    count, rows = usable_cpus(), made.alike()
    pool = ThreadPoolExecutor(count)

    def variant(runtime: OrtRuntime, callers: int, policy: PassPolicy) -> Callable[[], object]:
        passes = PassRunner(runtime, policy, pad_id=0)
        groups = [[rows[at] for at in group] for group in passes.plan(rows)]
        if callers == 1:
            return lambda: [passes.run(group) for group in groups]
        return lambda: list(pool.map(passes.run, groups))

    found: dict[str, Callable[[], object]] = {}
    plans = {
        "row by row": PassPolicy(max_rows=1),
        "planned": PassPolicy(CPU_MAX_TOKENS, max_padding=CPU_PADDING, spread=count),
    }
    for each in dict.fromkeys((count, 1)):
        runtime = made.opened(each)
        for plan, policy in plans.items():
            for callers in dict.fromkeys((1, count)):
                name = f"{plan}, {each} threads, {callers} callers"
                found[name] = variant(runtime, callers, policy)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    tables = {each.__name__: each for each in (budget, padding, threads)}
    parser.add_argument("table", choices=tables)
    parser.add_argument("--bundle", default="starter", help="name or path of an exported bundle")
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=6)
    given = parser.parse_args()
    made = Made(find_version(given.bundle), given.rows, given.tokens)
    found = in_turns(tables[given.table](made), given.rounds, given.rows)
    print(f"{given.bundle}, {given.rows} rows of {given.tokens} tokens")
    print(f"load {os.getloadavg()[0]:.1f} on {usable_cpus()} processors")
    for name, (wall, cpu) in found.items():
        print(f"{name:36} {wall:8.2f} ms a row, {cpu:8.2f} ms of processor time")


if __name__ == "__main__":
    main()
