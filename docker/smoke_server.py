"""How `smoke.py` asks a server: recorded questions, many callers at once, memory."""

import json
import math
import random
import re
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from drut.checkpoint.opened import Checkpoint
from drut.triton_model import ANSWERS, DECISION_SUFFIX, OPTIONS, QUESTIONS, STATE

TOLERANCE: Final = 0.02
"""Of a probability. Other engines and processors differ by a little, other weights by a lot."""

CALLERS: Final = 24
PATIENCE: Final = 30.0
"""Seconds for one request."""

WORDS: Final = ("invoice", "refund", "late", "crash", "hello", "please", "order", "parcel", "today")

Shares: TypeAlias = dict[str, dict[str, float]]
"""Probabilities of each question's options."""

# A proxy of the environment is not in the way of drut's own connections either.
_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class CheckFailedError(Exception):
    """A check that did not pass, in three parts for whoever has to repair it."""

    def __init__(self, expected: str, found: str, do: str) -> None:
        super().__init__(f"expected {expected}; found {found}; {do}")
        self.expected, self.found, self.do = expected, found, do


@dataclass(frozen=True, slots=True)
class Setting:
    """What is checked, and against what."""

    http: str
    grpc: str
    metrics: str
    checkpoint: Checkpoint
    rows: Path
    drut_version: str
    pid: int | None
    least_batch: float
    requests: int  # of each caller in one load
    until: float  # moment of time.monotonic
    told: dict[str, Any] = field(default_factory=dict)  # what the report says of the server

    @property
    def graph(self) -> str:
        """The model of the server that holds the bundle."""
        return str(getattr(self.checkpoint.bundle, "name", self.checkpoint.model_id))

    @property
    def decision(self) -> str:
        """The model of the server that takes texts."""
        return f"{self.graph}{DECISION_SUFFIX}"

    def left(self) -> float:
        """Seconds that one request may take."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError("no time is left for a further request")
        return min(left, PATIENCE)

    def get(self, url: str, body: object = None) -> bytes:
        """GET, or POST a body as JSON. Closes its connection: an idle one delays the server's end.

        Raises:
            OSError: no answer, or not with 200.
        """
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data=data, headers={"Connection": "close"})
        with _OPENER.open(request, timeout=self.left()) as answer:
            return bytes(answer.read())

    def ask_model(self, model: str, what: str = "") -> Any:
        """What the server says about a model."""
        return json.loads(self.get(f"{self.http}/v2/models/{model}{what}"))


class Decisions:
    """The decision model over gRPC, one connection for any number of threads."""

    def __init__(self, setting: Setting) -> None:
        import tritonclient.grpc as triton

        self._triton, self._setting = triton, setting
        self._client = triton.InferenceServerClient(setting.grpc.removeprefix("grpc://"))

    def ask(self, state: object, questions: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answers to questions about one state."""
        inputs = []
        for name, text in _texts(state, questions).items():
            tensor = self._triton.InferInput(name, [1, 1], "BYTES")
            tensor.set_data_from_numpy(np.array([[text.encode()]], np.object_))
            inputs.append(tensor)
        left = self._setting.left()
        found = self._client.infer(self._setting.decision, inputs, client_timeout=left)
        answers: Mapping[str, Any] = json.loads(found.as_numpy(ANSWERS).item())["answers"]
        return answers

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def recorded_rows(setting: Setting) -> Iterator[tuple[object, Mapping[str, Any], Shares]]:
    """State, questions and recorded probabilities of every row."""
    told = json.loads(setting.rows.read_text(encoding="utf-8"))
    if told["bundle"] != setting.graph:
        raise CheckFailedError(
            f"recorded answers of {setting.graph} in {setting.rows}",
            f"those of {told['bundle']}",
            f"copy the file and record them with: python smoke.py --record --bundle "
            f"{setting.graph} --rows FILE",
        )
    for row in told["rows"]:
        yield row["state"], told["questions"], row["probabilities"]


def largest_difference(answers: Mapping[Any, Any], wanted: Shares, where: str) -> float:
    """The largest difference of a probability.

    Raises:
        CheckFailedError: one is beyond the tolerance, or missing.
    """
    found, worst = shares_of(answers), 0.0
    for question, options in wanted.items():
        for option, share in options.items():
            got = found.get(question, {}).get(option, math.nan)
            if not abs(got - share) <= TOLERANCE:
                raise CheckFailedError(
                    f"{where} to give {question}/{option} the probability {share:.4f} within "
                    f"{TOLERANCE}",
                    "none" if math.isnan(got) else f"{got:.4f}",
                    "compare the bundles of server and client with: drut verify BUNDLE --url URL",
                )
            worst = max(worst, abs(got - share))
    return worst


