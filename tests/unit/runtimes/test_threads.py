import os
from pathlib import Path

import pytest

from drut.runtimes import threads
from drut.runtimes.threads import cpu_quota, usable_cpus


def group(tmp_path: Path, *, v2: str | None = None, v1: tuple[str, str] | None = None) -> tuple:
    """Control group files under a directory, as `cpu_quota` takes them."""
    if v2 is not None:
        (tmp_path / "cpu.max").write_text(v2)
    if v1 is not None:
        (tmp_path / "cpu").mkdir()
        (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(v1[0])
        (tmp_path / "cpu" / "cpu.cfs_period_us").write_text(v1[1])
    return tmp_path / "cpu.max", tmp_path / "cpu"


@pytest.mark.parametrize(
    ("text", "quota"),
    [
        ("200000 100000\n", 2.0),
        ("50000 100000\n", 0.5),
        ("max 100000\n", None),
        ("", None),
        ("100000", None),
        ("100000 0", None),
        ("what ever", None),
    ],
)
def test_the_quota_of_a_container(tmp_path: Path, text: str, quota: float | None):
    assert cpu_quota(*group(tmp_path, v2=text)) == quota


@pytest.mark.parametrize(
    ("values", "quota"),
    [
        (("150000\n", "100000\n"), 1.5),
        (("-1\n", "100000\n"), None),
        (("0", "100000"), None),
        (("1", "0"), None),
        (("x", "1"), None),
    ],
)
def test_the_quota_of_an_older_kernel(tmp_path: Path, values: tuple[str, str], quota: float | None):
    assert cpu_quota(*group(tmp_path, v1=values)) == quota


def test_the_newer_file_wins_and_no_file_means_no_quota(tmp_path: Path):
    assert cpu_quota(*group(tmp_path)) is None
    assert cpu_quota(*group(tmp_path, v2="max 1", v1=("100000", "100000"))) is None


@pytest.mark.parametrize(
    ("affinity", "quota", "expected"),
    [(8, None, 8), (8, 2.0, 2), (8, 2.5, 3), (8, 0.1, 1), (2, 16.0, 2), (1, None, 1)],
)
def test_threads_follow_affinity_and_quota(
    monkeypatch: pytest.MonkeyPatch, affinity: int, quota: float | None, expected: int
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(affinity)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(threads, "cpu_quota", lambda: quota)
    assert usable_cpus() == expected


@pytest.mark.parametrize(("count", "expected"), [(6, 6), (None, 1)])
def test_without_affinity_the_machine_counts(
    monkeypatch: pytest.MonkeyPatch, count: int | None, expected: int
):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    monkeypatch.setattr(threads, "cpu_quota", lambda: None)
    assert usable_cpus() == expected


def test_this_machine_has_at_least_one():
    assert usable_cpus() >= 1
