"""examples/ray on one node, for real: workers and drivers are killed, and every line is there.

Needs `make ray-env`. Prints states per second, beside one Agent in one process.
"""

import json
import os
import random
import signal
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

import drut

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venvs" / "ray" / "bin" / "python"
QUESTIONS = {"churn": {"type": "noul", "instructions": "Is the customer likely to cancel?"}}
LINES = 2000
TURNS = 3


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The input file, with two lines that cannot be answered, and the questions."""
    place = tmp_path_factory.mktemp("ray")
    chance = random.Random(7)
    words = ["invoice", "refund", "late", "crash", "hello", "please", "order", "parcel", "thanks"]
    rows = [
        json.dumps(
            {"id": number, "state": " ".join(chance.choices(words, k=chance.randint(3, 40)))}
        )
        for number in range(LINES)
    ]
    rows[17], rows[LINES - 1] = "{not json", json.dumps({"id": LINES - 1})
    (place / "in.jsonl").write_text("\n".join(rows) + "\n")
    (place / "questions.json").write_text(json.dumps(QUESTIONS))
    return place / "in.jsonl", place / "questions.json"


@pytest.fixture(scope="module")
def expected(given: tuple[Path, Path]) -> list[dict[str, Any]]:
    lines = given[0].read_text().splitlines()
    states = {n: json.loads(text).get("state") for n, text in enumerate(lines) if n != 17}
    asked = [number for number, state in states.items() if state is not None]
    with drut.load("starter", device="cpu") as agent:
        results = agent.predict_batch([states[number] for number in asked], QUESTIONS)
    return [
        {"line": number, **result["answers"]} for number, result in zip(asked, results, strict=True)
    ]


def start(
    given: tuple[Path, Path], out: Path, *, actors: int = 2, lines: int = 50
) -> "subprocess.Popen[str]":
    script = ROOT / "examples" / "ray" / "answer_file.py"
    options = [given[0], out, f"--questions={given[1]}", f"--lines={lines}", f"--actors={actors}"]
    return subprocess.Popen(
        [PYTHON, script, *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def answered(out: Path) -> list[dict[str, Any]]:
    paths = sorted(out.glob("part-*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def check(out: Path, expected: list[dict[str, Any]]) -> None:
    found = answered(out)
    assert [each["line"] for each in found] == list(range(LINES))
    failed = [each["line"] for each in found if "error" in each]
    assert failed == [17, LINES - 1]
    good = [each for each in found if "error" not in each]
    assert [each["id"] for each in good] == [each["line"] for each in expected]
    for each, wanted in zip(good, expected, strict=True):
        assert each["answers"]["churn"]["noul"] == pytest.approx(wanted["churn"]["noul"], abs=2e-4)
    assert not list(out.glob(".part-*"))


def wait_for_parts(out: Path, count: int, process: "subprocess.Popen[str]") -> None:
    end = time.monotonic() + 120
    while len(list(out.glob("part-*.jsonl"))) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """No process of Ray outlives a test."""
    yield
    end = time.monotonic() + 30
    while (left := ray_processes()) and time.monotonic() < end:
        time.sleep(0.2)
    for each in left:
        each.kill()
    assert not left


def ray_processes(name: str = "") -> list[psutil.Process]:
    found = []
    for each in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(each.info["cmdline"] or [])
        if each.info["status"] != psutil.STATUS_ZOMBIE and (
            line.startswith("ray::")
            or f"{PYTHON.parents[1]}/lib" in line
            or "/ray/core/src" in line
        ):
            found += [each] if name in line else []
    return found


@pytest.mark.usefixtures("nothing_left")
def test_every_line_is_answered_once_and_nobody_outside_can_connect(
    given: tuple[Path, Path], expected: list[dict[str, Any]], tmp_path: Path
) -> None:
    process = start(given, tmp_path / "out")
    wait_for_parts(tmp_path / "out", 2, process)
    assert {*listening()} == {"127.0.0.1"}
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "Deprecat" not in err
    assert out.strip() == f"{LINES} lines answered"
    check(tmp_path / "out", expected)


def listening() -> list[str]:
    """Addresses that processes of Ray listen at."""
    return [
        each.laddr.ip.removeprefix("::ffff:")
        for process in ray_processes()
        for each in process.net_connections("tcp")
        if each.status == psutil.CONN_LISTEN
    ]


@pytest.mark.usefixtures("nothing_left")
def test_what_ray_costs(given: tuple[Path, Path], tmp_path: Path) -> None:
    """Not a bound: prints medians of one Agent and of actors, asked in turns."""
    rates: dict[str, list[float]] = {}
    for turn in range(TURNS):
        for actors in (1, 2):
            out = tmp_path / f"{turn}-{actors}"
            process = start(given, out, actors=actors, lines=100)
            process.communicate(timeout=600)
            assert process.returncode == 0
            rates.setdefault(f"{actors} actors of one thread", []).append(rate_of_files(out))
        states = [each["state"] for each in map(json.loads, good_lines(given[0]))]
        for threads in (1, 2):
            with drut.load("starter", device="cpu", threads=threads) as agent:
                agent.predict(states[0], QUESTIONS)
                began = time.monotonic()
                agent.predict_batch(states, QUESTIONS)
                rate = len(states) / (time.monotonic() - began)
            rates.setdefault(f"one Agent of {threads} threads", []).append(rate)
    print()
    for name, found in sorted(rates.items()):
        print(f"{name}: {statistics.median(found):.0f} states/s of {[round(x) for x in found]}")


def good_lines(source: Path) -> list[str]:
    lines = source.read_text().splitlines()
    return lines[:17] + lines[18:-1]


def rate_of_files(out: Path) -> float:
    """States per second between the first and the last part's file, without starts and ends."""
    times = sorted(path.stat().st_mtime_ns / 1e9 for path in out.glob("part-*"))
    return (LINES - LINES / len(times)) / (times[-1] - times[0])


