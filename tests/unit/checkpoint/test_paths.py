from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.checkpoint.paths import is_inside
from property_settings import examples

parts = st.sampled_from(["a", "b.c", "..", ".", "", "/", "\\", "C:", "c:\\", "...", "é"])


@pytest.mark.parametrize("path", ["a", "a/b", "a/b.c", "...", "a..b", "."])
def test_a_relative_path_stays_inside(path: str):
    assert is_inside(path)


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../a",
        "a/..",
        "a/../b",
        "/a",
        "//a",
        "\\a",
        "..\\a",
        "a\\..\\b",
        "C:a",
        "C:\\a",
        "C:/a",
    ],
)
def test_a_path_that_may_lead_out_on_any_system_does_not(path: str):
    assert not is_inside(path)


@pytest.mark.parametrize("path", [None, 5, "", b"a", Path("a"), ["a"], True])
def test_what_is_no_text_is_no_path(path: Any):
    assert not is_inside(path)


@examples(40)
@given(st.lists(parts, max_size=5), st.sampled_from(["/", "\\", ""]))
def test_a_path_that_passes_resolves_below_its_directory(pieces: list[str], separator: str):
    path = separator.join(pieces)
    if is_inside(path):
        directory = Path("/somewhere/deep")
        assert (directory / PurePosixPath(path)).resolve().is_relative_to(directory)
