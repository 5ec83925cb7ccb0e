"""Check a running Triton server that serves a bundle and its decision model.

    python smoke.py --http http://HOST:8000 --grpc grpc://HOST:8001

    server     it answers over HTTP and gRPC
    models     the bundle's graph and its decision model are ready
    versions   their files were written by this version of drut
    graph      recorded questions, tokenised here, are answered as recorded over HTTP and gRPC
    decision   so are they as texts
    batches    callers with texts of mixed lengths share forward passes
    memory     equal loads do not make it grow again and again

Needs drut with its extra `triton`, and the bundle for its tokenizer. The exit code is 0 where
every check passed, 1 where one did not, 2 where the command is wrong.

    python smoke.py --record [--bundle NAME] [--rows FILE]

writes what the bundle answers in this process, and checks nothing.
"""

import argparse
import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from smoke_server import (
    CALLERS,
    CheckFailedError,
    Setting,
    connected,
    largest_difference,
    load,
    memory_in_use,
    over_http,
    recorded_rows,
    rows_and_passes,
    shares_of,
)

import drut
from drut.checkpoint.opened import Checkpoint
from drut.errors import DrutError
from drut.loading import open_by_name
from drut.runtimes.triton_inspect import inspect_server
from drut.runtimes.triton_options import TritonOptions

ROWS: Final = Path(__file__).with_name("smoke_rows.json")
LOADS: Final = 3
"""Equal loads after the warm-up; memory that grows with every one of them leaks."""

ROOM_BYTES: Final = 8 << 20
"""What one load may leave behind."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One check."""

    check: str
    passed: bool | None  # None: it was not made
    detail: str
    expected: str = ""
    found: str = ""
    do: str = ""


def check_server(setting: Setting) -> str:
    """Both protocols are answered."""
    versions = {}
    for url in (setting.http, setting.grpc):
        try:
            versions[url] = inspect_server(TritonOptions(url, timeout=setting.left())).version
        except DrutError as exc:
            raise CheckFailedError(
                f"a Triton server at {url}", str(exc), "start it, or correct --http and --grpc"
            ) from exc
    if len(set(versions.values())) > 1:
        raise CheckFailedError(
            "one server behind both addresses",
            ", ".join(f"Triton {version} at {url}" for url, version in versions.items()),
            "correct --http and --grpc",
        )
    setting.told["triton"] = versions[setting.http]
    return f"Triton {versions[setting.http]} over HTTP and gRPC"


def check_models(setting: Setting) -> str:
    """Graph and decision model are ready."""
    for url in (setting.http, setting.grpc):
        report = inspect_server(TritonOptions(url, timeout=setting.left()))
        for model in (setting.graph, setting.decision):
            states = [each for each in report.models if each.name == model]
            if not any(each.state == "READY" for each in states):
                found = [f"{each.state or 'never loaded'} {each.reason}".strip() for each in states]
                raise CheckFailedError(
                    f"the model {model} to be ready at {url}",
                    "; ".join(found) or f"no model of that name ({_names(report.models)})",
                    f"read the server's log; the files are written by: drut repository write "
                    f"{setting.graph}, and checked by: drut repository check",
                )
    return f"{setting.graph} and {setting.decision} are ready"


def check_versions(setting: Setting) -> str:
    """The configs were written by this version of drut."""
    for model in (setting.graph, setting.decision):
        parameters = setting.ask_model(model, "/config").get("parameters", {})
        found = parameters.get("drut_version", {}).get("string_value", "none")
        setting.told.setdefault("drut", {})[model] = found
        if found != setting.drut_version:
            raise CheckFailedError(
                f"{model} to be written by drut {setting.drut_version}",
                f"drut {found} in its config",
                f"write it anew with: drut repository write {setting.graph}; or tell which version "
                "is right with --drut-version",
            )
    return f"drut {setting.drut_version} here and in the configs"


def check_graph(setting: Setting) -> str:
    """The graph answers as recorded, asked by an agent of this process."""
    worst = 0.0
    for url in (setting.http, setting.grpc):
        with drut.load(setting.checkpoint, "auto", runtime="triton", url=url) as agent:
            for state, questions, wanted in recorded_rows(setting):
                found = agent.predict(state, questions)["answers"]
                worst = max(worst, largest_difference(found, wanted, f"{setting.graph} at {url}"))
    return f"largest difference of a probability {worst:.1e}, HTTP and gRPC"


