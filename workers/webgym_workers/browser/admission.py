"""How many pages load at the same time.

A page that loads beside too many others takes more of the machine, not only longer: its browser draws the while, and
what misses its deadline has been loaded for nothing. So pages wait for their turn before they load instead of while
they do. How many may is found by looking at the cores: pages that wait for a server leave them idle, and then more are
let in.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from webgym_workers.browser.liveness import FULL
from webgym_workers.capacity import machine
from webgym_workers.idle_cores import IdleCores

__all__ = ["Admission", "next_limit"]

LOOK_SECONDS = 0.1
"""How often the cores are looked at while a page waits for its turn."""
ROOM = 0.08
"""The idle part of the cores above which one page more is let in; while they are full, one less is."""
LEAST_PER_CORE = 1.5
"""As many as there are browsers by default: these need no turns."""


def next_limit(limit: int, least: int, idle: float) -> int:
    """How many pages may load from now on.

    Args:
        limit: How many might.
        least: They are never fewer.
        idle: The idle part of the cores meanwhile, 0 to 1.
    """
    if idle > ROOM:
        return limit + 1
    return max(least, limit - 1) if idle < FULL else limit


class Admission:
    """Turns to load a page, given in the order in which they were asked for.

    Args:
        least: How many pages may always load at the same time; by default 1.5 a core.
        idle: Tells the idle part of the cores since it was last asked, 0 to 1, None where it cannot be told.

    Attributes:
        limit: How many may load at the moment.
        loading: How many do.
    """

    def __init__(self, least: int | None = None, idle: Callable[[], float | None] | None = None) -> None:
        self.least = max(1, least or round(machine().cores * LEAST_PER_CORE))
        self.limit = self.least
        self.loading = 0
        self._idle = idle
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._looking: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Pages that wait for their turn."""
        return len(self._waiting)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, and have it for the length of the block."""
        if self._waiting or self.loading >= self.limit:
            await self._wait()
        else:
            self.loading += 1
        try:
            yield
        finally:
            self.loading -= 1
            self._admit()

    async def _wait(self) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="load-admission")
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                with contextlib.suppress(ValueError):
                    self._waiting.remove(turn)
            else:
                # It was given in the same turn of the loop in which its page was given up.
                self.loading -= 1
                self._admit()
            raise

    def _admit(self) -> None:
        while self._waiting and self.loading < self.limit:
            turn = self._waiting.popleft()
            # Who gives up is taken off the list by itself a little later.
            if not turn.done():
                self.loading += 1
                turn.set_result(None)

    async def _look(self) -> None:
        """Look at the cores as long as a page waits."""
        idle = self._idle or IdleCores().look
        idle()
        # What was right for the pages of a while ago may be too many for these.
        self.limit = max(self.least, min(self.limit, self.loading))
        while self._waiting:
            await asyncio.sleep(LOOK_SECONDS)
            part = idle()
            if part is not None:
                self.limit = next_limit(self.limit, self.least, part)
            self._admit()
