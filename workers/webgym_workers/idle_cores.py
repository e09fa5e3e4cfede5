"""What is left of the cores that this process may use, told from one look to the next."""

from __future__ import annotations

from pathlib import Path
from time import monotonic

import psutil

from webgym_workers.capacity import CGROUPS, OWN_CGROUP, cpu_limit, machine

__all__ = ["IdleCores"]


class IdleCores:
    """The idle part of this machine's cores, or of what a container may use of them.

    Args:
        cgroup: where control groups (version 2) are mounted.
        own: tells which of them is ours.
    """

    def __init__(self, cgroup: Path = CGROUPS, own: Path = OWN_CGROUP) -> None:
        self._cpus = machine(cgroup, own).cpus
        self._limit = cpu_limit(cgroup, own)
        self._times: tuple[float, float] | None = None
        self._usage: tuple[float, float] | None = None

    def look(self) -> float | None:
        """The idle part, 0 to 1, of the time since the last look; None at the first.

        Under a limit of CPU time it is what is left of the limit, where that is less.
        """
        parts = [part for part in (self._machine(), self._container()) if part is not None]
        return min(parts, default=None)

    def _machine(self) -> float | None:
        cores = psutil.cpu_times(percpu=True)
        # The numbers are those of the cores that are on; where some are off, all of them are looked at.
        mine = [cores[cpu] for cpu in self._cpus if cpu < len(cores)] or cores
        idle = sum(core.idle + getattr(core, "iowait", 0.0) for core in mine)
        # Linux counts a guest's time as its host's, too; a host of virtual machines only seems busier by it.
        total = sum(map(sum, mine))
        before, self._times = self._times, (idle, total)
        if before is None or total <= before[1]:
            return None
        return min(1.0, max(0.0, (idle - before[0]) / (total - before[1])))

    def _container(self) -> float | None:
        if self._limit is None:
            return None
        try:
            lines = (self._limit.group / "cpu.stat").read_text(encoding="ascii").splitlines()
            used = next(int(line.split()[1]) for line in lines if line.startswith("usage_usec ")) / 1e6
        except (OSError, StopIteration, ValueError):
            return None
        now = monotonic()
        before, self._usage = self._usage, (used, now)
        if before is None or now <= before[1]:
            return None
        return min(1.0, max(0.0, 1 - (used - before[0]) / (now - before[1]) / self._limit.cores))
