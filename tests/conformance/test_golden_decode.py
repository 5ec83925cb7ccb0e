"""Every golden decode case: raw logits and settings to answers; temperatures, bins, gate."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.golden_compare import differences
from drut.checkpoint.config import CheckpointConfig, read_config
from drut.checkpoint.opened import open_checkpoint
from drut.decoding.answers import decode_answers
from drut.decoding.calibration import (
    Calibration,
    apply_calibration_payload,
    bucket,
    calibration_of,
    clamp_temperature,
    read_calibration,
)
from drut.decoding.calibration_file import write_calibration
from drut.decoding.gate import parse_min_confidence
from drut.decoding.identity import identity_of
from drut.decoding.probabilities import entropy_confidence
from drut.errors import CheckpointFormatError
from drut.questions import Question, parse_question
from drut.tensors import Logits
from golden_values import GOLDEN, golden_cases, restore

FUNCTIONS = json.loads((GOLDEN / "functions.json").read_text(encoding="utf-8"))
KINDS = ("choice", "score", "noul")

LANGUAGES = {
    "de": {"temperature": [3.0, 3.0, 3.0], "temperature_by_options": {"noul:2": 0.5}},
    "PT-br": {"temperature": None},
    "fr": None,
    "es": {"temperature": [9.0, 0.1, True]},
}
CASES = golden_cases("decode.json")


def config_with(types: list[float], buckets: dict[str, float]) -> CheckpointConfig:
    plain = read_config(GOLDEN / "tiny-checkpoint")
    return CheckpointConfig(
        plain.encoder,
        plain.head_layers,
        temperature=(types[0], types[1], types[2]),
        temperature_by_options=buckets,
    )


def settings_of(case_id: str, note: str) -> tuple[Calibration, str | None, Any]:
    """Calibration, language and gate of a case."""
    config = read_config(GOLDEN / "tiny-checkpoint")
    kind, _, value = case_id.partition("/")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # golden temperatures are clamped
        if kind == "temps":
            settings = json.loads(note)
            return calibration_of(config_with(settings["t"], settings["b"])), None, None
        if kind == "lang":
            return calibration_of(config, LANGUAGES), value.strip("'"), None
        if kind == "binning":
            bins = {"choice:2": {"bins": 1, "values": [0.1]}} if value == "off-with-lang" else {}
            payload = {
                "temperature": list(config.temperature),
                "temperature_by_options": dict(config.temperature_by_options),
                "binning_map": bins,
            }
            plain = calibration_of(config, LANGUAGES)
            language = "de" if value == "off-with-lang" else None
            return apply_calibration_payload(payload, plain), language, None
        gate: Any = json.loads(value.replace("'", '"'))
        return calibration_of(config), None, gate


def question_of(question_id: str, answer: dict[str, Any]) -> Question:
    criteria = {
        "choice": list(answer.get("probabilities", ())),
        "score": list(answer.get("legend", {}).values()),
        "noul": None,
    }[answer["type"]]
    return parse_question(
        question_id, {"type": answer["type"], "instructions": "?", "criteria": criteria}
    )


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_logits_decode_as_upstream(case: dict[str, Any]) -> None:
    calibration, language, gate = settings_of(case["id"], case.get("note", ""))
    want = restore(case["result"])["answers"]
    questions = [question_of(key, answer) for key, answer in want.items()]
    width = max(len(row["logits"]) for row in case["rows"])
    options = np.full((len(questions), width), -1e4, np.float32)
    for index, row in enumerate(case["rows"]):
        options[index, : len(row["logits"])] = row["logits"]
    actions = np.asarray([row["act_logits"] for row in case["rows"]], np.float32)
    decoded = decode_answers(Logits(options, actions), questions, calibration, language)
    got = {"answers": dict(zip(want, decoded, strict=True))}
    parsed = parse_min_confidence(gate)
    if parsed is not None:
        parsed.apply([got])
    assert list(differences(got["answers"], want)) == []


@pytest.mark.parametrize(("index", "options", "name"), FUNCTIONS["buckets"])
def test_bucket(index: int, options: int, name: str) -> None:
    assert bucket(KINDS[index], options) == name  # type: ignore[arg-type]


@pytest.mark.parametrize(("given", "used"), FUNCTIONS["clamp"])
def test_clamp(given: Any, used: float) -> None:
    assert clamp_temperature(restore(given)) == used


@pytest.mark.parametrize("case", FUNCTIONS["confidence"], ids=range(len(FUNCTIONS["confidence"])))
def test_entropy_confidence(case: dict[str, Any]) -> None:
    p = np.asarray([case["p"][: case["k"]]], np.float32)
    assert entropy_confidence(p)[0] == pytest.approx(case["entropy_confidence"], abs=1e-6)


FILES = golden_cases("calibration_files.json")
TINY_IDENTITY = identity_of(open_checkpoint(GOLDEN / "tiny-checkpoint", model_id="tiny-checkpoint"))


@pytest.mark.parametrize("case", FILES, ids=[case["id"] for case in FILES])
def test_calibration_file(case: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    payload = case["payload"]
    path.write_text(payload if isinstance(payload, str) else json.dumps(payload))
    plain = Calibration()
    if "error" in case:
        with pytest.raises(CheckpointFormatError):
            read_calibration(path, plain, TINY_IDENTITY)
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = read_calibration(path, plain, TINY_IDENTITY)
    assert list(got.temperatures.by_type) == case["temperature"]
    assert got.temperatures.by_bucket == case["temperature_by_options"]
    assert got.binning == case["binning_map"]
    families = [UserWarning if issubclass(w.category, UserWarning) else w.category for w in caught]
    assert [family.__name__ for family in families] == case["warnings"]


def test_a_written_calibration_file_is_upstreams(tmp_path: Path) -> None:
    saved = json.loads((GOLDEN / "calibration_files.json").read_text())["saved_payload"]
    source = tmp_path / "source.json"
    source.write_text(json.dumps(saved))
    made = read_calibration(source, Calibration(), TINY_IDENTITY)  # of this model: no warning
    written = write_calibration(tmp_path / "written.json", made, TINY_IDENTITY)
    assert json.loads(written.read_text()) == saved
