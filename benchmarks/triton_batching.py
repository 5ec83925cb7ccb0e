"""How many rows Triton puts into one pass when callers send texts of mixed lengths.

    python -m benchmarks.triton_batching [--callers 32] [--requests 800] [--rounds 3]

Several ways to send the same questions to the same server, one after the other and then again, so
that a disturbance of the machine hits all of them; prints one JSON object. `plain` sends each row
as long as it is, `buckets` pads it to the next of a few lengths, `decision P` sends texts to the
decision model, which plans passes of at most the share P of padding itself. Mean batch comes from
the server's own statistics.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc as grpcclient

from benchmarks.triton_servers import ROOT, TritonServer, triton_server
from drut.batching import collate
from drut.encoding.sequence import Encoder, TokenBudget
from drut.loading import open_by_name
from drut.questions import parse_questions

TOKENS = (32, 64, 128, 256, 512)
OPTIONS = (16,)
PADDING = ("0.1", "0.3", "0.5", "0.75", "1.0")
WORDS = [
    *("the", "invoice", "was", "charged", "twice", "and", "nobody", "answers", "my", "calls"),
    *("about", "order", "refund", "delivery", "late", "screen", "shows", "error", "after"),
    *("update", "please", "help", "today", "customer", "account", "password", "reset", "failed"),
]


def workload(count: int) -> list[tuple[str, dict[str, Any]]]:
    """States of 3 to 150 words, each with one question of a random type."""
    chance = random.Random(7)
    asked = []
    for _ in range(count):
        words = int(3 * 50 ** chance.random())
        labels = chance.sample(WORDS, chance.randint(2, 8))
        question = chance.choice(
            (
                {"type": "noul", "instructions": "Is the customer in a hurry?"},
                {"type": "choice", "instructions": "What is it about?", "criteria": labels},
                {"type": "score", "instructions": "How bad is it?", "criteria": labels[:4]},
            )
        )
        asked.append((" ".join(chance.choices(WORDS, k=words)), {"q": question}))
    return asked


def encoded(asked: Sequence[tuple[str, dict[str, Any]]]) -> list[Any]:
    checkpoint = open_by_name(ROOT / "model_repository" / "starter")
    encoder = Encoder(checkpoint.tokenizer, parallel=False)
    budget = TokenBudget(checkpoint.config.max_len, checkpoint.config.head_max_len)
    rows = []
    for text, questions in asked:
        (question,) = parse_questions(questions)
        (head,) = encoder.encode_heads([question], budget)
        (state,) = encoder.encode_states([text])
        rows.append(encoder.join(state, question, head, budget))
    return rows


def tensors(row: Any, bucket: bool) -> list[grpcclient.InferInput]:
    feed = collate([row], pad_id=0).feed()
    inputs = []
    for name, array in feed.items():
        wide = array[:, None] if array.ndim == 1 else array
        if bucket and array.ndim > 1:
            sizes = TOKENS if name in ("input_ids", "attention_mask") else OPTIONS
            width = next(size for size in sizes if size >= array.shape[1])
            wide = np.pad(array, ((0, 0), (0, width - array.shape[1])))
        given = grpcclient.InferInput(name, wide.shape, "BOOL" if wide.dtype == bool else "INT64")
        given.set_data_from_numpy(wide)
        inputs.append(given)
    return inputs


def texts(text: str, questions: dict[str, Any]) -> list[grpcclient.InferInput]:
    inputs = []
    for name, value in (("STATE", text), ("QUESTIONS", json.dumps(questions))):
        given = grpcclient.InferInput(name, [1, 1], "BYTES")
        given.set_data_from_numpy(np.array([[value.encode()]], np.object_))
        inputs.append(given)
    return inputs


def together(callers: int, count: int, call: Callable[[int], object]) -> list[float]:
    """Run `call(i)` for i below `count` on so many threads; seconds each of them took."""
    seconds, numbers, lock = [0.0] * count, iter(range(count)), threading.Lock()

    def work() -> None:
        while True:
            with lock:
                index = next(numbers, None)
            if index is None:
                return
            start = time.perf_counter()
            call(index)
            seconds[index] = time.perf_counter() - start

    threads = [threading.Thread(target=work) for _ in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seconds


def cpu_seconds(group: int) -> float:
    """Processor time of a server and its Python processes."""
    ticks = 0
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and os.getpgid(int(entry.name)) == group:
                fields = (entry / "stat").read_text(encoding="ascii").rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
        except (ProcessLookupError, FileNotFoundError):
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(server: TritonServer, given: argparse.Namespace) -> dict[str, Any]:
    callers, count = given.callers, given.requests
    asked = workload(count)
    rows = encoded(asked)
    told = [texts(*each) for each in asked]
    ways = {
        "plain": ("starter", [tensors(row, bucket=False) for row in rows]),
        "buckets": ("starter", [tensors(row, bucket=True) for row in rows]),
        **{f"decision {share}": (f"decision_{share}", told) for share in PADDING},
    }
    found: dict[str, list[tuple[float, ...]]] = {way: [] for way in ways}
    with grpcclient.InferenceServerClient(server.grpc) as client:
        for _ in range(given.rounds):
            for way, (model, inputs) in ways.items():
                before, used = server.statistics("starter"), cpu_seconds(server.pid)
                start = time.perf_counter()
                seconds = together(
                    callers, count, lambda i, m=model, sent=inputs: client.infer(m, sent[i])
                )
                wall = time.perf_counter() - start
                after = server.statistics("starter")
                batch = (after["rows"] - before["rows"]) / (after["passes"] - before["passes"])
                spent = (cpu_seconds(server.pid) - used) / count
                middle = statistics.median(seconds)
                found[way].append((batch, count / wall, middle * 1000, spent * 1000))
    return {
        way: {
            name: round(statistics.median(column), 2)
            for name, column in zip(
                ("mean_batch", "requests_per_second", "median_ms", "server_cpu_ms"),
                zip(*measured, strict=True),
                strict=True,
            )
        }
        for way, measured in found.items()
    }


def make_repository(place: Path) -> None:
    """The starter, and its decision model once for each share of padding."""
    shipped = ROOT / "model_repository"
    (place / "starter").symlink_to(shipped / "starter")
    for share in PADDING:
        name = f"decision_{share}"
        shutil.copytree(shipped / "starter_decision", place / name)
        path = place / name / "config.pbtxt"
        text = path.read_text(encoding="utf-8").replace("starter_decision", name)
        given = f'parameters {{ key: "max_padding" value: {{ string_value: "{share}" }} }}'
        path.write_text(f"{text}{given}\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--callers", type=int, default=32)
    parser.add_argument("--requests", type=int, default=800)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        make_repository(Path(place))
        with triton_server(place) as server:
            print(json.dumps(measure(server, given), indent=2))


if __name__ == "__main__":
    main()
