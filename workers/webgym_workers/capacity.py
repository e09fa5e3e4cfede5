"""How many browsers a worker runs: by cores, by memory, and by what the manifest allows."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import psutil

from webgym.errors import RunError
from webgym.spec import Workers
from webgym.spec.cpus import CpuSet

__all__ = [
    "CGROUPS",
    "OWN_CGROUP",
    "CpuLimit",
    "Machine",
    "browser_affinity",
    "browser_count",
    "core_groups",
    "cpu_limit",
    "machine",
    "split_browsers",
    "worker_browsers",
]


CGROUPS = Path("/sys/fs/cgroup")
"""Where control groups (version 2) are mounted."""
OWN_CGROUP = Path("/proc/self/cgroup")
"""Tells which of them is ours."""


@dataclass(frozen=True)
class Machine:
    """What this process may use."""

    cores: float
    """How many cores' worth of time; a container's limit may be a fraction."""
    memory_bytes: int
    cpus: frozenset[int] = frozenset()
    """Numbers of the cores; empty where the system does not tell."""


@dataclass(frozen=True)
class CpuLimit:
    """How much CPU time a control group may use."""

    group: Path
    cores: float


def machine(cgroup: Path = CGROUPS, own: Path = OWN_CGROUP) -> Machine:
    """Cores and memory of this machine, or what the container, slice or service that this process is in has of it.

    Args:
        cgroup: where control groups (version 2) are mounted.
        own: tells which of them is ours.
    """
    cpus = frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset[int]()
    cores, memory = float(len(cpus) or os.cpu_count() or 1), psutil.virtual_memory().total
    least = cpu_limit(cgroup, own)
    if least is not None:
        cores = min(cores, least.cores)
    # A limit of any group that ours lies in is ours, too.
    for group in _groups(cgroup, own):
        (limit,) = _words(group / "memory.max", ("max",))
        if limit.isdigit():
            memory = min(memory, int(limit))
    return Machine(cores, memory, cpus)


def cpu_limit(cgroup: Path = CGROUPS, own: Path = OWN_CGROUP) -> CpuLimit | None:
    """The least limit of CPU time of our control group and of those that it lies in; None where there is none."""
    found = []
    for group in _groups(cgroup, own):
        quota, period = _words(group / "cpu.max", ("max", "100000"))
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            found.append(CpuLimit(group, int(quota) / int(period)))
    return min(found, key=lambda limit: limit.cores, default=None)


def _groups(cgroup: Path, own: Path) -> list[Path]:
    """Our control group and all that it lies in, the root first."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return [cgroup]
    # Inside a container with a name space of its own the path is "/", and the container's limits are at the root.
    path = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "/")
    groups = [cgroup]
    for part in PurePosixPath(path).parts[1:]:
        if part == "..":
            return [cgroup]
        groups.append(groups[-1] / part)
    return groups


def _words(path: Path, default: tuple[str, ...]) -> tuple[str, ...]:
    try:
        words = tuple(path.read_text(encoding="ascii").split())
    except (OSError, UnicodeDecodeError):
        return default
    return words if len(words) == len(default) else default


def browser_count(workers: Workers, here: Machine) -> int:
    """Browsers of one worker: ``browsersPerCore`` by its cores, no more than fit or are allowed, at least one."""
    groups = core_groups(workers.cpu_affinity, here.cpus)
    cores = min(here.cores, float(sum(map(len, groups)))) if groups else here.cores
    wanted = math.floor(cores * workers.browsers_per_core + 1e-9)
    fitting = here.memory_bytes // max(1, int(workers.memory_per_browser))
    allowed = workers.max_browsers or wanted
    return max(1, min(wanted, int(fitting), allowed))


def worker_browsers(mode: str, workers: Workers, here: Machine) -> int:
    """Browsers of each worker of a run in a mode: Synchronous has one."""
    return 1 if mode == "Synchronous" else browser_count(workers, here)


def split_browsers(browsers: int, per_process: int) -> list[int]:
    """Browsers of each process, as even as can be, no more than ``per_process`` each."""
    processes = math.ceil(browsers / per_process)
    base, extra = divmod(browsers, processes)
    return [base + (i < extra) for i in range(processes)]


def core_groups(affinity: CpuSet | None, cpus: frozenset[int]) -> list[tuple[int, ...]]:
    """The groups of ``workers.cpuAffinity``, without cores that are not here; none where nothing is asked for.

    Raises:
        RunError: none of its cores is here.
    """
    if affinity is None:
        return []
    if not cpus:
        return list(affinity.groups)
    groups = [tuple(core for core in group if core in cpus) for group in affinity.groups]
    found = [group for group in groups if group]
    if not found:
        raise RunError(
            f"workers.cpuAffinity is {affinity}, but this machine lets us use cores {_ranges(sorted(cpus))} only"
        )
    return found


def browser_affinity(
    affinity: CpuSet | None, cpus: frozenset[int], first: int, count: int, browsers: int
) -> list[tuple[int, ...]]:
    """Cores of each of ``count`` browsers from the worker's ``first`` on; empty where nothing is asked for.

    Neighbours share a group, because they share an asyncio process; the groups have equal shares of all ``browsers``.

    Raises:
        RunError: none of the cores asked for is here.
    """
    groups = core_groups(affinity, cpus)
    return (
        [groups[index * len(groups) // browsers] for index in range(first, first + count)] if groups else []
    )


def _ranges(cores: list[int]) -> str:
    """Cores as people write them, such as ``0-3,8``."""
    parts: list[list[int]] = []
    for core in cores:
        if parts and core == parts[-1][1] + 1:
            parts[-1][1] = core
        else:
            parts.append([core, core])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
