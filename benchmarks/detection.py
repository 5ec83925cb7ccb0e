"""How language detection reads the labelled sentences, as a table.

    python -m benchmarks.detection [--peer-python /venv/bin/python] [--json] [--errors]

E, U and N are texts judged English, undecided and not English. Compared are the installed
identifier, the word lists that stand in for it, and, given a Python that has it installed, the
detector of the package `laya`. Nothing is asserted.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from drut.language.detect import detect
from drut.language.latin import installed_identifier
from language_set import Line, labelled_lines

# Reads states as JSON from stdin; answers with [[reading, seconds], ...]. The module is loaded by
# its file, so that the packages its parent needs for inference are not needed here.
PEER = """
import importlib.util, json, os, sys, time
root = os.path.dirname(importlib.util.find_spec("laya").origin)
spec = importlib.util.spec_from_file_location("peer_lang", os.path.join(root, "lang.py"))
module = importlib.util.module_from_spec(spec)
sys.modules["peer_lang"] = module
spec.loader.exec_module(module)

def reading(found):
    if found["script"] == "unknown":
        return "no-letters"
    if found["script"] != "latin" or not found["is_english"]:
        return "other"
    return "undecided" if found["language_undecided"] else "english"

answers = []
for state in json.load(sys.stdin):
    start = time.perf_counter()
    found = module.analyse(state)
    answers.append([reading(found), time.perf_counter() - start, found["language"]])
json.dump(answers, sys.stdout)
"""

LETTER = {"english": "E", "other": "N", "undecided": "U", "no-letters": "U"}
Answer = tuple[str, float, str | None]  # reading, seconds, language


def ours(states: Sequence[Any], **options: Any) -> list[Answer]:
    detect("a first call, to load what is loaded once", **options)
    answers = []
    for state in states:
        start = time.perf_counter()
        found = detect(state, **options)
        answers.append((found.reading, time.perf_counter() - start, found.language))
    return answers


def peer(python: str, states: Sequence[Any]) -> list[Answer]:
    done = subprocess.run(
        [python, "-c", PEER], input=json.dumps(states), capture_output=True, text=True, check=True
    )
    return [(reading, seconds, language) for reading, seconds, language in json.loads(done.stdout)]


def counted(
    lines: Sequence[Line], answers: Sequence[Answer], key: Callable[[Line], str]
) -> dict[str, Counter[str]]:
    table: dict[str, Counter[str]] = {}
    for line, (reading, _, _) in zip(lines, answers, strict=True):
        table.setdefault(key(line), Counter())[LETTER[reading]] += 1
    return table


def summary(lines: Sequence[Line], answers: Sequence[Answer]) -> dict[str, Any]:
    pairs = list(zip(lines, answers, strict=True))
    other = [answer for line, answer in pairs if line.expected == "other"]
    english = [answer for line, answer in pairs if line.expected == "english"]
    latin = [
        (line, answer) for line, answer in pairs if line.kind == "latin" and line.variant == "plain"
    ]
    sentences = [answer[1] for line, answer in pairs if line.kind in ("english", "latin")]
    return {
        "not English, judged English": f"{_share(other, 'english')}",
        "not English, undecided": f"{_share(other, 'undecided')}",
        "English, judged not English": f"{_share(english, 'other')}",
        "English, undecided": f"{_share(english, 'undecided')}",
        "language named right (latin)": (
            f"{sum(answer[2] == line.language for line, answer in latin)} of {len(latin)}"
        ),
        "median µs per sentence": round(statistics.median(sentences) * 1e6),
        "slowest sentence, µs": round(max(sentences) * 1e6),
    }


def _share(answers: Sequence[Answer], reading: str) -> str:
    return f"{sum(answer[0] == reading for answer in answers)} of {len(answers)}"


def cell(counts: Counter[str]) -> str:
    return "/".join(str(counts[letter]) for letter in "EUN")


def print_table(title: str, rows: dict[str, list[str]], columns: Sequence[str]) -> None:
    width = max(map(len, rows)) + 2
    print(f"\n{title:<{width}}" + "".join(f"{column:>16}" for column in columns))
    for name, cells in rows.items():
        print(f"{name:<{width}}" + "".join(f"{text:>16}" for text in cells))


def report(lines: Sequence[Line], detectors: dict[str, list[Answer]]) -> dict[str, Any]:
    groups = {
        name: counted(lines, found, lambda line: line.group) for name, found in detectors.items()
    }
    latin = [index for index, line in enumerate(lines) if line.kind == "latin"]
    languages = {
        name: counted(
            [lines[index] for index in latin],
            [found[index] for index in latin],
            lambda line: f"{line.language}, {line.variant}",
        )
        for name, found in detectors.items()
    }
    return {
        "groups": _rows(groups),
        "languages": _rows(languages),
        "summary": {name: summary(lines, found) for name, found in detectors.items()},
    }


def _rows(tables: dict[str, dict[str, Counter[str]]]) -> dict[str, list[str]]:
    first = next(iter(tables.values()))
    return {
        f"{name} ({first[name].total()})": [cell(table[name]) for table in tables.values()]
        for name in first
    }


def print_report(figures: dict[str, Any], columns: Sequence[str]) -> None:
    print_table("E/U/N", figures["groups"], columns)
    print_table("latin, by language", figures["languages"], columns)
    names = next(iter(figures["summary"].values()))
    rows = {name: [str(figures["summary"][column][name]) for column in columns] for name in names}
    print_table("in all", rows, columns)


def print_errors(lines: Sequence[Line], detectors: dict[str, list[Answer]]) -> None:
    for name, answers in detectors.items():
        for line, (reading, _, language) in zip(lines, answers, strict=True):
            if {line.expected, reading} == {"english", "other"}:
                print(f"{name}: {line.group} ({line.language}) read as {language}: {line.state}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer-python", help="a Python with the package laya installed")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--errors", action="store_true", help="list the texts read the wrong way")
    options = parser.parse_args()
    lines = labelled_lines()
    states = [line.state for line in lines]
    identifier = installed_identifier()
    detectors = {"word-lists": ours(states, identifier=None)}
    if identifier is not None:
        detectors = {identifier.name: ours(states, identifier=identifier), **detectors}
    if options.peer_python:
        detectors["laya"] = peer(options.peer_python, states)
    figures = report(lines, detectors)
    if options.json:
        print(json.dumps(figures, indent=2, ensure_ascii=False))
    else:
        print_report(figures, list(detectors))
    if options.errors:
        print_errors(lines, detectors)


if __name__ == "__main__":
    main()
