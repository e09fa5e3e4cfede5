"""What the operating system allows, against what the browsers of a worker take."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil

from webgym_workers.doctor import mends
from webgym_workers.doctor.finding import Finding, Status
from webgym_workers.doctor.host import Host

__all__ = [
    "TYPICAL",
    "Footprint",
    "Limits",
    "judge_memory",
    "judge_open_files",
    "judge_processes",
    "judge_shared_memory",
    "read_limits",
]

MIB = 2**20
PROGRAM_FILES = 64
"""Open files for a program of ours besides those of its browsers: log, sockets, event loop, libraries."""
FRAME_BYTES = 4 * 224 * 224 * 3
"""Of the ring of frames, for one browser."""
_BARE, _AMPLE = 1.1, 2
"""How many times the open files of one simple page are too few, and enough: connections and further pages take more."""


@dataclass(frozen=True)
class Footprint:
    """What one browser takes, with its display where it has one.

    Attributes:
        resident_bytes: Memory, shared pages once.
        shared_bytes: Of the volume of shared memory, for its screen.
        files: Open files of the process that has most.
        own_files: Open files of the process that drives it.
        processes: Processes.
        threads: Threads of all of them.
    """

    resident_bytes: int
    shared_bytes: int
    files: int
    own_files: int
    processes: int
    threads: int


TYPICAL = Footprint(370 * MIB, 10 * MIB, 123, 7, 9, 96)
"""Chromium 156 with its Xvfb on Linux, one simple page of 1920x1080."""


@dataclass(frozen=True)
class Limits:
    """What the operating system allows; None is: as much as one likes.

    Attributes:
        open_files: Of one process.
        open_files_hard: As far as a process may raise that itself.
        user_processes: Of this user, threads on Linux.
        user_running: Those that there are.
        pids: Threads in this control group.
        pids_running: Those that there are.
        shared_place: The volume of shared memory; None where memory is shared without one.
        shared_bytes: Its size.
        shared_free: What is free of it.
        memory_free: What can be had of the machine's or the container's memory.
    """

    open_files: int | None = None
    open_files_hard: int | None = None
    user_processes: int | None = None
    user_running: int = 0
    pids: int | None = None
    pids_running: int = 0
    shared_place: str | None = None
    shared_bytes: int = 0
    shared_free: int = 0
    memory_free: int = 0


def read_limits(groups: Path = Path("/sys/fs/cgroup"), shared: Path = Path("/dev/shm")) -> Limits:
    """The limits of this process."""
    soft, hard = _rlimit("RLIMIT_NOFILE")
    processes, _ = _rlimit("RLIMIT_NPROC")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        processes = None  # the kernel does not hold root to it
    pids, pids_running = _pids(groups)
    place, size, free = None, 0, 0
    if sys.platform == "linux" and shared.is_dir():
        status = os.statvfs(shared)
        place, size, free = str(shared), status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
    return Limits(
        open_files=soft,
        open_files_hard=hard,
        user_processes=processes,
        user_running=0 if processes is None else _of_this_user(),
        pids=pids,
        pids_running=pids_running,
        shared_place=place,
        shared_bytes=size,
        shared_free=free,
        memory_free=_memory_free(groups),
    )


def _rlimit(name: str) -> tuple[int | None, int | None]:
    try:
        import resource
    except ImportError:  # Windows
        return None, None
    soft, hard = resource.getrlimit(getattr(resource, name))
    endless = resource.RLIM_INFINITY
    return (None if soft == endless else soft), (None if hard == endless else hard)


def _of_this_user() -> int:
    """Threads of this user's processes on Linux, where the kernel counts those; processes elsewhere."""
    count = 0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.uids().real == os.getuid():
                count += process.num_threads() if sys.platform == "linux" else 1
    return count


def _groups(root: Path) -> Iterator[Path]:
    """The control groups that we are in, innermost first; a container sees its own as the root."""
    yield root
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            if line.startswith("0::"):
                inner = root / line[3:].lstrip("/")
                yield from (group for group in (inner, *inner.parents) if root in group.parents)


def _pids(root: Path) -> tuple[int | None, int]:
    """The bound with least room, and what is there already."""
    bounds: list[tuple[int, int]] = []
    for group in _groups(root):
        with contextlib.suppress(OSError, ValueError):
            most = int((group / "pids.max").read_text())
            bounds.append((most, int((group / "pids.current").read_text())))
    return min(bounds, key=lambda bound: bound[0] - bound[1], default=(None, 0))


def _memory_free(root: Path) -> int:
    free = int(psutil.virtual_memory().available)
    with contextlib.suppress(OSError, ValueError):
        limit = int((root / "memory.max").read_text())
        used = int((root / "memory.current").read_text())
        for line in (root / "memory.stat").read_text().splitlines():
            if line.startswith("inactive_file "):
                used -= int(line.split()[1])  # a cache that makes way
        free = min(free, limit - used)
    return max(0, free)


