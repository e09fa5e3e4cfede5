"""Two sides measured in turns, so that whatever else the machine does hits both; and how a bench's loop runs."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from webgym.errors import UsageError

__all__ = ["Tally", "check_positive", "default_browsers", "run_loop", "take_turn"]

T = TypeVar("T")


@dataclass
class Tally:
    """What one side has done in its turns.

    Attributes:
        seconds: Latency of each piece of work.
        rates: Work per second, turn by turn.
        elapsed: Seconds of all turns.
    """

    seconds: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    elapsed: float = 0.0

    @property
    def per_second(self) -> float:
        """Over all turns."""
        return len(self.seconds) / self.elapsed if self.elapsed else 0.0

    @property
    def median_ms(self) -> float:
        """Of the latency."""
        return statistics.median(self.seconds) * 1e3 if self.seconds else 0.0

    @property
    def p95_ms(self) -> float:
        """95 of 100 pieces of work took less."""
        return float(np.percentile(self.seconds, 95)) * 1e3 if self.seconds else 0.0


async def take_turn(tally: Tally, work: Sequence[Callable[[], Awaitable[None]]], seconds: float) -> None:
    """One turn: each worker does one piece of work after the other until the time is up.

    What was begun is finished, and its time counts.

    Args:
        tally: Where it is written down.
        work: One piece of work of each worker.
        seconds: How long a turn is.
    """
    start = time.perf_counter()
    before = len(tally.seconds)

    async def repeat(piece: Callable[[], Awaitable[None]]) -> None:
        while (begun := time.perf_counter()) - start < seconds:
            await piece()
            tally.seconds.append(time.perf_counter() - begun)

    await asyncio.gather(*[repeat(piece) for piece in work])
    elapsed = time.perf_counter() - start
    tally.elapsed += elapsed
    tally.rates.append((len(tally.seconds) - before) / elapsed)


def default_browsers() -> int:
    """As many as a worker would run on this machine."""
    from webgym.spec import Workers
    from webgym_workers.capacity import browser_count, machine

    return browser_count(Workers(), machine())


def check_positive(args: argparse.Namespace, *names: str) -> None:
    """Refuse options that are not above zero.

    Raises:
        UsageError: One is not.
    """
    for name in names:
        value = getattr(args, name)
        if value is not None and value <= 0:
            raise UsageError(f"--{name.replace('_', '-')} must be above 0, not {value:g}")


def run_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run on the loop that a worker's browser processes have."""
    try:
        import uvloop
    except ImportError:  # Windows
        return asyncio.run(work)
    result: T = uvloop.run(work)
    return result
