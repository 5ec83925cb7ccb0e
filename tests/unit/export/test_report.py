import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from drut_export.picture import draw_distribution
from drut_export.report import render_report, write_report
from drut_export.verify_report import BINS, bin_start, distribution_of
from unit.export.reports import FIGURES, report

SVG = "{http://www.w3.org/2000/svg}"


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def table_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("|")]


def test_the_table_has_a_line_for_every_batch_the_sum_and_the_tolerance() -> None:
    lines = table_of(render_report(report()))
    assert [cells(line)[0] for line in lines] == [
        "batch",
        lines[1].split("|")[1].strip(),
        "3 rows x 23 tokens x 2 options",
        "everyday text",
        "all",
        "allowed",
    ]
    assert cells(lines[2])[1:] == [
        "3",
        "2e-05",
        "4e-06",
        "5e-06",
        "6e-07",
        "100.0%",
        "5e-07",
        "yes",
    ]
    assert cells(lines[-1])[2] == "0.005"
    assert len({len(line) for line in lines}) == 1  # readable without a renderer
    assert len({line.count("|") for line in lines}) == 1


def test_the_verdict_names_the_worst_row() -> None:
    told = render_report(report())
    assert "Worst row: row 2 of 3 rows x 23 tokens x 2 options." in told
    assert told.endswith("Passed: every figure is within what is allowed.")
    assert "does not depend" in told


def test_a_failure_and_a_dependence_on_neighbours_are_plain_to_see() -> None:
    moved = replace(FIGURES, title="all", batch_difference=0.01)
    problem = "probabilities differ by 0.2, allowed are 0.0005 (worst row: x)"
    told = render_report(report(total=moved, problems=(problem,)))
    assert told.endswith(f"Failed:\n\n- {problem}")
    assert "DEPENDS on the other rows" in told
    assert cells(table_of(told)[-2])[-1] == "no"


def test_report_and_picture_are_written_side_by_side(tmp_path: Path) -> None:
    write_report(tmp_path, report(), name="mine", precision="fp16")
    text = (tmp_path / "VERIFICATION.md").read_text(encoding="utf-8")
    assert text.startswith("# Verification of mine (fp16)\n\n")
    assert text.endswith("(verification.svg)\n")
    picture = ET.fromstring((tmp_path / "verification.svg").read_text(encoding="utf-8"))
    title = picture.find(f"{SVG}title")
    assert title is not None
    assert title.text == "mine, fp16: differences of probabilities from the checkpoint"


def test_figures_are_json_ready() -> None:
    whole = json.loads(json.dumps(report().details()))
    assert whole["passed"] is True
    assert [case["title"] for case in whole["cases"]] == [FIGURES.title, "everyday text"]
    summary = report().as_dict()
    assert (summary["batches"], summary["rows"]) == (2, 6)
    assert "cases" not in summary


@pytest.mark.parametrize(
    ("difference", "index"),
    [(0.0, 0), (9e-11, 0), (1.1e-10, 1), (1.7e-10, 1), (1.9e-10, 2), (0.9, BINS), (1.0, BINS)],
)
def test_differences_are_counted_by_size(difference: float, index: int) -> None:
    counts = distribution_of(np.array([difference, difference]))
    assert len(counts) == BINS + 1
    assert counts[index] == sum(counts) == 2
    if index:
        assert difference >= 10 ** bin_start(index)


def bars(distribution: tuple[int, ...], limit: float = 1e-3) -> list[ET.Element]:
    picture = ET.fromstring(draw_distribution(distribution, limit=limit, title="a < b & c"))
    return [each for each in picture.iter(f"{SVG}rect") if each.find(f"{SVG}title") is not None]


def test_bars_are_as_high_as_their_counts_and_in_order() -> None:
    counts = [0] * (BINS + 1)
    counts[0], counts[1], counts[20], counts[BINS] = 40, 10, 20, 1
    drawn = bars(tuple(counts))
    heights = [float(bar.get("height", 0)) for bar in drawn]
    places = [float(bar.get("x", 0)) for bar in drawn]
    assert places == sorted(places)
    assert heights[0] == pytest.approx(2 * heights[2], abs=0.2)
    assert heights[2] == pytest.approx(2 * heights[1], abs=0.2)
    assert heights[3] > 0


def test_one_among_very_many_is_still_seen() -> None:
    counts = [0] * (BINS + 1)
    counts[3], counts[9] = 1_000_000, 1
    assert float(bars(tuple(counts))[1].get("height", 0)) >= 1


@pytest.mark.parametrize("limit", [5e-4, 0.1, 1.0, 5.0, 1e-12])
@pytest.mark.parametrize("count", [0, 1, 3, 7, 230, 99_999])
def test_everything_lies_inside_the_picture(count: int, limit: float) -> None:
    counts = (count, *[0] * (BINS - 1), count)
    picture = ET.fromstring(draw_distribution(counts, limit=limit, title="t"))
    width, height = float(picture.get("width", 0)), float(picture.get("height", 0))
    for each in (*picture.iter(f"{SVG}rect"), *picture.iter(f"{SVG}text")):
        x, y = float(each.get("x", 0)), float(each.get("y", 0))
        assert 0 <= x <= x + float(each.get("width", 0)) <= width
        assert 0 <= y <= y + float(each.get("height", 0)) <= height
