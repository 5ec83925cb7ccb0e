"""What an engine freed while it loaded does not stay in the process."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from drut.runtimes import freed_memory, ort
from drut.runtimes.freed_memory import give_back_freed_memory
from drut.runtimes.ort import OrtOptions, OrtRuntime
from graphs import write_graph

BLOCKS = """
from pathlib import Path
from drut.runtimes.freed_memory import give_back_freed_memory

def resident():
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * 4096 >> 20

kept = [bytes(100_000) for _ in range(640)][-1]  # below the last one lie 61 MiB of free blocks
before = resident()
give_back_freed_memory()
print(before - resident())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such call")
def test_free_blocks_below_the_last_one_are_given_back() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BLOCKS], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) > 40


def test_a_session_gives_back_what_loading_it_freed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[bool] = []
    monkeypatch.setattr(ort, "give_back_freed_memory", lambda: given.append(True))
    OrtRuntime(write_graph(tmp_path / "model.onnx"), OrtOptions("cpu", threads=1)).close()
    assert given == [True]


@pytest.mark.parametrize("platform_name", ["darwin", "win32"])
def test_elsewhere_nothing_is_called(monkeypatch: pytest.MonkeyPatch, platform_name: str) -> None:
    monkeypatch.setattr(freed_memory.sys, "platform", platform_name)
    monkeypatch.setattr(freed_memory.ctypes, "CDLL", lambda *_: pytest.fail("looked up"))
    freed_memory._trim.cache_clear()
    try:
        give_back_freed_memory()
    finally:
        freed_memory._trim.cache_clear()
