"""Where a program's Python memory grows: tracemalloc's snapshots compared over time, for ``webgym run --trace-memory``.

Each program of a run writes a file of its own, a line at each look, with the places that have grown most since the
first. Off, it costs a program the question whether it is on. On, each allocation is written down (which takes time and
memory), and each look takes from the program the CPU time that its line says; looks become rarer where they are
expensive.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from webgym.rundir import JsonLinesWriter, read_json_lines

__all__ = ["MemoryTrace", "Sizes", "grown_places", "memory_summary", "program_name", "trace_memory"]

logger = logging.getLogger(__name__)

FOLDER = "memory"
"""In the run's folder."""
FRAMES = 6
"""Of the stack of an allocation that are kept: enough to tell who called a library."""
TOP = 10
"""Places in each line, and in the summary."""
QUIET_SECONDS = 5.0
"""Without a new module, until allocations are written down. Importing torch alone makes half a million of them: that
would take five times as long, and make each look expensive."""
INTERVAL_SECONDS = 10.0
MOST_SHARE = 0.02
"""Of a program's time that may go into looks."""

Stack = tuple[tuple[str, int], ...]
"""File and line of each frame, the allocating one last."""
Sizes = Mapping[Stack, tuple[int, int]]
"""Bytes and blocks that live, by where they were allocated."""


def grown_places(before: Sizes, now: Sizes, limit: int = TOP) -> list[dict[str, Any]]:
    """The places with the largest growth, largest first; those that did not grow are left out.

    Returns:
        For each: ``place`` (``file:line`` that allocated), ``grown_bytes``, ``grown_blocks``, ``bytes`` that live now,
        and ``stack``, by which way most of the growth came, the outermost call first.
    """
    grown: dict[tuple[str, int], list[int]] = {}
    ways: dict[tuple[str, int], tuple[int, Stack]] = {}
    for stack in now.keys() | before.keys():
        size, blocks = now.get(stack, (0, 0))
        old_size, old_blocks = before.get(stack, (0, 0))
        place = stack[-1]
        sums = grown.setdefault(place, [0, 0, 0])
        for i, value in enumerate((size - old_size, blocks - old_blocks, size)):
            sums[i] += value
        ways[place] = max(ways.get(place, (0, stack)), (size - old_size, stack))
    largest = sorted((p for p in grown if grown[p][0] > 0), key=lambda p: (-grown[p][0], p))[:limit]
    return [
        {
            "place": _written(place),
            "grown_bytes": grown[place][0],
            "grown_blocks": grown[place][1],
            "bytes": grown[place][2],
            "stack": [_written(frame) for frame in ways[place][1]],
        }
        for place in largest
    ]


def _written(frame: tuple[str, int]) -> str:
    """``package/module.py:12``: without the folder that Python found it in."""
    name, line = frame
    for folder in sorted((f for f in sys.path if f), key=len, reverse=True):
        if name.startswith(f"{folder}{os.sep}"):
            name = name[len(folder) + 1 :]
            break
    return f"{name}:{line}"


