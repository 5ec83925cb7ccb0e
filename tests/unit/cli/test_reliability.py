from xml.etree import ElementTree

import numpy as np

from drut.cli.reliability import Panel, draw_reliability
from drut.decoding.fitting import Reliability

SVG = "{http://www.w3.org/2000/svg}"
SEEN = Reliability(np.asarray([0, 4]), np.asarray([0.0, 0.9]), np.asarray([0.0, 0.5]))
NOTHING = Reliability(np.zeros(2, np.int64), np.zeros(2), np.zeros(2))


def drawn(*panels: Panel, title: str = "t") -> ElementTree.Element:
    return ElementTree.fromstring(draw_reliability(panels, title=title))


def texts(root: ElementTree.Element) -> list[str]:
    return [each.text or "" for each in root.iter(f"{SVG}text")]


def test_every_panel_has_two_plots_with_axes_and_errors():
    shown = texts(drawn(Panel("choice", SEEN, NOTHING), Panel("noul", SEEN, SEEN)))
    assert "choice, before: ECE 0.400" in shown
    assert "choice, after: ECE 0.000" in shown
    assert shown.count("share right") == 4
    assert shown.count("confidence (4 answers)") == 3
    assert shown.count("0.25") == 2 * 4


def test_a_bar_is_as_high_as_the_share_that_is_right():
    root = drawn(Panel("choice", SEEN, NOTHING))
    bars = [float(each.get("height", "")) for each in root.iter(f"{SVG}rect")]
    assert 0.5 * 240 in bars
    assert any(abs(height - 0.4 * 240) < 0.01 for height in bars)  # the gap to the confidence


def test_everything_lies_inside_the_picture():
    root = drawn(*[Panel("choice", SEEN, SEEN)] * 3)
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    for each in root.iter(f"{SVG}rect"):
        right = float(each.get("x", "0")) + float(each.get("width", ""))
        low = float(each.get("y", "0")) + float(each.get("height", ""))
        assert right <= width
        assert low <= height
    assert all(float(each.get("y", "")) < height for each in root.iter(f"{SVG}text"))


def test_a_title_cannot_break_the_picture():
    root = drawn(Panel("a", SEEN, SEEN), title="<&\x00\ud800>")
    assert root.findtext(f"{SVG}title") == "<&??>"
