import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import drut
from drut.cli.main import main
from tiny_checkpoint import CHOICE, NOUL

QUESTIONS = {**NOUL, **CHOICE}


@pytest.fixture(autouse=True)
def opened(home: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRUT_MODEL_REPOSITORY", str(repository))
    monkeypatch.setenv("DRUT_THREADS", "1")


@pytest.fixture(scope="module")
def lines(repository: Path) -> list[dict[str, Any]]:
    """120 lines whose answers are drawn from the graph's own logits at a temperature of 3."""
    random = np.random.default_rng(0)
    states = [f"message {index} {'a b' * (index % 7)}" for index in range(120)]
    with drut.load("starter", model_repository=repository, threads=1) as agent:
        logits = agent.logits(states, QUESTIONS)
    made = []
    for index, state in enumerate(states):
        drawn = {
            key: int((rows[index] / 3 + random.gumbel(size=rows.shape[1])).argmax())
            for key, rows in logits.items()
        }
        answers = {"urgent": bool(drawn["urgent"]), "team": ("billing", "tech")[drawn["team"]]}
        line = {"state": state, "questions": QUESTIONS, "answers": answers}
        made.append(line if index % 2 else {**line, "lang": "de-AT"})
    return made


def written(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return path


def reported(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["calibrate", *arguments]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def figures(report: dict[str, Any], name: str) -> dict[str, Any]:
    (row,) = [row for row in report["rows"] if row["name"] == name]
    return dict(row)


def test_a_file_and_a_picture_are_written_and_reported(
    capsys: pytest.CaptureFixture[str], lines: list[dict[str, Any]], home: Path
) -> None:
    written(home / "data.jsonl", lines)
    report = reported(capsys, "data.jsonl", "--output", "c.json")
    assert [row["name"] for row in report["rows"]] == [
        "choice",
        "choice:2",
        "noul",
        "noul:2",
        "all",
    ]
    everything = figures(report, "all")
    assert everything["records"] == everything["judged_on"] == 240
    assert everything["nll_after"] < everything["nll_before"]
    saved = json.loads((home / "c.json").read_text())
    assert saved["version"] == 2
    assert saved["temperature"][0] == figures(report, "choice")["temperature_after"]
    assert saved["bundle"]["name"] == "starter"
    assert "binning_map" not in saved
    assert (home / report["picture"]).read_text().startswith("<svg")


def test_predict_applies_the_file(
    capsys: pytest.CaptureFixture[str], lines: list[dict[str, Any]], home: Path
) -> None:
    written(home / "data.jsonl", lines)
    reported(capsys, "data.jsonl", "--output", "c.json", "--lang-output", "l.json")
    (home / "q.json").write_text(json.dumps(NOUL))
    said = []
    for options in (
        [],
        ["--calibration", "c.json"],
        ["--calibration", "c.json", "--lang-temperatures", "l.json", "--lang", "de"],
    ):
        assert main(["predict", "message 3 a", "--questions", "q.json", *options]) == 0
        said.append(json.loads(capsys.readouterr().out)["answers"]["urgent"]["noul"])
    assert len(set(said)) == 3


def test_figures_are_of_the_held_out_answers(
    capsys: pytest.CaptureFixture[str], lines: list[dict[str, Any]], home: Path
) -> None:
    written(home / "data.jsonl", lines[:80])
    written(home / "held.jsonl", lines[80:])
    report = reported(
        capsys, "data.jsonl", "--output", "c.json", "--held-out", "held.jsonl", "--batch-size", "7"
    )
    assert figures(report, "noul")["records"] == 80
    assert figures(report, "noul")["judged_on"] == 40
    assert "held.jsonl" in (home / "c.svg").read_text()


def test_floors_and_bins(
    capsys: pytest.CaptureFixture[str], lines: list[dict[str, Any]], home: Path
) -> None:
    written(home / "data.jsonl", lines)
    arguments = ("data.jsonl", "--output", "c.json", "--min-per-bucket", "100", "--binning")
    reported(capsys, *arguments)
    saved = json.loads((home / "c.json").read_text())
    assert set(saved["temperature_by_options"]) == {"choice:2", "noul:2"}
    assert "binning_map" not in saved
    assert main(["calibrate", *arguments]) == 0
    assert "no bucket has the 200 answers" in capsys.readouterr().err
    reported(capsys, *arguments, "--min-per-bins", "100")
    saved = json.loads((home / "c.json").read_text())
    assert saved["binning_map"]["noul:2"]["bins"] == 15


def test_languages_get_a_file_of_their_own(
    capsys: pytest.CaptureFixture[str], lines: list[dict[str, Any]], home: Path
) -> None:
    written(home / "data.jsonl", lines)
    report = reported(capsys, "data.jsonl", "--output", "c.json", "--lang-output", "l.json")
    assert figures(report, "lang de")["records"] == 120
    assert list(json.loads((home / "l.json").read_text())) == ["de"]
    written(home / "data.jsonl", [line for line in lines if "lang" not in line])
    assert main(["calibrate", "data.jsonl", "--output", "d.json", "--lang-output", "l.json"]) == 1
    assert "no language" in capsys.readouterr().err
    assert not (home / "d.json").exists()


def test_a_terminal_gets_a_table(
    capsys: pytest.CaptureFixture[str],
    lines: list[dict[str, Any]],
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written(home / "data.jsonl", lines)
    monkeypatch.setattr("drut.cli.calibrate.is_terminal", lambda stream: True)
    arguments = ["calibrate", "data.jsonl", "--output", "c.json", "--no-progress"]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    for part in ("noul:2", "NLL", "ECE", "\u2192", "wrote c.json, c.svg"):
        assert part in shown


def test_doubts_are_told(
    capsys: pytest.CaptureFixture[str], lines: list[dict[str, Any]], home: Path
) -> None:
    arguments = ["calibrate", "data.jsonl", "--output", "c.json", "--held-out", "held.jsonl"]
    written(home / "held.jsonl", lines)
    written(home / "data.jsonl", lines)
    assert main(arguments) == 0
    assert capsys.readouterr().err == ""
    # Now the answers to fit to are the model's own, as if it were never wrong.
    with drut.load("starter", threads=1) as agent:
        sure = [
            {
                **line,
                "answers": {
                    "urgent": agent.predict(line["state"], NOUL)["answers"]["urgent"]["noul"] > 0.5
                },
            }
            for line in lines
        ]
    written(home / "data.jsonl", sure)
    assert main(arguments) == 0
    told = capsys.readouterr().err
    assert "the best temperature of noul lies beyond 0.5" in told
    assert "the held-out answers became less likely" in told


def failed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["calibrate", *arguments]) == 1
    return capsys.readouterr().err


def test_what_is_wrong_is_one_message_and_no_file(
    capsys: pytest.CaptureFixture[str], lines: list[dict[str, Any]], home: Path
) -> None:
    assert "no.jsonl" in failed(capsys, "no.jsonl", "--output", "c.json")
    written(home / "data.jsonl", lines[:9])
    assert "found: choice 9, score 0, noul 9" in failed(capsys, "data.jsonl", "--output", "c.json")
    assert "no directory nowhere" in failed(capsys, "data.jsonl", "--output", "nowhere/c.json")
    written(home / "data.jsonl", [*lines, {**lines[0], "answers": {"team": "sales"}}])
    assert "data.jsonl:121: the answer to 'team'" in failed(
        capsys, "data.jsonl", "--output", "c.json"
    )
    written(home / "empty.jsonl", [])
    assert "no labelled answers" in failed(capsys, "empty.jsonl", "--output", "c.json")
    assert not (home / "c.json").exists()
    assert not (home / "c.svg").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("data.jsonl",),
        ("data.jsonl", "--output", "c.svg"),
        ("data.jsonl", "--output", "c.json", "--min-per-type", "0"),
    ],
    ids=str,
)
def test_wrong_usage(arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["calibrate", *arguments])
    assert ended.value.code == 2


def test_a_file_of_another_graph_is_refused_unless_allowed(
    capsys: pytest.CaptureFixture[str], lines: list[dict[str, Any]], home: Path
) -> None:
    written(home / "data.jsonl", lines)
    reported(capsys, "data.jsonl", "--output", "c.json")
    saved = json.loads((home / "c.json").read_text())
    saved["bundle"]["graph_sha256"] = "0" * 64
    (home / "c.json").write_text(json.dumps(saved))
    arguments = ["predict", "hello", "--preset", "guard", "--calibration", "c.json"]
    assert main(arguments) == 1
    assert "--calibration-any-graph" in capsys.readouterr().err
    assert main([*arguments, "--calibration-any-graph"]) == 0


def test_a_file_of_another_model_is_told(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    content = {"version": 2, "temperature": [1, 1, 1], "model_id_or_path": "owner/other"}
    (home / "c.json").write_text(json.dumps(content))
    assert main(["predict", "hello", "--preset", "guard", "--calibration", "c.json"]) == 0
    assert "made for another model" in capsys.readouterr().err


def test_accepting_any_graph_needs_a_file() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["predict", "hello", "--calibration-any-graph"])
    assert ended.value.code == 2
