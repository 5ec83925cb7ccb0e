"""Memory that an engine freed while it loaded goes back to the system.

The C library keeps freed blocks below the last one in use. What ONNX Runtime computes of weights
while it loads is as large as the weights, and would stay in the process for good.
"""

import ctypes
import sys
from collections.abc import Callable
from functools import cache


def give_back_freed_memory() -> None:
    """Return free memory of the heap; nothing where the C library has no way to."""
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    if sys.platform != "linux":
        return None
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim
