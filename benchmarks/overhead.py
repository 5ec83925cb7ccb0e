"""Microseconds that everything but the forward pass takes, printed as JSON.

    python -m benchmarks.overhead [--repeat 500]

The runtime answers at once, so a call's time is encoding, hooks, decoding and routing. The
tokenizer and settings are those of the starter. Figures are medians. Nothing is asserted.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable

import drut
from drut.loading import open_by_name
from drut.tensors import Batch, Logits

STATE = "Hi, I was charged twice for my March invoice, please refund the second payment today."
QUESTIONS = {
    "team": {
        "type": "choice",
        "instructions": "Which team should handle this?",
        "criteria": ["billing", "technical support", "sales", "account"],
    }
}


def instant(batch: Batch) -> Logits:
    """Logits of one action, as the starter has."""
    plain = drut.FakeRuntime().forward(batch)
    return Logits(plain.options, plain.actions[:, :1])


def microseconds(call: Callable[[], object], repeat: int) -> float:
    """Median of so many calls, after a tenth as many to warm up."""
    taken = []
    for index in range(repeat + repeat // 10):
        start = time.perf_counter()
        call()
        if index >= repeat // 10:
            taken.append(time.perf_counter() - start)
    return round(statistics.median(taken) * 1e6, 1)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=500)
    repeat = parser.parse_args().repeat
    agent = drut.Agent(open_by_name("starter"), runtime=drut.FakeRuntime(instant))
    router = drut.Router(factory=lambda name: agent)
    batch = [f"{STATE} Reference {index}." for index in range(64)]
    hooks = [drut.BaseHook() for _ in range(3)]
    calls: dict[str, Callable[[], object]] = {
        "agent.predict": lambda: agent.predict(STATE, QUESTIONS),
        "agent.predict, 3 hooks": lambda: agent.predict(STATE, QUESTIONS, hooks=hooks),
        "agent.predict, no questions": lambda: agent.predict(STATE, {}),
        "router.predict, model named": lambda: router.predict(STATE, QUESTIONS, model="english"),
        "router.predict, text decides": lambda: router.predict(STATE, QUESTIONS),
        "router.route, text decides": lambda: router.route(STATE),
    }
    report = {name: microseconds(call, repeat) for name, call in calls.items()}
    shared = microseconds(lambda: agent.predict_batch(batch, QUESTIONS), max(10, repeat // 20))
    report["agent.predict_batch of 64, per state"] = round(shared / 64, 1)
    print(json.dumps({"machine": platform.machine(), "microseconds": report}, indent=2))


if __name__ == "__main__":
    main()
