"""What the processor can do that decides between a fast and a right way to multiply."""

import platform
from pathlib import Path
from typing import Final

CPUINFO: Final = Path("/proc/cpuinfo")
DOT_PRODUCTS: Final = frozenset({"avx512_vnni", "avx_vnni"})
X86: Final = frozenset({"x86_64", "amd64", "i386", "i686"})


def saturates_int8(cpuinfo: Path = CPUINFO, machine: str | None = None) -> bool:
    """Whether ONNX Runtime's products of uint8 and int8 may lose the top of a sum.

    On x86 without VNNI two products are added in 16 bits. Where the processor cannot be asked,
    it is assumed to.

    Args:
        cpuinfo: Linux's description of the processor.
        machine: the architecture, by default this one's.
    """
    if (machine or platform.machine()).lower() not in X86:
        return False
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return True
    flags = next((line for line in lines if line.startswith("flags")), "")
    return not DOT_PRODUCTS & set(flags.split())
