"""Signs of life between the processes of one worker, in shared memory, and who has given none for too long.

A process that ends is seen at once. One that stands still (stopped, swapped out, or caught in a task's own code that
sleeps or loops inside the event loop) looks alive to everybody but the browsers that it drives. So each process writes
the time into a word of its own again and again, and the worker kills what has not written for :data:`HANG_SECONDS`.

A second word tells how much a process has done, so that one that dies again and again without doing anything is told
from one that is killed now and then.

One writer a word, and a word is written whole: no lock is needed. The clock is CLOCK_MONOTONIC, the same in all
processes of a machine.
"""

from __future__ import annotations

import argparse
import mmap
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from webgym_workers.sharedmem import nameless_file

__all__ = ["BEAT_SECONDS", "HANG_SECONDS", "HangWatch", "Pulses", "add_pulse_arguments", "pulse_of"]

BEAT_SECONDS = 0.5
HANG_SECONDS = 15.0
"""Longer than any honest piece of work that an event loop is kept from turning by, on a busy machine, too."""
START_SECONDS = 90.0
"""Until the first sign of life: a process imports its libraries, and a task's module may load a model."""


class Pulses:
    """The words of all processes of a worker.

    Args:
        count: how many processes.
        fd: the memory, from :meth:`create`; stays open.
    """

    def __init__(self, count: int, fd: int) -> None:
        # The view keeps the mapping, which outlives the descriptor.
        self._words = np.frombuffer(mmap.mmap(fd, 16 * count), dtype=np.int64).reshape(count, 2)

    @staticmethod
    def create(count: int) -> int:
        """Descriptor of memory for so many processes; child processes inherit it.

        Raises:
            RunError: there is no room in shared memory.
        """
        return nameless_file(16 * count, "signs of life")

    def beat(self, index: int, work: int) -> None:
        """A sign of life of one process, and how much it has done so far (of whatever it is there for)."""
        self._words[index] = time.monotonic_ns(), work

    def latest(self, index: int) -> float | None:
        """When a process last gave a sign of life (:func:`time.monotonic`); None before the first."""
        nanoseconds = int(self._words[index, 0])
        return nanoseconds / 1e9 if nanoseconds else None

    def work(self, index: int) -> int:
        """How much the process of the moment had done by then."""
        return int(self._words[index, 1])


class HangWatch:
    """Decides, look by look, which processes stand still; owns no clock.

    Whoever looks may have been standing still itself, with all others (a stopped process group, a suspended machine):
    after a look that came late everybody gets the full time again.

    Args:
        hang_seconds: without a sign of life for so long, a process that has given one hangs.
        start_seconds: and one that has given none, since it was started.
    """

    def __init__(self, hang_seconds: float = HANG_SECONDS, start_seconds: float = START_SECONDS) -> None:
        self._hang = hang_seconds
        self._start = start_seconds
        self._looked: float | None = None
        self._forgiven = 0.0

    def hung(self, now: float, started: Sequence[float | None], latest: Sequence[float | None]) -> list[int]:
        """Which processes stand still.

        Args:
            now: the clock.
            started: when each was started; None for one that does not run.
            latest: its latest sign of life; None before the first.
        """
        if self._looked is not None and now - self._looked > self._hang / 3:
            self._forgiven = now
        self._looked = now
        found = []
        for index, (start, beat) in enumerate(zip(started, latest, strict=True)):
            if start is None:
                continue
            alive = beat is not None and beat >= start
            since = max(start if beat is None or not alive else beat, self._forgiven)
            if now - since > (self._hang if alive else self._start):
                found.append(index)
        return found


def add_pulse_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments by which the worker tells a process where to give its signs of life."""
    for name in ("pulse-fd", "pulses", "pulse"):
        parser.add_argument(f"--{name}", type=int, required=True)


def pulse_of(args: argparse.Namespace) -> Callable[[int], None]:
    """Gives a sign of life, with the work done so far, for the process that was started with these arguments."""
    return partial(Pulses(args.pulses, args.pulse_fd).beat, args.pulse)
