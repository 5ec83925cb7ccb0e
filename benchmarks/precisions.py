"""Every precision on the CPU beside upstream's torch: size, figures, speed, memory of the export.

    python -m benchmarks.precisions --peer build/peer/bin/python [--only starter] [--rounds 7]

Prints JSON, then a Markdown table. Rows have 128 tokens, engines have one thread and run in turn;
times are medians of CPU milliseconds for a row, ratios are upstream's time over theirs. An export
that fails says why in its row. `bf16` runs on OpenVINO where it is installed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.checkpoints import MAKERS, Prepared, prepare
from benchmarks.machine import facts
from drut.checkpoint.bundle import Bundle, read_bundle
from drut.runtimes.base import Runtime
from drut.runtimes.ort import OrtOptions, OrtRuntime
from drut.tensors import Batch

PRECISIONS: Final = ("fp32", "int8-weights", "int8", "bf16", "fp16")
TARGETS: Final = {"fp16": "cuda"}
ROWS: Final = (1, 8, 32)
TOKENS: Final = 128
WORDS: Final = 15_000
MIB: Final = 2**20
COLUMNS: Final = (
    *("precision", "MB", "equal choices", "largest difference", "batch invariant"),
    *(f"{rows} x {TOKENS}" for rows in ROWS),
    "export peak",
)

UPSTREAM: Final = """
import json, sys, time
import laya, torch
torch.set_num_threads(1)
torch.set_grad_enabled(False)
model = laya.Agent(sys.argv[1], device="cpu").model.float().eval()
print("ready", flush=True)
for line in sys.stdin:
    feed = {name: torch.tensor(value) for name, value in json.loads(line).items()}
    start = time.process_time()
    model(**feed)
    print(1e3 * (time.process_time() - start), flush=True)
"""


class Upstream:
    """Upstream's model in its own interpreter, one pass for each line."""

    def __init__(self, python: str, checkpoint: Path) -> None:
        self._process = subprocess.Popen(
            [python, "-c", UPSTREAM, str(checkpoint)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_WAIT_POLICY": "passive"},
        )
        self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"upstream ended with {self._process.wait()}")
        return line

    def __call__(self, batch: Batch) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(
            json.dumps({name: array.tolist() for name, array in batch.feed().items()}) + "\n"
        )
        self._process.stdin.flush()
        return float(self._read())

    def close(self) -> None:
        self._process.communicate()


