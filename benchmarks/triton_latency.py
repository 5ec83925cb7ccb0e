"""What a decision costs in this process, over HTTP and gRPC, and by the server's decision model.

    python -m benchmarks.triton_latency [--rounds 3] [--requests 32] [--callers 1 32] [--kill]

Every way answers the same questions about the same states, in turns, so that a disturbance of the
machine hits all of them. Prints a table on standard error and one JSON object on standard output:
milliseconds per request (median over all), requests per second, and both as ratios to this process.
With `--kill` the server is killed under load and started again, and every request is accounted for.
What the queue's settings cost is measured by benchmarks/triton_queue.py. Needs `make triton`.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc as grpcclient

import drut
from benchmarks.triton_servers import ROOT, TritonServer, triton_server

QUESTIONS = {
    "urgent": {"type": "noul", "instructions": "Is the customer in a hurry?"},
    "team": {
        "type": "choice",
        "instructions": "Which team?",
        "criteria": {"billing": "money", "technical": "errors", "shipping": "parcels"},
    },
}
WORDS = [
    "my",
    "order",
    "the",
    "invoice",
    "is",
    "late",
    "wrong",
    "please",
    "refund",
    "today",
    "app",
    "crashes",
    "account",
]
Ask = Callable[[str], Any]


def states(count: int) -> list[str]:
    chance = random.Random(3)
    return [" ".join(chance.choices(WORDS, k=int(3 * 30 ** chance.random()))) for _ in range(count)]


def decision_model(server: TritonServer, stack: ExitStack) -> Ask:
    """Texts to the server's own decision model: nothing of drut runs on this side."""
    client = stack.enter_context(grpcclient.InferenceServerClient(server.grpc))

    def tensor(name: str, text: str) -> grpcclient.InferInput:
        made = grpcclient.InferInput(name, [1, 1], "BYTES")
        made.set_data_from_numpy(np.array([[text.encode()]], np.object_))
        return made

    questions = json.dumps(QUESTIONS)

    def ask(state: str) -> Any:
        inputs = [tensor("STATE", state), tensor("QUESTIONS", questions)]
        return json.loads(client.infer("starter_decision", inputs).as_numpy("ANSWERS").item())

    return ask


def ways(server: TritonServer, stack: ExitStack) -> dict[str, Ask]:
    opened = {
        "in process": drut.load("starter", "cpu", threads=1),
        "http": drut.load("starter", runtime="triton", url=server.url),
        "grpc": drut.load("starter", runtime="triton", url=f"grpc://{server.grpc}"),
    }
    made: dict[str, Ask] = {}
    for name, agent in opened.items():
        stack.callback(agent.close)
        made[name] = lambda state, agent=agent: agent.predict(state, QUESTIONS)
    made["decision model"] = decision_model(server, stack)
    return made


def one_round(ask: Ask, callers: int, asked: list[str]) -> tuple[list[float], float]:
    """Latencies in seconds, and how long all of it took."""

    def timed(state: str) -> float:
        start = time.perf_counter()
        ask(state)
        return time.perf_counter() - start

    start = time.perf_counter()
    with ThreadPoolExecutor(callers) as pool:
        latencies = list(pool.map(timed, asked))
    return latencies, time.perf_counter() - start


def measure(made: dict[str, Ask], callers: int, rounds: int, requests: int) -> dict[str, Any]:
    asked = states(requests)
    for ask in made.values():
        one_round(ask, callers, asked[: max(8, callers)])
    found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in made}
    for _ in range(rounds):
        for name, ask in made.items():
            latencies, seconds = one_round(ask, callers, asked)
            found[name][0].extend(latencies)
            found[name][1].append(requests / seconds)
    base, rate = (found["in process"][0], found["in process"][1])
    return {
        name: {
            "ms": round(1000 * statistics.median(latencies), 2),
            "ms_p95": round(1000 * float(np.percentile(latencies, 95)), 2),
            "per_second": round(statistics.median(rates), 1),
            "latency_ratio": round(statistics.median(latencies) / statistics.median(base), 2),
            "throughput_ratio": round(statistics.median(rates) / statistics.median(rate), 2),
        }
        for name, (latencies, rates) in found.items()
    }


@contextmanager
def served() -> Iterator[TritonServer]:
    """A server over copies of the shipped models, so that it can be killed."""
    with tempfile.TemporaryDirectory(prefix="drut-triton-bench-") as home:
        for name in ("starter", "starter_decision"):
            shutil.copytree(ROOT / "model_repository" / name, Path(home) / name)
        with triton_server(home) as server:
            yield server


def killed(server: TritonServer, url: str, callers: int = 8) -> dict[str, Any]:
    """Kill the server under load and start it again; what became of every request."""
    asked = states(16)
    outcomes: Counter[str] = Counter()
    lock, stop = threading.Lock(), threading.Event()
    with drut.load("starter", runtime="triton", url=url, server_timeout=20.0) as agent:
        wanted = [agent.predict(state, QUESTIONS)["answers"] for state in asked]

        def run(place: int) -> None:
            while not stop.is_set():
                place = (place + callers) % len(asked)
                try:
                    right = agent.predict(asked[place], QUESTIONS)["answers"]
                    outcome = "right" if same(right, wanted[place]) else "wrong"
                except drut.errors.DrutError as exc:
                    outcome = type(exc).__name__
                with lock:
                    outcomes[outcome] += 1

        threads = [threading.Thread(target=run, args=(place,)) for place in range(callers)]
        for thread in threads:
            thread.start()
        time.sleep(3)
        server.kill()
        time.sleep(1)
        server.restart()
        start, before = time.monotonic(), outcomes["right"]
        while outcomes["right"] == before:
            time.sleep(0.005)
        recovered = time.monotonic() - start
        time.sleep(2)
        stop.set()
        for thread in threads:
            thread.join()
    return {**outcomes, "seconds_from_ready_to_answer": round(recovered, 3)}


def same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(same(found[k], wanted[k]) for k in wanted)
    return abs(found - wanted) < 2e-3 if isinstance(wanted, float) else found == wanted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--callers", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--kill", action="store_true")
    given = parser.parse_args()
    report: dict[str, Any] = {"processors": os.cpu_count(), "drut": drut.__version__}
    with served() as server, ExitStack() as stack:
        made = ways(server, stack)
        for callers in given.callers:
            measured = measure(made, callers, given.rounds, given.requests)
            report[f"{callers} callers"] = measured
            for name, values in measured.items():
                print(f"{callers:3} callers  {name:15} {values}", file=sys.stderr, flush=True)
    if given.kill:
        for protocol in ("http", "grpc"):
            with served() as server:
                url = server.url if protocol == "http" else f"grpc://{server.grpc}"
                report[f"killed, {protocol}"] = killed(server, url)
                print(protocol, report[f"killed, {protocol}"], file=sys.stderr, flush=True)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