@pytest.mark.usefixtures("nothing_left")
def test_a_killed_worker_loses_nothing(
    given: tuple[Path, Path], expected: list[dict[str, Any]], tmp_path: Path
) -> None:
    process = start(given, tmp_path / "out")
    for count in (2, 12):
        wait_for_parts(tmp_path / "out", count, process)
        os.kill(ray_processes("MapWorker")[0].pid, signal.SIGKILL)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    check(tmp_path / "out", expected)


@pytest.mark.usefixtures("nothing_left")
def test_a_part_that_kills_every_worker_ends_the_run_and_the_next_one_goes_on(
    given: tuple[Path, Path], expected: list[dict[str, Any]], tmp_path: Path
) -> None:
    process = start(given, tmp_path / "out", actors=1, lines=LINES // 2)
    end = time.monotonic() + 240
    while process.poll() is None:
        assert time.monotonic() < end
        if list((tmp_path / "out").glob(".part-*.begun-*")):
            for each in ray_processes("submit"):
                with suppress(psutil.NoSuchProcess):
                    each.kill()
        time.sleep(0.2)
    _, err = process.communicate()
    assert process.returncode != 0
    assert f"workers have ended at lines 0 to {LINES // 2 - 1}" in err
    again = start(given, tmp_path / "out", lines=LINES // 2)
    _, err = again.communicate(timeout=300)
    assert again.returncode == 0, err
    check(tmp_path / "out", expected)


@pytest.mark.usefixtures("nothing_left")
def test_a_killed_driver_is_gone_on_with(
    given: tuple[Path, Path], expected: list[dict[str, Any]], tmp_path: Path
) -> None:
    process = start(given, tmp_path / "out")
    wait_for_parts(tmp_path / "out", 5, process)
    process.kill()
    process.communicate()
    done = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("part-*")}
    again = start(given, tmp_path / "out")
    out, err = again.communicate(timeout=300)
    assert again.returncode == 0, err
    assert int(out.split()[0]) < LINES
    assert all((tmp_path / "out" / name).stat().st_mtime_ns == at for name, at in done.items())
    check(tmp_path / "out", expected)
    other = start(given, tmp_path / "out")
    assert other.communicate(timeout=60)[0].strip() == "0 lines answered"
