"""Measures every variant on every workload, the variants in turn within each round."""

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from benchmarks import workloads
from benchmarks.checkpoints import Prepared
from benchmarks.engines import PEER, Bench, Variant, in_turn
from benchmarks.figures import agreement, quantile, ratio, spread
from benchmarks.peer import Worker, WorkerError

BATCH_SETTINGS: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"batch_size": 4, "sort_by_length": True},
    {"batch_size": 8, "sort_by_length": True},
    {"batch_size": 16, "sort_by_length": True},
)
"""Upstream's documented ways to answer many states; the fastest one here is compared with."""

Found = dict[str, Any]
Workers = dict[str, Worker]


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured of one checkpoint.

    Args:
        rounds: calls of a workload by every variant.
        states: of the batches.
        questions: numbers of questions about the one state of 400 tokens.
        options: numbers of options.
        callers: numbers of threads.
        seconds: that callers ask for.
        cold: fresh processes.
        evaluation: cases to compare answers on, None: all.
    """

    rounds: int
    states: int = 64
    questions: tuple[int, ...] = (1, 2, 4, 8, 16)
    options: tuple[int, ...] = (2, 8, 32, 100, 200)
    callers: tuple[int, ...] = (1, 4, 16, 32, 64)
    seconds: float = 3.0
    cold: int = 5
    evaluation: int | None = None


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


@dataclass(slots=True)
class Session:
    """The workers of one checkpoint and what they found.

    An engine that fails a workload is named under `failed` and left out of that workload only.
    """

    bench: Bench
    prepared: Prepared
    variants: list[Variant]
    plan: Plan
    workers: Workers
    batch_options: dict[str, dict[str, Any]]
    failed: list[str]

    def turns(self, ask: Callable[[str, Worker], Found], rounds: int) -> dict[str, list[Found]]:
        """Results by variant, of a command given to all in turn."""
        found: dict[str, list[Found]] = {label: [] for label in self.workers}
        broken: set[str] = set()
        for label, worker in in_turn(self.workers, rounds):
            if label in broken:
                continue
            try:
                found[label].append(ask(label, worker))
            except WorkerError as exc:
                broken.add(label)
                self.failed.append(f"{label}: {exc}")
                say(f"  failed: {label}: {exc}")
        return {label: made for label, made in found.items() if made and label not in broken}

    def timed(self, name: str, **what: Any) -> Found:
        """Wall and CPU time of a call, a first one left out."""
        say(f"{self.prepared.name}: {name}")

        def ask(label: str, worker: Worker) -> Found:
            options = self.batch_options.get(label, {}) if what["method"] == "batch" else {}
            return worker.ask("time", repeat=1, options=options, **what)

        few = {**what, "states": what["states"][:4]}
        for label, worker in self.workers.items():
            try:
                worker.ask("time", repeat=1, options={}, **few)
            except WorkerError as exc:
                say(f"  warm-up failed: {label}: {exc}")
        made = self.turns(ask, self.plan.rounds)
        return with_ratios(
            {
                label: {kind: spread([each[kind][0] for each in found]) for kind in ("wall", "cpu")}
                for label, found in made.items()
            }
        )


def with_ratios(found: Found) -> Found:
    """Add how many times faster than the peer each variant is, in wall and CPU time."""
    if PEER in found:
        for figures in found.values():
            figures["ratio"] = {
                kind: ratio(found[PEER][kind], figures[kind]) for kind in ("wall", "cpu")
            }
    return found


def tune(session: Session, states: list[str]) -> None:
    """Find the fastest of upstream's batch settings for each upstream variant."""
    for variant in session.variants:
        if not variant.upstream or variant.label not in session.workers:
            continue
        worker, best = session.workers[variant.label], float("inf")
        for options in BATCH_SETTINGS:
            asked = {"method": "batch", "states": states, "questions": workloads.TEAM}
            seconds = min(worker.ask("time", repeat=2, options=options, **asked)["wall"])
            if seconds < best:
                best, session.batch_options[variant.label] = seconds, options


def measure(
    bench: Bench,
    prepared: Prepared,
    variants: list[Variant],
    plan: Plan,
    batch_options: dict[str, dict[str, Any]],
) -> Found:
    """Everything about one checkpoint.

    Args:
        batch_options: upstream's batch settings by variant; found here and left in it if empty.
    """
    with ExitStack() as stack:
        session = Session(bench, prepared, variants, plan, {}, batch_options, [])
        loaded = _load(session, stack)
        if not batch_options:
            tune(session, workloads.mixed_states(plan.states))
        calls = dict(_calls(session))
        found: Found = {
            "loaded": loaded,
            "agreement": _agreement(session),
            "calls": calls,
            "callers": {str(count): _callers(session, count) for count in plan.callers},
            "batch_options": batch_options,
            "failed": session.failed,
        }
    found["cold"] = _cold(session)
    return found


