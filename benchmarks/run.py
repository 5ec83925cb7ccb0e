"""drut beside upstream laya on this machine: one run, one JSON file, a table of ratios.

    python -m benchmarks.run [--quick] [--peer-python /venv/bin/python] [--device cuda]

Every variant runs in a process of its own, with the same number of threads; they take turns, so
that a disturbance of the machine hits all. Ratios are of medians. Nothing is asserted.
"""

import argparse
import datetime
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import floor, growth, machine
from benchmarks.checkpoints import BUILD, ROOT, prepare
from benchmarks.engines import Bench, available
from benchmarks.peer import PLACE, set_up
from benchmarks.suite import Plan, measure, say
from benchmarks.targets import judge, table

RESULTS = ROOT / "benchmarks" / "results"
FULL = {
    "starter": Plan(rounds=7),
    "base": Plan(rounds=3, questions=(16,), options=(), callers=(32,), cold=3, evaluation=16),
}
QUICK = {
    "starter": Plan(rounds=3, questions=(16,), options=(200,), callers=(32,), seconds=1.0, cold=1),
    "base": Plan(rounds=1, states=16, questions=(), options=(), callers=(), cold=1, evaluation=8),
}


def run(bench: Bench, plans: dict[str, Plan], *, quick: bool) -> dict[str, Any]:
    """Measure the checkpoints of the plans; the content of the results file."""
    variants = available(bench.device, machine.flags())
    found: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "quick": quick,
        "device": bench.device,
        "threads": bench.threads,
        "machine": machine.facts(),
        "checkpoints": {},
    }
    options: dict[str, dict[str, Any]] = {}
    for name, plan in plans.items():
        found["checkpoints"][name] = measure(bench, prepare(name), variants, plan, options)
    if not bench.fake:
        first = next(iter(plans))
        found["growth"] = growth.measure(bench, prepare(first), variants, quick=quick)
        if bench.device == "cpu":
            found["floor"] = {name: floor.measure(prepare(name), quick=quick) for name in plans}
    found["targets"] = judge(found)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, write the results file and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="minutes rather than a quarter hour")
    parser.add_argument("--only", choices=FULL, help="one of the checkpoints")
    parser.add_argument("--peer-python", type=Path, help="an interpreter that has laya[onnx]")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=Path, help="results file")
    given = parser.parse_args(arguments)
    peer = given.peer_python or set_up(PLACE)
    bench = Bench(Path(sys.executable), peer, given.device, given.threads)
    plans = QUICK if given.quick else FULL
    plans = {given.only: plans[given.only]} if given.only else plans
    found = run(bench, plans, quick=given.quick)
    kind = given.device.partition(":")[0]
    place = BUILD / "quick.json" if given.quick else RESULTS / f"{found['date']}-{kind}.json"
    place = given.output or place
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    say(f"written: {place}")
    print(table(found))


if __name__ == "__main__":
    main()
