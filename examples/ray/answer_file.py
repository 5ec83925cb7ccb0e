"""Answer questions about every line of a large JSON Lines file, with Ray Data and actors.

    python examples/ray/answer_file.py INPUT.jsonl OUTPUT --questions QUESTIONS.json
        [--bundle starter] [--version N] [--actors 2] [--threads 1] [--lines 512] [--address auto]

Each actor opens the bundle once. A line of the input is {"id": ..., "state": ...}; a line of the
output is {"id": ..., "line": ..., "answers": ...}, or "error" instead of answers where the line
cannot be answered. A killed actor is started again by Ray and its part answered again; a part that
has ended four workers ends the run. After that, as after a killed driver, the same command goes on
with the parts that are missing.

Needs `pip install 'drut[cpu]' 'ray[data]'`. On a cluster the input and OUTPUT have to be on a file
system that all nodes share, and `--address auto` joins it.
"""

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from drut.checkpoint.bundle import read_version
from drut.errors import DrutError, InvalidRequestError
from drut.loading import find_version
from drut.questions import parse_questions

sys.path.insert(0, str(Path(__file__).parent))

import parts


class Answerer:
    """Lives in an actor, with one Agent."""

    def __init__(self, source: str, output: str, questions: dict[str, Any], **options: Any) -> None:
        import drut

        self.source, self.output, self.questions = Path(source), Path(output), questions
        self.agent = drut.load(device="cpu", concurrent_passes=1, **options)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        rows = [
            dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)
        ]
        for row in rows:
            part = parts.Part(**{name: int(value) for name, value in row.items()})
            parts.begin(self.output, part)
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


def plan(given: argparse.Namespace) -> tuple[list[dict[str, int]], dict[str, Any]]:
    """Parts that are missing, and the arguments of every Answerer."""
    source, output = given.source.resolve(), given.output.resolve()
    questions = json.loads(given.questions.read_text(encoding="utf-8"))
    parse_questions(questions)
    bundle = find_version(given.bundle, version=given.version)
    parts.open_plan(
        output,
        source,
        questions=questions,
        bundle=given.bundle,
        manifest_sha256=hashlib.sha256((bundle / "manifest.json").read_bytes()).hexdigest(),
        lines=given.lines,
    )
    return parts.unfinished(output, parts.split(source, given.lines)), {
        "source": str(source),
        "output": str(output),
        "questions": questions,
        "model_id_or_path": given.bundle,
        # An actor that is started later does not open a version exported meanwhile.
        "version": read_version(bundle).version,
        "threads": given.threads,
    }


def start(address: str | None) -> ModuleType:
    """Ray, connected to the cluster at the address, or of this machine alone."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address is None:
        # Ray listens at every interface of a machine that might become part of a cluster.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    import ray

    ray.init(address=address, include_dashboard=False, log_to_driver=False)
    return ray


def run(given: argparse.Namespace) -> int:
    """Answer what is missing; returns how many lines that were."""
    missing, arguments = plan(given)
    if not missing:
        return 0
    ray = start(given.address)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.max_consecutive_actor_init_deaths = parts.WORKERS - 1
    ray.cloudpickle.register_pickle_by_value(parts)  # other nodes do not have this file
    answered = ray.data.from_items(missing, override_num_blocks=len(missing)).map_batches(
        Answerer,
        fn_constructor_kwargs=arguments,
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=given.actors),
        num_cpus=given.threads,
    )
    lines = sum(int(row["lines"]) for row in answered.iter_rows())
    parts.sweep(Path(arguments["output"]))
    return lines


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("source", type=Path, metavar="INPUT")
    add("output", type=Path, metavar="OUTPUT")
    add("--questions", type=Path, required=True, help="JSON file, as for drut predict")
    add("--bundle", default="starter", help="name or directory; every node needs it")
    add("--version", type=int, help="of the bundle; default: the highest")
    add("--actors", type=int, default=2)
    add("--threads", type=int, default=1, help="processors of an actor")
    add("--lines", type=int, default=512, help="of a part: what a killed worker loses at most")
    add("--address", help="of a Ray cluster, or auto; default: this machine alone")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    try:
        print(f"{run(parse())} lines answered")
    except (OSError, ValueError, DrutError) as exc:
        sys.exit(f"answer_file: {exc}")
