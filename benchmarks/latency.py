"""Time of calls on this machine, printed as JSON: whole calls, the forward pass in them, the rest.

    python benchmarks/latency.py [--checkpoint starter] [--device cpu] [--repeat 30]

Figures are medians in milliseconds. Nothing is asserted.
"""

import argparse
import json
import os
import platform
import statistics
import time

import drut
from drut.runtimes.base import Runtime, RuntimeInfo
from drut.tensors import Batch, Logits

MESSAGE = (
    "Hi, I was charged twice for my March invoice. Please refund the second payment today, "
    "otherwise I will cancel my plan."
)
QUESTIONS = {
    "team": {
        "type": "choice",
        "instructions": "Which team should handle this?",
        "criteria": ["billing", "technical support", "sales", "account"],
    }
}


class TimedRuntime:
    """Adds up the seconds spent in another runtime."""

    def __init__(self, inner: Runtime) -> None:
        self._inner = inner
        self.seconds = 0.0

    @property
    def info(self) -> RuntimeInfo:
        return self._inner.info

    def forward(self, batch: Batch) -> Logits:
        start = time.perf_counter()
        try:
            return self._inner.forward(batch)
        finally:
            self.seconds += time.perf_counter() - start

    def close(self) -> None:
        self._inner.close()


def measure(agent: drut.Agent, runtime: TimedRuntime, states: int, repeat: int) -> dict[str, float]:
    """Median milliseconds of a call over so many states, after two calls to warm up."""
    batch = [f"{MESSAGE} Reference {index}." for index in range(states)]
    wall, forward = [], []
    for _ in range(repeat + 2):
        runtime.seconds = 0.0
        start = time.perf_counter()
        agent.predict_batch(batch, QUESTIONS)
        wall.append((time.perf_counter() - start) * 1e3)
        forward.append(runtime.seconds * 1e3)
    total, inside = statistics.median(wall[2:]), statistics.median(forward[2:])
    return {
        "states": states,
        "call_ms": round(total, 3),
        "forward_ms": round(inside, 3),
        "rest_share": round(1 - inside / total, 4),
        "per_state_ms": round(total / states, 3),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", default="starter")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeat", type=int, default=30)
    arguments = parser.parse_args()
    start = time.perf_counter()
    opened = drut.load(arguments.checkpoint, device=arguments.device)
    load_ms = (time.perf_counter() - start) * 1e3
    runtime = TimedRuntime(opened.runtime)
    agent = drut.Agent(opened.checkpoint, runtime=runtime)
    report = {
        "machine": f"{platform.machine()}, {os.cpu_count()} processors",
        "agent": agent.describe(),
        "threads": opened.runtime.info.details.get("threads"),
        "load_ms": round(load_ms, 1),
        "calls": [measure(agent, runtime, states, arguments.repeat) for states in (1, 8, 64)],
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
