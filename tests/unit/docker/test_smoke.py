"""Verdicts of docker/smoke.py about figures that no healthy server gives."""

import importlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from docker_files import DOCKER

MIB = 1 << 20


@pytest.fixture
def smoke(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The script as a module, whose loads take no time."""
    monkeypatch.syspath_prepend(DOCKER)
    module = importlib.import_module("smoke")
    monkeypatch.setattr(module, "load", lambda setting: None)
    yield module
    for name in ("smoke", "smoke_server"):
        del sys.modules[name]


def setting(**given: Any) -> Any:
    return SimpleNamespace(told={}, least_batch=2.0, decision="starter_decision", **given)


def measure(smoke: ModuleType, monkeypatch: pytest.MonkeyPatch, **mebibytes: list[int]) -> str:
    figures = iter(
        [
            {name: size * MIB for name, size in zip(mebibytes, each, strict=True)}
            for each in zip(*mebibytes.values(), strict=True)
        ]
    )
    monkeypatch.setattr(smoke, "memory_in_use", lambda setting: next(figures))
    return str(smoke.check_memory(setting()))


def test_memory_that_grows_with_every_load_fails(
    smoke: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(smoke.CheckFailedError, match="processes 100 120 140 160 MiB"):
        measure(smoke, monkeypatch, processes=[100, 120, 140, 160])


def test_memory_of_a_gpu_counts_by_itself(
    smoke: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(smoke.CheckFailedError, match="expected gpu to grow by less"):
        measure(smoke, monkeypatch, processes=[100, 100, 100, 100], gpu=[500, 520, 540, 560])


@pytest.mark.parametrize("sizes", [[100, 100, 100, 100], [100, 180, 180, 180], [100, 120, 90, 130]])
def test_memory_that_stops_growing_passes(
    sizes: list[int], smoke: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert measure(smoke, monkeypatch, host=sizes).startswith("host 100 ")


@pytest.mark.parametrize(
    ("rows", "passes", "told"), [(24, 24, "24 rows in 24 passes"), (0, 0, "0 rows in 0 passes")]
)
def test_passes_that_nobody_shares_fail(
    rows: int, passes: int, told: str, smoke: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter([(7, 3), (7 + rows, 3 + passes)])
    monkeypatch.setattr(smoke, "rows_and_passes", lambda setting: next(counts))
    with pytest.raises(smoke.CheckFailedError, match=told):
        smoke.check_batches(setting())


def test_a_check_that_hangs_is_given_up(smoke: ModuleType) -> None:
    begun = time.monotonic()
    outcome = smoke._made("graph", lambda setting: time.sleep(3), setting(until=begun + 0.1))
    assert time.monotonic() - begun < 2
    assert outcome.passed is False
    assert "--seconds" in outcome.found


def test_the_memory_of_a_process_is_its_childrens_too(smoke: ModuleType) -> None:
    resident = sys.modules["smoke_server"]._resident
    code = "import sys; taken = bytearray(64 << 20); print(flush=True); sys.stdin.read()"
    before = resident(os.getpid())
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout
        child.stdout.readline()
        assert resident(os.getpid()) - before > 64 * MIB
        child.communicate()


def test_a_process_that_is_not_there_is_told(smoke: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(smoke.CheckFailedError, match="on the server's host only"):
        sys.modules["smoke_server"]._resident(1, tmp_path)