def check_decision(setting: Setting) -> str:
    """The decision model answers as recorded, asked with texts."""
    worst = 0.0
    with connected(setting) as decisions:
        for state, questions, wanted in recorded_rows(setting):
            for way, ask in (("HTTP", over_http(setting)), ("gRPC", decisions.ask)):
                where = f"{setting.decision} over {way}"
                worst = max(worst, largest_difference(ask(state, questions), wanted, where))
    return f"largest difference of a probability {worst:.1e}, HTTP and gRPC"


def check_batches(setting: Setting) -> str:
    """Callers share the graph's passes, by the server's own statistics."""
    before = rows_and_passes(setting)
    load(setting)
    rows, passes = (
        late - early for late, early in zip(rows_and_passes(setting), before, strict=True)
    )
    mean = rows / passes if passes else 0.0
    setting.told["mean_batch"] = round(mean, 2)
    if mean < setting.least_batch:
        raise CheckFailedError(
            f"passes of {setting.least_batch:g} rows or more in the mean with {CALLERS} callers",
            f"{rows} rows in {passes} passes, {mean:.1f} rows a pass",
            f"look for dynamic_batching in both models' configs and for `max_padding` in that of "
            f"{setting.decision}; on a fast GPU tell what is enough with --least-batch",
        )
    return f"{mean:.1f} rows a pass with {CALLERS} callers"


def check_memory(setting: Setting) -> str:
    """Memory stops growing once the server is warm."""
    load(setting)
    seen = [memory_in_use(setting)]
    for _ in range(LOADS):
        load(setting)
        seen.append(memory_in_use(setting))
    told = []
    for what in seen[0]:
        sizes = [each.get(what, 0) for each in seen]
        told.append(f"{what} {' '.join(f'{size / 2**20:.0f}' for size in sizes)} MiB")
        grown = [late - early for early, late in pairwise(sizes)]
        if min(grown) > ROOM_BYTES:
            raise CheckFailedError(
                f"{what} to grow by less than {ROOM_BYTES >> 20} MiB in one of {LOADS} equal loads",
                told[-1],
                "run this again; if it grows on, look which of the server's processes does",
            )
    setting.told["memory"] = told
    return "; ".join(told)


Check: TypeAlias = Callable[[Setting], str]

CHECKS: Final[dict[str, tuple[Check, tuple[str, ...]]]] = {
    "server": (check_server, ()),
    "models": (check_models, ("server",)),
    "versions": (check_versions, ("models",)),
    "graph": (check_graph, ("models",)),
    "decision": (check_decision, ("models",)),
    "batches": (check_batches, ("models",)),
    "memory": (check_memory, ("models",)),
}
"""Every check, and those it makes no sense without."""


def run(setting: Setting, left_out: Sequence[str] = ()) -> Iterator[Outcome]:
    """The outcome of every check, in order."""
    bad: set[str] = set()
    for name, (check, needs) in CHECKS.items():
        if name in left_out:
            yield Outcome(name, None, "left out with --skip")
            continue
        broken = [each for each in needs if each in bad]
        if broken:
            bad.add(name)
            yield Outcome(name, None, f"not made, because {broken[0]} did not pass")
            continue
        outcome = _made(name, check, setting)
        if not outcome.passed:
            bad.add(name)
        yield outcome