def judge_open_files(
    limits: Limits, footprint: Footprint, browsers: int, per_process: int, host: Host
) -> Finding:
    """Whether a browser, and the process that drives ``per_process`` of them, may open what they need."""
    ours = PROGRAM_FILES + footprint.own_files * min(browsers, per_process)
    need = max(footprint.files, ours)
    numbers = {"allowed": limits.open_files, "needed": need}
    what = f"a browser needs {footprint.files}, the process that drives them {ours}"
    if limits.open_files is None:
        return Finding(Status.OK, f"no limit; {what}", numbers=numbers)
    found = f"{limits.open_files:,} allowed; {what}"
    if limits.open_files >= _AMPLE * need:
        return Finding(Status.OK, found, numbers=numbers)
    mend = mends.more_open_files(host, max(4096, _AMPLE * need), limits.open_files_hard)
    status = Status.FAILED if limits.open_files < _BARE * need else Status.WARNING
    return Finding(status, found, mend, numbers)


class _Bound(NamedTuple):
    room: int
    """What may still come."""
    most: int
    by_ulimit: bool


def judge_processes(limits: Limits, footprint: Footprint, browsers: int, host: Host) -> Finding:
    """Whether the processes of all browsers may be started; on Linux each thread counts."""
    unit, each = "processes", footprint.processes
    if host.system == "Linux":
        unit, each = "threads", footprint.threads
    need = each * browsers
    numbers = {"allowed_user": limits.user_processes, "allowed_group": limits.pids, "needed": need}
    what = f"{_browsers(browsers)} of {each} {unit} need {need:,}"
    bounds = []
    if limits.user_processes is not None:
        bounds.append(_Bound(limits.user_processes - limits.user_running, limits.user_processes, True))
    if limits.pids is not None:
        bounds.append(_Bound(limits.pids - limits.pids_running, limits.pids, False))
    if not bounds:
        return Finding(Status.OK, f"no limit; {what}", numbers=numbers)
    least = min(bounds)
    whose = "this user's (ulimit -u)" if least.by_ulimit else "this control group's (pids.max)"
    found = f"{max(0, least.room):,} of {whose} {least.most:,} {unit} left; {what}"
    if least.room >= 2 * need:
        return Finding(Status.OK, found, numbers=numbers)
    wanted = least.most - least.room + 2 * need
    mend = mends.more_processes(host, wanted, "ulimit" if least.by_ulimit else "cgroup")
    return Finding(Status.FAILED if least.room < need else Status.WARNING, found, mend, numbers)


def judge_shared_memory(
    limits: Limits, footprint: Footprint, browsers: int, screens: bool, host: Host
) -> Finding:
    """Whether the volume of shared memory holds what browsers put there.

    Args:
        limits: Size and room of the volume.
        footprint: Of one browser.
        browsers: How many there are.
        screens: Whether their frames come from screens in shared memory.
        host: The machine.
    """
    if limits.shared_place is None:
        return Finding(Status.OK, "no volume of its own here: memory is shared without one")
    # Releases of Chromium before it used memfd put there what it shares, too: as much as a screen.
    each = footprint.shared_bytes * 2 if screens else footprint.shared_bytes
    each += FRAME_BYTES if screens else 0
    need = each * browsers
    numbers = {"bytes": limits.shared_bytes, "free_bytes": limits.shared_free, "needed_bytes": need}
    found = (
        f"{limits.shared_place} has {_size(limits.shared_free)} free of {_size(limits.shared_bytes)}; "
        f"{_browsers(browsers)} need {_size(need)}"
    )
    if limits.shared_free >= need:
        return Finding(Status.OK, found, numbers=numbers)
    fitting = limits.shared_free // each
    mend = mends.more_shared_memory(host, limits.shared_bytes - limits.shared_free + 2 * need)
    if fitting:
        mend += f", or workers.maxBrowsers: {fitting}"
    return Finding(Status.FAILED, found, mend, numbers)


def judge_memory(
    footprint: Footprint, memory_bytes: int, memory_free: int, browsers: int, host: Host
) -> Finding:
    """Whether all browsers fit into memory.

    Args:
        footprint: Of one browser.
        memory_bytes: What the machine, or the container, has.
        memory_free: What is free of it.
        browsers: How many there are.
        host: The machine.
    """
    each = footprint.resident_bytes
    need = each * browsers
    numbers = {
        "per_browser_bytes": each,
        "needed_bytes": need,
        "bytes": memory_bytes,
        "free_bytes": memory_free,
        "browsers": browsers,
    }
    found = (
        f"{_size(each)} a browser, {_size(need)} for {browsers}, with a simple page; "
        f"{_size(memory_free)} free of {_size(memory_bytes)}"
    )
    if need <= memory_free:
        return Finding(Status.OK, found, numbers=numbers)
    mend = mends.more_memory(host, memory_free // each)
    return Finding(Status.FAILED if need > memory_bytes else Status.WARNING, found, mend, numbers)


def _browsers(count: int) -> str:
    return "1 browser" if count == 1 else f"{count} browsers"


def _size(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / MIB:.0f} MiB"
