"""How many threads a forward pass should use, which in a container is not the machine's count."""

import math
import os
from pathlib import Path

_CGROUP_V2 = Path("/sys/fs/cgroup/cpu.max")
_CGROUP_V1 = Path("/sys/fs/cgroup/cpu")


def usable_cpus() -> int:
    """Processors this process may use: its affinity, capped by the container's CPU quota."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quota = cpu_quota()
    count = allowed or 1
    return count if quota is None else max(1, min(count, math.ceil(quota)))


def cpu_quota(v2: Path = _CGROUP_V2, v1: Path = _CGROUP_V1) -> float | None:
    """CPU quota of the control group in processors, None where there is none."""
    try:
        limit, period = v2.read_text(encoding="ascii").split()[:2]
        return None if limit == "max" else float(limit) / float(period)
    except (OSError, ValueError, ZeroDivisionError):
        pass
    try:
        limit = (v1 / "cpu.cfs_quota_us").read_text(encoding="ascii")
        period = (v1 / "cpu.cfs_period_us").read_text(encoding="ascii")
        return float(limit) / float(period) if float(limit) > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None
