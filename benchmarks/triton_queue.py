"""What the server's queue settings cost: latency, throughput, and requests that stall.

    python -m benchmarks.triton_queue [--rounds 3] [--requests 64] [--callers 1 2 8 32]

One server per setting, all running at once and asked in turns, so that a disturbance of the
machine hits all of them. Callers send one question each about states of mixed lengths: token ids
to the graph, and texts to the decision model. Prints a table on standard error and one JSON object
on standard output; `stalled` is the share of requests slower than 0.3 s. Needs `make triton`.
"""

import argparse
import json
import re
import shutil
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc as grpcclient

from benchmarks.triton_batching import encoded, tensors, texts, together, workload
from benchmarks.triton_servers import ROOT, TritonServer, triton_server

STALLED = 0.3  # seconds; the batcher's own poll is half a second
SIZE = "max_queue_size: 256"
TIME = "timeout_action: REJECT default_timeout_microseconds: 60000000 allow_timeout_override: true"
BOUNDS = f"default_queue_policy {{ {TIME} {SIZE} }}"
DYNAMIC = re.compile(r"^dynamic_batching \{(?: \}|.*?^\})\n", re.DOTALL | re.MULTILINE)
ONE = re.compile(r"count: 1 \}")

SETTINGS = {
    "no bounds": "",
    "size and timeout": BOUNDS,
    "both, delay 100 us": f"max_queue_delay_microseconds: 100 {BOUNDS}",
    "both, delay 500 us": f"max_queue_delay_microseconds: 500 {BOUNDS}",
    "both, delay 1000 us": f"max_queue_delay_microseconds: 1000 {BOUNDS}",
    "size": f"default_queue_policy {{ {SIZE} }}",
    "timeout": f"default_queue_policy {{ {TIME} }}",
    "both, two instances": BOUNDS,
    "both, preserve_ordering": f"preserve_ordering: true {BOUNDS}",
    "both, preferred 8": f"preferred_batch_size: [ 8 ] {BOUNDS}",
    "one priority level": "priority_levels: 1 default_priority_level: 1",
    "no dynamic_batching": None,
}


def edit(path: Path, setting: str) -> None:
    """Give a config another queue."""
    text = path.read_text(encoding="utf-8")
    content = SETTINGS[setting]
    queue = "" if content is None else f"dynamic_batching {{ {content} }}\n"
    changed, count = DYNAMIC.subn(queue, text)
    assert count == 1, text
    if "two instances" in setting:
        changed, count = ONE.subn("count: 2 }", changed)
        assert count == 1, text
    path.write_text(changed, encoding="utf-8")


def start(stack: ExitStack, setting: str) -> TritonServer:
    """A server with both models of the starter under one setting."""
    place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="drut-queue-")))
    for name in ("starter", "starter_decision"):
        shutil.copytree(ROOT / "model_repository" / name, place / name)
        edit(place / name / "config.pbtxt", setting)
    return stack.enter_context(triton_server(place))


def measure(servers: dict[str, TritonServer], given: argparse.Namespace) -> list[dict[str, Any]]:
    asked = workload(given.requests)
    sent = {
        "starter": [tensors(row, bucket=False) for row in encoded(asked)],
        "starter_decision": [texts(*each) for each in asked],
    }
    found: dict[tuple[str, str, int], list[tuple[list[float], float, float]]] = {}
    for _ in range(given.rounds):
        for model, inputs in sent.items():
            for callers in given.callers:
                for setting, server in servers.items():
                    one = one_round(server, model, inputs, callers)
                    found.setdefault((model, setting, callers), []).append(one)
    return [
        {"model": model, "setting": setting, "callers": callers, **summed(rounds)}
        for (model, setting, callers), rounds in found.items()
    ]


def one_round(
    server: TritonServer, model: str, inputs: list[Any], callers: int
) -> tuple[list[float], float, float]:
    """Seconds of each request, requests per second, and mean rows of a pass of the graph."""
    before = server.statistics("starter")
    count = min(len(inputs), 16 * callers)
    with grpcclient.InferenceServerClient(server.grpc) as client:
        start = time.perf_counter()
        seconds = together(callers, count, lambda i: client.infer(model, inputs[i]))
        wall = time.perf_counter() - start
    after = server.statistics("starter")
    rows = (after["rows"] - before["rows"]) / (after["passes"] - before["passes"])
    return seconds, count / wall, rows


def summed(rounds: list[tuple[list[float], float, float]]) -> dict[str, float]:
    seconds = [one for each, _, _ in rounds for one in each]
    return {
        "p50_ms": round(1000 * statistics.median(seconds), 1),
        "p95_ms": round(1000 * float(np.percentile(seconds, 95)), 1),
        "per_second": round(statistics.median(rate for _, rate, _ in rounds), 1),
        "stalled": round(sum(each > STALLED for each in seconds) / len(seconds), 3),
        "mean_batch": round(statistics.median(rows for _, _, rows in rounds), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--callers", type=int, nargs="+", default=[1, 2, 8, 32])
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    given = parser.parse_args()
    with ExitStack() as stack:
        report = measure({each: start(stack, each) for each in given.settings}, given)
    for each in report:
        print(*each.values(), sep=" | ", file=sys.stderr)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