def _load(session: Session, stack: ExitStack) -> Found:
    loaded = {}
    for variant in session.variants:
        say(f"{session.prepared.name}: load {variant.label}")
        asked = session.bench.loading(variant, session.prepared)
        worker = stack.enter_context(session.bench.start(variant))
        try:
            loaded[variant.label] = worker.ask("load", **asked)
        except WorkerError as exc:
            session.failed.append(f"{variant.label}: {exc}")
            say(f"  failed: {exc}")
            continue
        session.workers[variant.label] = worker
    return loaded


def _calls(session: Session) -> Iterable[tuple[str, Found]]:
    plan, count = session.plan, session.plan.states
    mixed, real = workloads.mixed_states(count), workloads.real_states(count)
    long = [workloads.text_of_words(300, seed=1)]
    yield (
        "one short state",
        session.timed(
            "one short state", method="one", states=[workloads.SHORT], questions=workloads.TEAM
        ),
    )
    batches = {f"{count} mixed lengths": mixed, f"{count} evaluation texts": real}
    for name, states in batches.items():
        yield name, session.timed(name, method="batch", states=states, questions=workloads.TEAM)
    for number in plan.questions:
        name = f"{number} questions, one long state"
        asked = workloads.questions(number)
        yield name, session.timed(name, method="one", states=long, questions=asked)
    for number in plan.options:
        name, asked = f"{number} options", workloads.many_options(number)
        yield name, session.timed(name, method="one", states=[workloads.SHORT], questions=asked)


def _agreement(session: Session) -> Found:
    """Every variant's answers to the evaluation cases, beside the peer's."""
    say(f"{session.prepared.name}: answers")
    cases = workloads.evaluation()[: session.plan.evaluation]
    made = session.turns(lambda _, worker: worker.ask("answers", cases=cases), 1)
    if PEER not in made:
        return {}
    wanted = made[PEER][0]["answers"]
    return {label: agreement(found[0]["answers"], wanted) for label, found in made.items()}


def _callers(session: Session, count: int) -> Found:
    """Throughput, latencies and CPU time with so many threads; medians over the rounds."""
    say(f"{session.prepared.name}: {count} callers")
    states = workloads.mixed_states(400)
    asked = {"states": states, "questions": workloads.TEAM, "callers": count}
    seconds = session.plan.seconds
    rounds = max(1, session.plan.rounds // 3)
    made = session.turns(lambda _, worker: worker.ask("callers", seconds=seconds, **asked), rounds)
    found: Found = {}
    for label, results in made.items():
        rates = [len(each["taken"]) / each["wall"] for each in results]
        taken = [seconds for each in results for seconds in each["taken"]]
        found[label] = {
            "per_second": spread(rates),
            "cpu": spread([each["cpu"] / len(each["taken"]) for each in results]),
            **{f"p{share}": quantile(taken, share / 100) for share in (50, 95, 99)},
        }
    if PEER in found:
        theirs = found[PEER]["per_second"]["median"]
        for figures in found.values():
            figures["ratio"] = figures["per_second"]["median"] / theirs
    return found


def _cold(session: Session) -> Found:
    """Start of a process to its first answer, and its resident memory after some calls."""
    bench, prepared = session.bench, session.prepared
    taken: dict[str, list[float]] = {}
    resident: dict[str, list[float]] = {}
    labels = [variant for variant in session.variants if variant.label in session.workers]
    for number in range(session.plan.cold):
        say(f"{prepared.name}: cold start {number + 1}")
        for variant in labels:
            loading = bench.loading(variant, prepared)
            start = time.perf_counter()
            with bench.start(variant) as worker:
                worker.ask("load", **loading)
                asked = {"states": [workloads.SHORT], "questions": workloads.TEAM}
                worker.ask("time", method="one", repeat=1, **asked)
                taken.setdefault(variant.label, []).append(time.perf_counter() - start)
                worker.ask("time", method="one", repeat=5, **asked)
                held = worker.ask("memory")["resident"]
                resident.setdefault(variant.label, []).append(held)
    return _cold_figures(taken, resident)


def _cold_figures(taken: Mapping[str, list[float]], resident: Mapping[str, list[float]]) -> Found:
    found: Found = {
        label: {"first_answer": spread(taken[label]), "resident": spread(resident[label])}
        for label in taken
    }
    if PEER in found:
        for figures in found.values():
            figures["ratio"] = {
                kind: ratio(found[PEER][kind], figures[kind])
                for kind in ("first_answer", "resident")
            }
    return found
