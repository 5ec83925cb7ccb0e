"""The whole suite with engines that answer at once: worker, turns, targets, page and pictures."""

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from benchmarks import page, run, suite
from benchmarks.checkpoints import Prepared
from benchmarks.engines import PEER, VARIANTS, Bench, in_turn
from benchmarks.peer import Worker, WorkerError
from benchmarks.suite import Plan
from benchmarks.targets import TARGETS, judge, table

PLAN = Plan(rounds=2, questions=(16,), options=(), callers=(32,), seconds=0.05, cold=1)
CHOSEN = [variant for variant in VARIANTS if variant.label in (PEER, "drut int8")]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict:
    place = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "prepare", lambda name: Prepared(name, place, place))
        patch.setattr(run, "available", lambda device, flags: CHOSEN)
        bench = Bench(Path(sys.executable), Path(sys.executable), fake=True)
        return run.run(bench, {"starter": PLAN}, quick=True)


def test_every_variant_is_timed_beside_the_peer(found: dict) -> None:
    calls = found["checkpoints"]["starter"]["calls"]
    for by_variant in calls.values():
        assert list(by_variant) == [PEER, "drut int8"]
        assert by_variant[PEER]["ratio"] == {"wall": 1.0, "cpu": 1.0}
        assert by_variant["drut int8"]["wall"]["n"] == PLAN.rounds


def test_the_answers_are_compared_in_the_same_run(found: dict) -> None:
    same = found["checkpoints"]["starter"]["agreement"]["drut int8"]
    assert same["equal"] == 1.0
    assert same["answers"] > 100


def test_every_target_of_a_measured_variant_is_judged(found: dict) -> None:
    names = {row["name"] for row in found["targets"] if row["variant"] == "drut int8"}
    assert names == {target.name for target in TARGETS}


def test_a_miss_is_reported_and_not_raised(found: dict) -> None:
    results = json.loads(json.dumps(found))
    cold = results["checkpoints"]["starter"]["cold"]["drut int8"]
    cold["ratio"]["resident"] = 3.99
    rows = {row["name"]: row for row in judge(results)}
    assert not rows["resident memory"]["reached"]
    cold["ratio"]["resident"] = 4.0
    rows = {row["name"]: row for row in judge(results)}
    assert rows["resident memory"]["reached"]


def test_the_results_name_no_place_and_no_machine(found: dict) -> None:
    text = json.dumps(found)
    assert str(Path.home()) not in text
    assert str(Path(__file__).parents[3]) not in text


def test_the_page_shows_targets_beside_what_was_measured(found: dict, tmp_path: Path) -> None:
    text = page.write(found, tmp_path).read_text(encoding="utf-8")
    for target in TARGETS:
        assert f"| {target.name} | drut int8 | {target.wanted['drut int8']:g} |" in text
    missed = sum(not row["reached"] for row in found["targets"])
    assert text.count("**missed**") == missed
    assert "64 mixed lengths" in table(found)


def test_pictures_are_wellformed_and_linked(found: dict, tmp_path: Path) -> None:
    stale = tmp_path / "benchmarks" / "old.svg"
    stale.parent.mkdir()
    stale.touch()
    text = page.write(found, tmp_path).read_text(encoding="utf-8")
    drawn = sorted(path.name for path in stale.parent.glob("*.svg"))
    assert drawn == ["ratios-starter.svg"]
    for name in drawn:
        ElementTree.parse(stale.parent / name)
        assert f"benchmarks/{name}" in text


def test_each_round_begins_with_the_next_variant() -> None:
    order = [label for label, _ in in_turn({"a": None, "b": None, "c": None}, 3)]
    assert order == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]


def test_an_engine_that_fails_is_an_error_and_the_worker_goes_on() -> None:
    with Worker(sys.executable) as worker:
        with pytest.raises(WorkerError, match="KeyError"):
            worker.ask("load", engine="none")
        assert worker.ask("load", engine="fake")["versions"] == {"fake": "1"}


def test_a_variant_that_fails_is_named_and_left_out(tmp_path: Path) -> None:
    bench = Bench(Path(sys.executable), Path(sys.executable), fake=True)
    prepared = Prepared("starter", tmp_path, tmp_path)
    session = suite.Session(bench, prepared, CHOSEN, PLAN, {}, {}, [])
    with Worker(sys.executable) as good, Worker(sys.executable) as broken:
        good.ask("load", engine="fake")
        session.workers = {"good": good, "broken": broken}
        asked = {"states": ["a"], "questions": {}, "method": "one", "repeat": 1}
        made = session.turns(lambda _, worker: worker.ask("time", **asked), 2)
    assert list(made) == ["good"]
    assert len(made["good"]) == 2
    assert session.failed[0].startswith("broken: AttributeError")
