"""The starter as it ships: real messages, the command line, and two copies behind a Router."""

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import drut
from drut.loading import find_version

MESSAGES = [
    line
    for line in (Path(__file__).parents[2] / "examples" / "messages.txt").read_text().splitlines()
    if line
]
TEAM = {
    "team": {
        "type": "choice",
        "instructions": "Which team should handle this message?",
        "criteria": ["billing", "technical support", "product feedback"],
    }
}


@pytest.fixture(scope="module")
def agent() -> Any:
    with drut.load("starter", device="cpu") as opened:
        yield opened


def test_three_real_messages_are_answered_sensibly(agent: drut.Agent) -> None:
    answers = [result["answers"] for result in agent.predict_batch(MESSAGES, drut.preset("triage"))]
    assert [answer["team"]["choice"] for answer in answers[:2]] == ["billing", "technical"]
    urgency = [answer["urgency"]["score"] for answer in answers]
    assert urgency[1] > urgency[0] > urgency[2]
    churn = [answer["churn"]["noul"] for answer in answers]
    assert max(churn) == churn[0]


def test_answers_do_not_depend_on_the_neighbours(agent: drut.Agent) -> None:
    together = agent.predict_batch([*MESSAGES, "word " * 300], TEAM)
    for message, result in zip(MESSAGES, together, strict=False):
        alone = agent.predict(message, TEAM)["answers"]["team"]["probabilities"]
        assert result["answers"]["team"]["probabilities"] == pytest.approx(alone, abs=2e-4)


def test_threads_get_what_a_single_caller_gets(agent: drut.Agent) -> None:
    states = [f"{message} ({index})" for index in range(8) for message in MESSAGES]
    expected = [agent.predict(state, TEAM) for state in states]
    found: dict[int, Any] = {}

    def ask(start: int) -> None:
        for index in range(start, len(states), 4):
            found[index] = agent.predict(states[index], TEAM)

    threads = [threading.Thread(target=ask, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [found[index] for index in range(len(states))] == expected


def run(*arguments: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "drut", *arguments], capture_output=True, text=True, cwd=cwd
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_line_answers_a_file(tmp_path: Path) -> None:
    file = tmp_path / "messages.txt"
    file.write_text("\n".join(MESSAGES), encoding="utf-8")
    lines = run("predict", "--file", str(file), "--checkpoint", "starter", cwd=tmp_path)
    records = [json.loads(line) for line in lines.splitlines()]
    assert [record["line"] for record in records] == [1, 2, 3]
    assert records[0]["answers"]["team"]["choice"] == "billing"


def test_the_command_line_prints_a_table_with_bars(tmp_path: Path) -> None:
    shown = run("predict", MESSAGES[0], "--checkpoint", "starter", "--table", cwd=tmp_path)
    assert "billing" in shown
    assert "starter version 1, int8-weights, on cpu" in shown


def test_the_doctor_finds_the_starter_sound(tmp_path: Path) -> None:
    report = json.loads(run("doctor", "--json", cwd=tmp_path))
    assert "starter" in json.dumps(report)


class Events(drut.BaseHook):
    """Remembers what was told, by checkpoint."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str | None]] = []

    def on_load(self, ctx: drut.PredictContext) -> None:
        self.seen.append(("load", ctx.model))

    def on_evict(self, ctx: drut.PredictContext) -> None:
        self.seen.append(("evict", ctx.model))

    def on_predict_start(self, ctx: drut.PredictContext) -> None:
        self.seen.append(("start", ctx.model))

    def on_predict_end(self, ctx: drut.PredictContext) -> None:
        self.seen.append(("end", ctx.model))


def test_two_real_checkpoints_take_turns_behind_a_router(agent: drut.Agent, tmp_path: Path) -> None:
    for name in ("left", "right"):
        shutil.copytree(find_version("starter"), tmp_path / name / "1")
    events = Events()
    models = {name: str(tmp_path / name) for name in ("left", "right")}
    requests = [
        {"state": message, "questions": TEAM, "model": name}
        for message in MESSAGES[:2]
        for name in ("left", "right")
    ]
    with drut.Router(models=models, device="cpu", max_loaded=1, hooks=events) as router:
        results = router.predict_batch(requests)
        assert router.loaded == ["right"]
    assert events.seen[:-1] == [
        ("load", "left"),
        ("start", "left"),
        ("start", "left"),
        ("end", "left"),
        ("end", "left"),
        ("evict", "left"),
        ("load", "right"),
        ("start", "right"),
        ("start", "right"),
        ("end", "right"),
        ("end", "right"),
    ]
    for request, result in zip(requests, results, strict=True):
        assert result["routing"]["model"] == request["model"]
        alone = agent.predict(request["state"], TEAM)["answers"]["team"]["probabilities"]
        assert result["answers"]["team"]["probabilities"] == pytest.approx(alone, abs=2e-4)