def shares_of(answers: Mapping[Any, Any]) -> Shares:
    """Probabilities of answers; of a `noul`, that of yes."""
    return {
        question: dict(answer.get("probabilities") or {"true": answer["noul"]})
        for question, answer in answers.items()
    }


@contextmanager
def connected(setting: Setting) -> Iterator[Decisions]:
    """A connection to the decision model for as long as the block lasts."""
    decisions = Decisions(setting)
    try:
        yield decisions
    finally:
        decisions.close()


def over_http(setting: Setting) -> Callable[[object, Mapping[str, Any]], Mapping[str, Any]]:
    """The decision model over HTTP, by the extension that takes plain JSON."""

    def ask(state: object, questions: Mapping[str, Any]) -> Mapping[str, Any]:
        url = f"{setting.http}/v2/models/{setting.decision}/generate"
        told = json.loads(setting.get(url, _texts(state, questions)))
        answers: Mapping[str, Any] = json.loads(told[ANSWERS])["answers"]
        return answers

    return ask


def _texts(state: object, questions: Mapping[str, Any]) -> dict[str, str]:
    text = state if isinstance(state, str) else json.dumps(state, ensure_ascii=False)
    form = "text" if isinstance(state, str) else "json"
    options = json.dumps({"state_format": form})
    return {STATE: text, QUESTIONS: json.dumps(questions, ensure_ascii=False), OPTIONS: options}


def rows_and_passes(setting: Setting) -> tuple[int, int]:
    """Rows and passes of the graph since it was loaded."""
    found = setting.ask_model(setting.graph, "/stats")["model_stats"]
    rows, passes = (
        sum(int(each[name]) for each in found) for name in ("inference_count", "execution_count")
    )
    return rows, passes


def load(setting: Setting) -> None:
    """Callers that each ask about a number of states, one after the other; always the same ones."""
    chance = random.Random(0)
    states = [
        [
            " ".join(chance.choices(WORDS, k=int(2 * 40 ** chance.random())))
            for _ in range(setting.requests)
        ]
        for _ in range(CALLERS)
    ]
    question = json.loads(setting.rows.read_text(encoding="utf-8"))["questions"]
    faults: list[Exception] = []
    with connected(setting) as decisions:

        def call(own: Sequence[str]) -> None:
            try:
                for state in own:
                    decisions.ask(state, dict([next(iter(question.items()))]))
            except Exception as exc:  # noqa: BLE001 - raised below
                faults.append(exc)

        threads = [threading.Thread(target=call, args=(own,), daemon=True) for own in states]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if faults:
        raise CheckFailedError(
            f"{CALLERS} callers to be answered",
            f"{len(faults)} of them failed, the first with: {faults[0]}",
            "read the server's log",
        )


def memory_in_use(setting: Setting) -> dict[str, int]:
    """Bytes in use: of the server's processes, else of its host, and of its GPUs."""
    try:
        text = setting.get(setting.metrics).decode()
    except OSError as exc:
        if setting.pid is None:
            raise CheckFailedError(
                f"the server's metrics at {setting.metrics}",
                str(exc),
                "correct --metrics, or give --pid on the server's host, or leave this out with "
                "--skip memory",
            ) from exc
        text = ""
    used = re.findall(r"^nv_(cpu|gpu)_memory_used_bytes(\{.*\})? (\S+)$", text, re.MULTILINE)
    found = {f"GPU {label}": int(float(size)) for kind, label, size in used if kind == "gpu"}
    if setting.pid is not None:
        return {"processes": _resident(setting.pid), **found}
    for kind, _, size in used:
        if kind == "cpu":
            found["host"] = int(float(size))
    if not found:
        raise CheckFailedError(
            "a figure of memory among the server's metrics",
            f"none at {setting.metrics}",
            "give --pid on the server's host, or leave this out with --skip memory",
        )
    return found


def _resident(pid: int, proc: Path = Path("/proc")) -> int:
    """Bytes in memory of a process and all its children."""
    parents, sizes = {}, {}
    for path in proc.glob("[0-9]*/status"):
        try:
            told = dict(re.findall(r"^(PPid|VmRSS):\s+(\d+)", path.read_text(), re.MULTILINE))
        except OSError:
            continue  # it has just ended
        parents[int(path.parent.name)] = int(told["PPid"])
        sizes[int(path.parent.name)] = int(told.get("VmRSS", 0)) << 10
    if pid not in parents:
        raise CheckFailedError(
            f"a process {pid}", "none here", "give --pid on the server's host only"
        )
    family = {pid}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(sizes[each] for each in family)
