"""The real tritonserver of the tests, for the benchmarks that ask it."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from triton_server import TritonServer, triton_server  # noqa: E402

__all__ = ["ROOT", "TritonServer", "triton_server"]
