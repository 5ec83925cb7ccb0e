from pathlib import Path

import pytest

from drut.runtimes.processor import saturates_int8


@pytest.mark.parametrize(
    ("flags", "saturates"),
    [("fpu avx2 avx512_vnni", False), ("avx2 avx_vnni", False), ("fpu avx2 avx512bw", True)],
)
def test_x86_saturates_without_vnni(tmp_path: Path, flags: str, saturates: bool) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(f"processor\t: 0\nflags\t\t: {flags}\n", encoding="utf-8")
    assert saturates_int8(path, "x86_64") is saturates


def test_what_cannot_be_asked_is_assumed_to_saturate(tmp_path: Path) -> None:
    assert saturates_int8(tmp_path / "absent", "AMD64")


def test_other_architectures_do_not(tmp_path: Path) -> None:
    assert not saturates_int8(tmp_path / "absent", "aarch64")
