"""How many browsers a worker runs: by cores, by memory, and by what the manifest allows."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

import psutil

from webgym.spec import Workers

__all__ = ["Machine", "browser_count", "machine", "split_browsers"]


@dataclass(frozen=True)
class Machine:
    """What this process may use."""

    cores: float
    memory_bytes: int


def machine(cgroup: Path = Path("/sys/fs/cgroup")) -> Machine:
    """Cores and memory of this machine, or of the container that this process is confined to."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    cores, memory = float(affinity), psutil.virtual_memory().total
    quota, period = _words(cgroup / "cpu.max", ("max", "100000"))
    if quota.isdigit() and period.isdigit() and int(period) > 0:
        cores = min(cores, int(quota) / int(period))
    (limit,) = _words(cgroup / "memory.max", ("max",))
    if limit.isdigit():
        memory = min(memory, int(limit))
    return Machine(cores, memory)


def _words(path: Path, default: tuple[str, ...]) -> tuple[str, ...]:
    try:
        words = tuple(path.read_text(encoding="ascii").split())
    except (OSError, UnicodeDecodeError):
        return default
    return words if len(words) == len(default) else default


def browser_count(workers: Workers, here: Machine) -> int:
    """Browsers of one worker: ``browsersPerCore`` by its cores, no more than fit or are allowed, at least one."""
    cores = float(len(workers.cpu_affinity)) if workers.cpu_affinity else here.cores
    wanted = math.floor(cores * workers.browsers_per_core + 1e-9)
    fitting = here.memory_bytes // max(1, int(workers.memory_per_browser))
    allowed = workers.max_browsers or wanted
    return max(1, min(wanted, int(fitting), allowed))


def split_browsers(browsers: int, per_process: int) -> list[int]:
    """Browsers of each process, as even as can be, no more than ``per_process`` each."""
    processes = math.ceil(browsers / per_process)
    base, extra = divmod(browsers, processes)
    return [base + (i < extra) for i in range(processes)]