def record(checkpoint: Checkpoint, path: Path) -> None:
    """Write what a bundle answers in this process to the questions that the file has."""
    told = json.loads(path.read_text(encoding="utf-8"))
    questions, states = told["questions"], [row["state"] for row in told["rows"]]
    with drut.load(checkpoint, "cpu") as agent:
        results = agent.predict_batch(states, questions)
    rows = [
        {"state": state, "probabilities": shares_of(result["answers"])}
        for state, result in zip(states, results, strict=True)
    ]
    name = getattr(checkpoint.bundle, "name", checkpoint.model_id)
    told = {"bundle": name, "drut": drut.__version__, "questions": questions, "rows": rows}
    path.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _made(name: str, check: Check, setting: Setting) -> Outcome:
    """A check's outcome, whatever becomes of it, when the time is over at the latest."""
    found: list[Outcome] = []

    def work() -> None:
        try:
            with drut.deadline(max(1e-3, setting.until - time.monotonic())):
                found.append(Outcome(name, True, check(setting)))
        except CheckFailedError as exc:
            found.append(Outcome(name, False, str(exc), exc.expected, exc.found, exc.do))
        except Exception as exc:  # noqa: BLE001 - told as what it is
            failed = CheckFailedError(
                f"the check {name} to come to its end",
                f"{type(exc).__name__}: {exc}",
                "read the server's log",
            )
            found.append(
                Outcome(name, False, str(failed), failed.expected, failed.found, failed.do)
            )

    # A daemon, since nothing ends a request whose answer trickles in for ever.
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(max(0.0, setting.until - time.monotonic()) + 0.5)
    if found:
        return found[0]
    failed = CheckFailedError(
        f"the check {name} to end in time",
        "no answer until the end of --seconds",
        "read the server's log, or grant more",
    )
    return Outcome(name, False, str(failed), failed.expected, failed.found, failed.do)


def _names(models: Sequence[Any]) -> str:
    return "it has " + (", ".join(sorted({each.name for each in models})) or "none")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--http", default="http://127.0.0.1:8000", metavar="URL", help="default: %(default)s")
    add("--grpc", default="grpc://127.0.0.1:8001", metavar="URL", help="default: %(default)s")
    add("--metrics", metavar="URL", help="default: http://HOST:8002/metrics, HOST as for --http")
    add("--bundle", default="starter", help="name or directory of the bundle here")
    add("--rows", type=Path, default=ROWS, metavar="FILE", help="recorded answers")
    add("--drut-version", default=drut.__version__, help="that wrote the configs; default: this")
    add("--pid", type=int, help="process of the server, where it runs on this host")
    add("--least-batch", type=float, default=2.0, metavar="ROWS", help="default: %(default)s")
    add("--requests", type=_positive, default=6, help="of each caller in a load; default: 6")
    add("--seconds", type=_seconds, default=300.0, help="for all checks; default: %(default)s")
    add("--skip", action="append", default=[], choices=CHECKS, help="leave a check out; repeat it")
    add("--json", action="store_true", help="print one JSON object")
    add("--record", action="store_true", help="write the recorded answers anew, and stop")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be a positive whole number, got {text}")
    return number


def _seconds(text: str) -> float:
    seconds = float(text)
    if not (math.isfinite(seconds) and seconds > 0):
        raise argparse.ArgumentTypeError(f"must be a positive number, got {text}")
    return seconds


def _show(outcomes: Iterator[Outcome]) -> list[Outcome]:
    shown = []
    for each in outcomes:
        mark = {True: "ok", False: "FAILED", None: "-"}[each.passed]
        sys.stdout.write(f"{each.check:9} {mark:6} {each.detail}\n")
        sys.stdout.flush()
        shown.append(each)
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, or record. Returns the exit code."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        checkpoint = open_by_name(given.bundle)
    except DrutError as exc:
        parser.error(f"--bundle: {exc}")
    if not given.rows.is_file():
        parser.error(f"--rows: there is no file {given.rows}")
    if given.record:
        record(checkpoint, given.rows)
        return 0
    setting = Setting(
        http=given.http.rstrip("/"),
        grpc=given.grpc,
        metrics=given.metrics or f"http://{urlsplit(given.http).hostname}:8002/metrics",
        checkpoint=checkpoint,
        rows=given.rows,
        drut_version=given.drut_version,
        pid=given.pid,
        least_batch=given.least_batch,
        requests=given.requests,
        until=time.monotonic() + given.seconds,
    )
    outcomes = run(setting, given.skip)
    found = list(outcomes) if given.json else _show(outcomes)
    # What was not made has not passed, unless it was left out on purpose.
    passed = all(each.passed or each.check in given.skip for each in found)
    if given.json:
        checks = [asdict(each) for each in found]
        sys.stdout.write(json.dumps({"passed": passed, **setting.told, "checks": checks}) + "\n")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