def export(prepared: Prepared, precision: str, repository: Path) -> dict[str, Any]:
    """Export in a process of its own: the bundle or the error, seconds, peak memory in bytes."""
    command = [sys.executable, "-m", "drut_export", str(prepared.directory), "--name", precision]
    command += ["--precision", precision, "--target", TARGETS.get(precision, "cpu")]
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as told:
        process = subprocess.Popen(
            [*command, "--repository", str(repository)], stdout=subprocess.DEVNULL, stderr=told
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        told.seek(0)
        last = (told.read().splitlines() or [""])[-1]
    made: dict[str, Any] = {
        "seconds": round(time.perf_counter() - start, 1),
        "peak": usage.ru_maxrss * 1024,
    }
    return made | ({"error": last} if process.returncode else {"bundle": repository / precision})


def open_bundle(bundle: Bundle) -> Runtime:
    """The engine of a precision, with one thread."""
    if bundle.precision == "bf16":
        try:
            from drut.runtimes.openvino import OpenVinoOptions, OpenVinoRuntime
        except ImportError:
            pass
        else:
            return OpenVinoRuntime(bundle.graph, OpenVinoOptions(threads=1), precision="bf16")
    return OrtRuntime(bundle.graph, OrtOptions(device="cpu", threads=1), precision=bundle.precision)


def make_batch(rows: int) -> Batch:
    """Full rows of random words with three options."""
    rng = np.random.default_rng(rows)
    return Batch(
        input_ids=rng.integers(5, WORDS, (rows, TOKENS)),
        attention_mask=np.ones((rows, TOKENS), np.int64),
        marker_pos=np.tile(np.asarray([5, 9, 13], np.int64), (rows, 1)),
        marker_mask=np.ones((rows, 3), np.bool_),
        qtype=np.zeros(rows, np.int64),
    )


def timed(runtime: Runtime) -> Callable[[Batch], float]:
    """CPU milliseconds of one pass."""

    def run(batch: Batch) -> float:
        start = time.process_time()
        runtime.forward(batch)
        return 1e3 * (time.process_time() - start)

    return run


def measure(engines: dict[str, Callable[[Batch], float]], rounds: int) -> dict[str, list[float]]:
    """Median milliseconds of a row for each of `ROWS`, engine after engine in every round."""
    found: dict[str, list[float]] = {name: [] for name in engines}
    for rows in ROWS:
        batch = make_batch(rows)
        times: dict[str, list[float]] = {name: [] for name in engines}
        for number in range(max(3, rounds // (1 + rows // 8)) + 1):
            for name, run in engines.items():
                spent = run(batch)
                if number:  # the first one warms up
                    times[name].append(spent / rows)
        for name in engines:
            found[name].append(round(statistics.median(times[name]), 3))
    return found


def report(prepared: Prepared, python: str, rounds: int, build: Path) -> dict[str, Any]:
    """All figures of one checkpoint."""
    precisions: dict[str, Any] = {}
    runtimes: dict[str, Runtime] = {}
    for name in PRECISIONS:
        sys.stderr.write(f"exporting {prepared.name} as {name}\n")
        made = precisions[name] = export(prepared, name, build)
        if "bundle" in made:
            bundle = read_bundle(made.pop("bundle"))
            figures = bundle.manifest["verification"]
            made["bytes"] = sum(path.stat().st_size for path in bundle.directory.glob("model.*"))
            made["batch_invariant"] = bundle.batch_invariant
            made["left_out"] = bundle.manifest["left_out"]
            for key in ("equal_choices", "max_probability_difference", "batch_difference"):
                made[key] = figures[key]
            runtimes[name] = open_bundle(bundle)
    upstream = Upstream(python, prepared.directory)
    engines = {"upstream": upstream, **{name: timed(each) for name, each in runtimes.items()}}
    times = measure(engines, rounds)
    upstream.close()
    for runtime in runtimes.values():
        runtime.close()
    return {"name": prepared.name, "precisions": precisions, "milliseconds": times}


def table(found: dict[str, Any]) -> str:
    """Markdown of one checkpoint."""
    times = found["milliseconds"]
    first = ("upstream, torch float32", "", "", "", "", *(f"{t:.1f} ms" for t in times["upstream"]))
    lines = [COLUMNS, ("---",) * len(COLUMNS), (*first, "")]
    for name, made in found["precisions"].items():
        peak = f"{made['peak'] / MIB:.0f} MiB"
        if "error" in made:
            lines.append((name, made["error"], *[""] * (len(COLUMNS) - 3), peak))
            continue
        pairs = zip(times["upstream"], times[name], strict=True)
        facts_of = (
            *(name, f"{made['bytes'] / 1e6:.1f}", f"{made['equal_choices']:.1%}"),
            f"{made['max_probability_difference']:.2g}",
            "yes" if made["batch_invariant"] else "no",
        )
        lines.append((*facts_of, *(f"{slow / fast:.2f}x" for slow, fast in pairs), peak))
    rows = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join((f"**{found['name']}**", "", *rows, ""))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--peer", required=True, help="interpreter that has upstream")
    parser.add_argument("--only", choices=MAKERS)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args(arguments)
    machine, all_found = facts(), []
    for name in [given.only] if given.only else MAKERS:
        with tempfile.TemporaryDirectory() as build:
            all_found.append(report(prepare(name), given.peer, given.rounds, Path(build)))
    print(json.dumps({"machine": machine, "checkpoints": all_found}, indent=2))
    print("\n".join(map(table, all_found)))


if __name__ == "__main__":
    main()
