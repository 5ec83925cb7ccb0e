import itertools

import pytest

from drut.errors import ExportError
from drut_export.triton_releases import (
    LAST,
    PORTABLE,
    PRESENT,
    RELEASES,
    format_for,
    known_names,
)


def test_without_a_name_it_is_the_present_format() -> None:
    assert format_for(None) is PRESENT
    assert (PRESENT.opset, PRESENT.made_for) == (24, None)


@pytest.mark.parametrize("name", ["triton:23.12", "triton:24.10", "triton:25.03", "triton:26.06"])
def test_a_known_release_gets_what_its_onnx_runtime_reads(name: str) -> None:
    form = format_for(name)
    assert (form.opset, form.ir_version, form.made_for) == (18, 8, name)


def test_no_release_gets_more_than_it_reads_and_none_opset_23() -> None:
    for release in RELEASES:
        form = format_for("triton:{}.{:02}".format(*release.since))
        assert form.opset <= release.opset
        assert form.ir_version <= release.ir_version
        assert form.opset != 23


def test_the_table_is_in_order_and_only_grows() -> None:
    assert [each.since for each in RELEASES] == sorted(each.since for each in RELEASES)
    for older, newer in itertools.pairwise(RELEASES):
        assert older.opset <= newer.opset
        assert older.ir_version <= newer.ir_version
    assert RELEASES[-1].since <= LAST
    assert PORTABLE.opset <= RELEASES[0].opset


@pytest.mark.parametrize(
    "name",
    [
        "",
        "triton",
        "triton:",
        "24.10",
        "triton:23.11",
        "triton:26.07",
        "triton:24.13",
        "triton:24.00",
        "triton:24.1",
        "Triton:24.10",
        "triton:24.10-py3",
        "ort:1.19",
    ],
)
def test_an_unknown_name_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(ExportError, match=r"known are triton:23\.12 to triton:26\.06"):
        format_for(name)
    assert "triton:23.12" in known_names()
