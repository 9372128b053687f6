"""How much memory this process may still use."""

import os
from pathlib import Path

UNKNOWN = 2**34  # where the system does not say
CONTROL_GROUPS = (  # of both versions: the limit, and what is used of it
    (Path("/sys/fs/cgroup"), "memory.max", "memory.current"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"),
)


def available_memory() -> int:
    """Bytes that can be used without swapping: of the machine, or of this process's share of it
    (a container, a batch job, `ulimit -v`)."""
    return min(_machine(), *_containers(), _process())


def _machine() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return UNKNOWN


def _containers() -> list[int]:
    """What the limits of control groups leave; the largest integer if there are none."""
    left = [2**63]
    for folder, limit, used in CONTROL_GROUPS:
        try:
            most, now = ((folder / name).read_text().strip() for name in (limit, used))
        except OSError:
            continue
        if most.isdigit():
            # What files occupy in the cache counts as used, but is given back when needed.
            left.append(max(int(most) - int(now) + _cached(folder), 0))
    return left


def _cached(folder: Path) -> int:
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    entries = dict(line.split()[:2] for line in lines if len(line.split()) == 2)
    return int(entries.get("inactive_file", entries.get("total_inactive_file", 0)))


def _process() -> int:
    try:
        import resource
    except ImportError:  # Windows
        return 2**63
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return 2**63
    try:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        used = 0
    return max(limit - used, 0)
