"""Calls of several threads at once, with the queue and without it, printed as JSON.

    python -m benchmarks.concurrency [--on cpu|device] [--callers 1,8,32] [--rounds 5]

`cpu` runs the starter on this machine. `device` stands in for an accelerator that runs one pass at
a time, each of 5 ms and 0.02 ms a row more: it shows what sharing passes is worth there, and
nothing of any real device. Every caller asks again as soon as it has its answer, about a state of
random length. The two take turns within a round; figures are medians over the rounds. On a machine
that others use too, CPU time is the one to compare. Nothing is asserted.
"""

import argparse
import json
import os
import platform
import random
import statistics
import threading
import time

import drut
from drut.loading import open_by_name
from drut.runtimes.base import Runtime, RuntimeInfo
from drut.runtimes.opening import RuntimeOptions, open_runtime
from drut.tensors import Batch, Logits

QUESTIONS = {
    "team": {
        "type": "choice",
        "instructions": "Which team should handle this?",
        "criteria": ["billing", "technical support", "sales", "account"],
    }
}
TEXT = (
    "hello the customer was billed twice in march and nobody answered so please refund the second "
    "payment today or we cancel the plan thank you"
)


class StandIn:
    """Sleeps as long as an accelerator would compute, one pass at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    @property
    def info(self) -> RuntimeInfo:
        return RuntimeInfo("stand-in", "cuda:0")

    def forward(self, batch: Batch) -> Logits:
        with self._lock:
            time.sleep(0.005 + 0.00002 * len(batch))
        plain = drut.FakeRuntime().forward(batch)
        return Logits(plain.options, plain.actions[:, :1])

    def close(self) -> None:
        """There is nothing to free."""


def states(count: int) -> list[str]:
    """Texts of 4 to 180 words, most of them short."""
    dice, words = random.Random(3), TEXT.split()
    lengths = [min(180, max(4, int(dice.lognormvariate(3.2, 0.7)))) for _ in range(count)]
    return [" ".join(dice.choice(words) for _ in range(length)) for length in lengths]


def measure(agent: drut.Agent, texts: list[str], callers: int, seconds: float) -> dict[str, float]:
    """Requests a second, latencies in milliseconds, CPU milliseconds a request."""
    taken: list[float] = []
    gate = threading.Barrier(callers)

    def ask(seed: int) -> None:
        dice, own = random.Random(seed), []
        gate.wait()
        stop = time.perf_counter() + seconds
        while (start := time.perf_counter()) < stop:
            agent.predict(dice.choice(texts), QUESTIONS)
            own.append(time.perf_counter() - start)
        taken.extend(own)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(callers)]
    cpu, wall = time.process_time(), time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    taken.sort()
    return {
        "requests_per_s": len(taken) / wall,
        "p50_ms": taken[len(taken) // 2] * 1e3,
        "p99_ms": taken[int(len(taken) * 0.99)] * 1e3,
        "cpu_ms": cpu / len(taken) * 1e3,
    }


def compare(runtime: Runtime, callers: int, rounds: int, seconds: float) -> dict[str, object]:
    """Both ways with so many callers."""
    checkpoint, texts = open_by_name("starter"), states(400)
    agents = {
        way: drut.Agent(checkpoint, runtime=runtime, queue=way == "queue")
        for way in ("direct", "queue")
    }
    found: dict[str, list[dict[str, float]]] = {way: [] for way in agents}
    for number in range(rounds + 1):
        for way, agent in agents.items():
            made = measure(agent, texts, callers, seconds if number else min(seconds, 0.3))
            if number:  # the first round warms up
                found[way].append(made)
    report: dict[str, object] = {
        way: {name: round(statistics.median(each[name] for each in made), 2) for name in made[0]}
        for way, made in found.items()
    }
    counted = agents["queue"].statistics()
    report["rows_per_pass"] = round(counted["queue"]["rows_per_pass"], 2)
    report["padding"] = round(counted["padding"], 3)
    return report


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--on", choices=["cpu", "device"], default="cpu")
    parser.add_argument("--callers", default="1,8,32")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    arguments = parser.parse_args()
    runtime: Runtime = StandIn()
    if arguments.on == "cpu":
        options = RuntimeOptions(device="cpu", threads=arguments.threads)
        runtime = open_runtime("onnxruntime", open_by_name("starter"), options)
    report = {
        "machine": f"{platform.machine()}, {os.cpu_count()} processors",
        "passes_in_flight": runtime.info.concurrent_passes,
        "callers": {
            count: compare(runtime, int(count), arguments.rounds, arguments.seconds)
            for count in arguments.callers.split(",")
        },
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