class MemoryTrace(threading.Thread):
    """Looks at this program's memory every so often, from a thread of its own, until :meth:`stop`.

    Args:
        program: What the lines call it.
        path: The file.
        quiet: Seconds without a new module until allocations are written down.
        interval: Seconds between two looks; longer where looks are expensive.
    """

    def __init__(
        self, program: str, path: Path, *, quiet: float = QUIET_SECONDS, interval: float = INTERVAL_SECONDS
    ) -> None:
        super().__init__(name="memory trace", daemon=True)
        self._program = program
        self._quiet = quiet
        self._interval = interval
        self._began = time.monotonic()
        self._first: Sizes | None = None
        self._spent = 0.0
        self._stopping = threading.Event()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = JsonLinesWriter(path)

    def run(self) -> None:
        """Look, until asked to stop."""
        modules = 0
        while len(sys.modules) != modules:
            modules = len(sys.modules)
            if self._stopping.wait(self._quiet):
                return
        tracemalloc.start(FRAMES)
        self._began = time.monotonic()
        pause = self._interval
        while not self._stopping.wait(pause):
            pause = max(self._interval, self.look() / MOST_SHARE)

    def look(self) -> float:
        """Compare with the first look and write a line; the first look only remembers.

        Returns:
            Seconds of CPU time it took.
        """
        start, cpu = time.monotonic(), time.thread_time()
        # No gc.collect(): finalizers would run in this thread in place of the program's own.
        traced, peak = tracemalloc.get_traced_memory()
        sizes = _sizes()
        places = [] if self._first is None else grown_places(self._first, sizes)
        if self._first is None:
            self._first = sizes
        took = time.thread_time() - cpu
        self._spent += took
        self._writer.write(
            {
                "time": round(time.time(), 3),
                "program": self._program,
                "pid": os.getpid(),
                "seconds": round(start - self._began, 2),
                "traced_bytes": traced,
                "peak_traced_bytes": peak,
                "resident_bytes": psutil.Process().memory_info().rss,
                "tracer_bytes": tracemalloc.get_tracemalloc_memory(),
                "look_seconds": round(took, 3),
                "all_looks_seconds": round(self._spent, 3),
                "grown": places,
            }
        )
        return took

    def stop(self) -> None:
        """A last look, and the end."""
        self._stopping.set()
        self.join()
        try:
            if tracemalloc.is_tracing():
                self.look()
        finally:
            self._writer.close()
            tracemalloc.stop()


def _sizes() -> dict[Stack, tuple[int, int]]:
    """What lives now, without what tracing itself takes."""
    own = {tracemalloc.__file__, __file__}
    found = {}
    for statistic in tracemalloc.take_snapshot().statistics("traceback"):
        stack = tuple((frame.filename, frame.lineno) for frame in statistic.traceback)
        if stack[-1][0] not in own:
            found[stack] = statistic.size, statistic.count
    return found


@contextlib.contextmanager
def trace_memory(out: Path, program: str) -> Iterator[None]:
    """Trace this program's memory during the block, into ``memory/`` of the run's folder.

    What keeps it from writing costs the trace, not the program.
    """
    name = re.sub(r"[^\w.-]", ".", program)
    try:
        trace = MemoryTrace(program, out / FOLDER / f"{name}-{os.getpid()}.jsonl")
    except OSError as error:
        logger.warning("memory is not traced: %s", error)
        yield
        return
    trace.start()
    try:
        yield
    finally:
        try:
            trace.stop()
        except OSError as error:
            logger.warning("the last look at the memory was not written: %s", error)


def program_name(id: str) -> str:
    """``worker-0/inference`` and the like: a worker's processes all go by the worker's id."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    module = str(getattr(spec, "name", "")).rpartition(".")[2]
    return id if module in ("", "__main__") else f"{id}/{module}"


def memory_summary(out: Path) -> dict[str, Any] | None:
    """What the programs of a run have found, from the last line of each; None where nobody traced.

    Returns:
        ``grown``: the places that grew most, with their ``program`` and the ``seconds`` in which they did.
        ``programs``: traced, resident and tracing bytes of each, and the seconds that looks took in all.
    """
    try:
        files = sorted((out / FOLDER).glob("*.jsonl"))
    except OSError:
        return None
    last = [line for file in files for line in _last(read_json_lines(file))]
    if not last:
        return None
    grown = [
        {"program": line.get("program"), "seconds": line.get("seconds"), **place}
        for line in last
        for place in line.get("grown", [])
    ]
    figures = ("pid", "seconds", "traced_bytes", "resident_bytes", "tracer_bytes", "all_looks_seconds")
    return {
        "grown": sorted(grown, key=lambda place: -place["grown_bytes"])[:TOP],
        "programs": [{"program": line.get("program"), **{k: line.get(k) for k in figures}} for line in last],
    }


def _last(lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    latest: dict[str, Any] | None = None
    for line in lines:
        latest = line
    return [] if latest is None else [latest]
