import argparse
import io
import json
from typing import Any

import pytest

from drut.cli import route
from drut.errors import InvalidRequestError, InvalidTextError


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    route.configure(parser)
    parsed = parser.parse_args(arguments)
    parsed.parser = parser
    return route.run(parsed)


def decision(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run(*arguments) == 0
    return json.loads(capsys.readouterr().out)


def test_a_decision_is_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    found = decision(capsys, "Please cancel my order today")
    assert (found["model"], found["reason_code"]) == ("english", "english")


def test_arguments_are_those_of_route(capsys: pytest.CaptureFixture[str]) -> None:
    assert decision(capsys, "a", "--model", "ml")["reason_code"] == "explicit_model"
    assert decision(capsys, "a", "--task", "typed_decisions")["model"] == "typed-decisions"
    assert decision(capsys, "a", "--lang", "de-AT")["model"] == "multilingual"
    assert decision(capsys, "12", "--default", "starter")["model"] == "starter"


def test_a_state_of_fields(capsys: pytest.CaptureFixture[str]) -> None:
    fields = json.dumps({"id": 7, "text": "Wo ist meine Bestellung geblieben?"})
    assert decision(capsys, fields, "--state-json")["model"] == "multilingual"
    with pytest.raises(InvalidRequestError, match="the state is not JSON"):
        run("{", "--state-json")


def test_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("привет\n".encode())))
    assert decision(capsys, "-")["reason_code"] == "non_latin_script"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff")))
    with pytest.raises(InvalidTextError, match="not UTF-8"):
        run("-")


def test_without_a_text_on_a_terminal_usage_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(route, "is_terminal", lambda stream: True)
    with pytest.raises(SystemExit):
        run()
    assert "give TEXT" in capsys.readouterr().err


def test_a_terminal_gets_a_table_without_the_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(route, "is_terminal", lambda stream: True)
    text = "Where is my order? I am still waiting for it. Das Geheimnis ist leider schon verraten."
    run(text)
    shown = capsys.readouterr().out
    assert "checkpoint" in shown
    assert "Geheimnis" not in shown


def test_an_unknown_checkpoint_is_told() -> None:
    with pytest.raises(InvalidRequestError, match="did you mean"):
        run("a", "--model", "englsh")
