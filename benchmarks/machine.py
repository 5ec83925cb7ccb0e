"""What kind of machine measured: facts that speed depends on, without any name of the machine."""

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any, Final

TELLING: Final = (
    *("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16"),
    *("amx_tile", "amx_int8", "amx_bf16", "asimd", "asimddp", "bf16", "i8mm"),
)
PACKAGES: Final = ("drut", "onnxruntime", "onnxruntime-gpu", "openvino", "numpy", "tokenizers")


def flags(source: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Flags of the processor; none where the system does not tell."""
    if not source.is_file():
        return frozenset()
    for line in source.read_text(encoding="utf-8").splitlines():
        if line.startswith(("flags", "Features")):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


def facts() -> dict[str, Any]:
    """Processors, flags, versions, and how busy the machine was at the start."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "architecture": platform.machine(),
        "processors": os.cpu_count(),
        "flags": [name for name in TELLING if name in flags()],
        "python": platform.python_version(),
        "versions": versions,
        "load": [round(value, 2) for value in os.getloadavg()],
    }
