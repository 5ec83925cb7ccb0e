"""The whole recipe as commands."""

import subprocess
import sys

import pytest
from starter import run


def commands(monkeypatch, *arguments, fails=None):
    """What `python -m starter.run` would start, and its exit code."""
    started = []

    def start(command, cwd, check):
        started.append(command[command.index("-m") + 1 :])
        assert sys.executable in command
        assert (cwd / "starter" / "run.py").is_file()
        return subprocess.CompletedProcess(command, 3 if command[-1] == fails else 0)

    monkeypatch.setattr(subprocess, "run", start)
    return run.main(arguments), started


def test_all_steps_run_in_order(monkeypatch):
    code, started = commands(monkeypatch)
    assert code == 0
    assert started == [
        ["starter.train"],
        ["starter.finish"],
        ["starter.export"],
        ["starter.evaluate"],
    ]


def test_limits_go_to_training_only(monkeypatch):
    _, started = commands(monkeypatch, "train", "finish", "--minutes", "40", "--resume")
    assert started == [["starter.train", "--minutes=40.0", "--resume"], ["starter.finish"]]


def test_a_failing_step_is_the_last_one(monkeypatch):
    code, started = commands(monkeypatch, fails="starter.finish")
    assert code == 3
    assert started[-1] == ["starter.finish"]


def test_an_unknown_step_is_named(monkeypatch, capsys):
    with pytest.raises(SystemExit):
        commands(monkeypatch, "bake")
    assert "'bake'" in capsys.readouterr().err


@pytest.mark.parametrize("step", run.STEPS)
def test_every_step_is_a_module(step):
    assert (run.ROOT / "starter" / f"{step}.py").is_file()
