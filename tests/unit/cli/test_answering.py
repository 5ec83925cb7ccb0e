import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from drut.cli.answering import AskOptions, Printer, answer_file
from drut.cli.askers import AgentAsker
from drut.cli.lines import Line
from drut.errors import DrutError, InvalidRequestError
from drut.presets import preset

QUESTIONS = {"urgent": {"type": "noul", "instructions": "Is it urgent?"}}


class StubAgent:
    """Answers with the state itself, refuses states with "bad" in them, remembers batches."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []

    def predict_batch(self, states: Sequence[Any], *_: Any, **__: Any) -> list[Any]:
        self.batches.append(list(states))
        if any("bad" in state for state in states):
            raise InvalidRequestError("bad state")
        return [{"answers": {}, "usage": {}, "said": state} for state in states]


def asker(agent: Any = None, **options: Any) -> AgentAsker:
    return AgentAsker(agent or StubAgent(), QUESTIONS, AskOptions(**options))


def lines(*states: str) -> list[Line]:
    return [Line(number, 0, 1, state=state) for number, state in enumerate(states, start=1)]


def said(results: Sequence[Any]) -> list[str]:
    return ["error" if isinstance(each, DrutError) else each["said"] for each in results]


@pytest.mark.parametrize("count", [1, 2, 3, 8, 9])
@pytest.mark.parametrize("where", ["first", "last", "none", "all"])
def test_one_bad_state_costs_only_itself(count: int, where: str) -> None:
    states = [f"s{index}" for index in range(count)]
    for index in {"first": [0], "last": [-1], "none": [], "all": range(count)}[where]:
        states[index] = "bad"
    expected = ["error" if state == "bad" else state for state in states]
    assert said(asker().answer_lines(lines(*states))) == expected


def test_no_lines_are_no_call() -> None:
    agent = StubAgent()
    assert asker(agent).answer_lines([]) == []
    assert agent.batches == []


def test_a_sound_batch_is_one_call() -> None:
    agent = StubAgent()
    asker(agent).answer_lines(lines("a", "b", "c"))
    assert agent.batches == [["a", "b", "c"]]


def redirected(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stdout", stream)
    return stream


def records(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_file_is_answered_in_order_with_its_faults_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = redirected(monkeypatch)
    file = tmp_path / "a.jsonl"
    file.write_text('"a"\noops\n{"state": "bad", "id": 7}\n\n{"state": "b", "id": "x"}\n')
    asking = asker(batch_size=2)
    done = answer_file(asking, file, Printer(asking, as_json=True), progress=False)
    assert done == (4, 2)
    first, second, third, fourth = records(out)
    assert (first["line"], first["said"]) == (1, "a")
    assert (second["file"], second["line"]) == (str(file), 2)
    assert "not JSON" in second["error"]["message"]
    assert (third["line"], third["id"]) == (3, 7)
    assert third["error"] == {"type": "InvalidRequestError", "message": "bad state"}
    assert (fourth["line"], fourth["id"], fourth["said"]) == (5, "x", "b")


def test_results_are_written_before_the_rest_of_the_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = redirected(monkeypatch)
    file = tmp_path / "a.txt"
    file.write_text("a\n" * 10)
    written: list[int] = []

    class Watching(StubAgent):
        def predict_batch(self, states: Sequence[Any], *_: Any, **__: Any) -> list[Any]:
            written.append(len(out.getvalue().splitlines()))
            return super().predict_batch(states)

    asking = asker(Watching(), batch_size=4)
    answer_file(asking, file, Printer(asking, as_json=True), progress=False)
    assert written == [0, 4, 8]


CUT = {
    "answers": {},
    "usage": {
        "questions": {
            "urgent": {
                "state_tokens": 9,
                "state_tokens_dropped": 4,
                "head_tokens": 5,
                "head_tokens_dropped": 0,
            }
        }
    },
}


@pytest.mark.parametrize(("wanted", "told"), [("warn", True), ("ignore", False)])
def test_a_cut_is_warned_about_with_its_line_if_asked(
    wanted: str,
    told: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    printer = Printer(asker(on_truncation=wanted), as_json=True)
    printer.line(Path("f.txt"), Line(3, 0, 1, state="x"), CUT)  # type: ignore[arg-type]
    assert ("f.txt:3: cut to fit" in capsys.readouterr().err) is told


def test_tables_of_a_file_are_headed_by_their_line(monkeypatch: pytest.MonkeyPatch) -> None:
    out = redirected(monkeypatch)
    printer = Printer(asker(), as_json=False)
    line = Line(3, 0, 1, state={"text": "x" * 500}, id=7)
    printer.line(Path("f.jsonl"), line, {"answers": {}, "usage": {}})
    headline = out.getvalue().splitlines()[0]
    assert headline.startswith('f.jsonl:3 7: {"text": "xxx')
    assert len(headline) <= 80


def test_a_fault_among_tables_goes_to_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printer = Printer(asker(), as_json=False)
    printer.line(Path("f.txt"), Line(3, 0, 1), InvalidRequestError("no"))
    assert capsys.readouterr() == ("", "drut predict: f.txt:3: no\n")


@pytest.mark.parametrize("long", [True, False])
def test_the_gate_is_applied_with_and_without_windows(repository: Path, long: bool) -> None:
    import drut

    with drut.load(repository / "starter", device="cpu", threads=1) as agent:
        asking = AgentAsker(agent, preset("guard"), AskOptions(long=long, min_confidence=1.0))
        (result,) = asking.answer(["some text " * 800])
    verdicts = {answer["abstention"] for answer in result["answers"].values()}
    assert "abstained" in verdicts
    assert (result["usage"].get("windows", 1) > 1) is long


def test_questions_are_checked_before_anything_is_answered(repository: Path) -> None:
    import drut

    with drut.load(repository / "starter", device="cpu", threads=1) as agent:
        asking = AgentAsker(agent, {"q": {"type": "noul"}}, AskOptions())
        with pytest.raises(InvalidRequestError, match="lacks 'instructions'"):
            asking.check()
