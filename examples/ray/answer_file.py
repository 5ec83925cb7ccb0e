"""Answer questions about every line of a large JSON Lines file, with Ray Data and actors.

    python examples/ray/answer_file.py INPUT.jsonl OUTPUT --questions QUESTIONS.json
        [--bundle starter] [--actors 2] [--threads 1] [--lines 512] [--address auto]

Each actor opens the bundle once. A line of the input is {"id": ..., "state": ...}; a line of the
output is {"id": ..., "line": ..., "answers": ...}, or "error" instead of answers where the line
cannot be answered. A killed actor is started again by Ray and its part answered again; after a
killed driver the same command goes on with the parts that are missing.

Needs `pip install 'drut[cpu]' 'ray[data]'`. On a cluster the input and OUTPUT have to be on a file
system that all nodes share, and `--address auto` joins it.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray

sys.path.insert(0, str(Path(__file__).parent))

import parts


class Answerer:
    """Lives in an actor, with one Agent."""

    def __init__(
        self, source: str, output: str, questions: dict, bundle: str, threads: int
    ) -> None:
        import drut

        self.source, self.output, self.questions = Path(source), Path(output), questions
        self.agent = drut.load(bundle, device="cpu", threads=threads, concurrent_passes=1)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        rows = [
            dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)
        ]
        for row in rows:
            part = parts.Part(**{name: int(value) for name, value in row.items()})
            answers = list(self.answer(part))
            parts.write(self.output, part, answers)
        return {"lines": batch["lines"]}

    def answer(self, part: parts.Part) -> Iterator[dict[str, Any]]:
        """One answer for every line, in order."""
        given = [self.parse(text) for text in parts.read(self.source, part)]
        states = [each["state"] for each in given if "error" not in each]
        results = iter(self.predict(states))
        for number, each in enumerate(given, start=part.line):
            told = {"id": each.get("id"), "line": number}
            yield {**told, **({"error": each["error"]} if "error" in each else next(results))}

    def predict(self, states: Sequence[Any]) -> list[dict[str, Any]]:
        from drut.errors import InvalidRequestError

        try:
            results = self.agent.predict_batch(states, self.questions)
        except InvalidRequestError as exc:
            if len(states) == 1:
                return [{"error": str(exc)}]
            return [each for state in states for each in self.predict([state])]
        return [{"answers": result["answers"]} for result in results]

    @staticmethod
    def parse(text: bytes) -> dict[str, Any]:
        """What a line holds; under `error` why it cannot be answered."""
        try:
            value = json.loads(text)
        except ValueError as exc:
            return {"error": f"not JSON: {exc}"}
        if not isinstance(value, dict) or "state" not in value:
            return {"error": 'a line has to be an object with "state"'}
        return value if "error" not in value else {"id": value.get("id"), "state": value["state"]}


def run(given: argparse.Namespace) -> int:
    """Answer what is missing; returns how many lines that were."""
    source, output = given.source.resolve(), given.output.resolve()
    questions = json.loads(given.questions.read_text(encoding="utf-8"))
    parts.open_plan(output, source, questions=questions, bundle=given.bundle, lines=given.lines)
    missing = parts.unfinished(output, parts.split(source, given.lines))
    if not missing:
        return 0
    ray.init(
        address=given.address,
        include_dashboard=False,
        log_to_driver=False,
        **({} if given.address else {"_node_ip_address": "127.0.0.1"}),
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    answered = ray.data.from_items(missing, override_num_blocks=len(missing)).map_batches(
        Answerer,
        fn_constructor_args=(str(source), str(output), questions, given.bundle, given.threads),
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=given.actors),
        num_cpus=given.threads,
    )
    return sum(int(row["lines"]) for row in answered.iter_rows())


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("source", type=Path, metavar="INPUT")
    add("output", type=Path, metavar="OUTPUT")
    add("--questions", type=Path, required=True, help="JSON file, as for drut predict")
    add("--bundle", default="starter", help="name or directory; every node needs it")
    add("--actors", type=int, default=2)
    add("--threads", type=int, default=1, help="processors of an actor")
    add("--lines", type=int, default=512, help="of a part: what a killed worker loses at most")
    add("--address", help="of a Ray cluster, or auto; default: this machine alone")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    try:
        print(f"{run(parse())} lines answered")
    except (OSError, ValueError) as exc:
        sys.exit(f"answer_file: {exc}")
