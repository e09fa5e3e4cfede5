"""When the actors of a browser process may step: each at its own pace, or all together when the learner says so."""

from __future__ import annotations

import asyncio
from typing import Protocol

from webgym.turns import WorkerTurns

__all__ = ["FreePace", "Pace", "TurnPace"]


class Pace(Protocol):
    """What an actor asks before each step."""

    @property
    def takes_turns(self) -> bool:
        """Whether anybody is waited for."""
        ...

    async def turn(self) -> int:
        """Wait until this actor may step.

        Returns:
            The least parameter version to act with; 0 for any.

        Raises:
            BrokerError: Redis is gone.
        """
        ...

    def free(self) -> None:
        """Let everybody pass from now on."""
        ...


class FreePace:
    """Nobody waits: asynchronous acting."""

    takes_turns = False

    async def turn(self) -> int:
        """Pass."""
        return 0

    def free(self) -> None:
        """Nothing changes."""


class TurnPace:
    """All actors of the process step together; the last to arrive asks for the next turn.

    An episode's start belongs to the turn of the end before it, so the slowest page, reset included, is waited for.

    Args:
        turns: the process's end of the exchange with the learner.
        actors: how many there are; each of them must arrive.
    """

    def __init__(self, turns: WorkerTurns, actors: int) -> None:
        self._turns = turns
        self._actors = actors
        self._arrived = 0
        self._freed = asyncio.Event()
        self._next: asyncio.Future[int] | None = None

    @property
    def takes_turns(self) -> bool:
        """Whether anybody is waited for: not any more once the learner has let go, or :meth:`free` was called."""
        return not self._freed.is_set()

    async def turn(self) -> int:
        """Wait for all other actors, then for the learner; see :class:`Pace`."""
        if self._freed.is_set():
            return 0
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        turn = self._next
        self._arrived += 1
        if self._arrived == self._actors:
            # From here on whoever arrives is early for the turn after.
            self._arrived, self._next = 0, None
            await self._ask(turn)
        return await turn

    def free(self) -> None:
        """Let everybody pass from now on, those who wait included."""
        self._freed.set()
        if self._next is not None and not self._next.done():
            self._next.set_result(0)

    async def _ask(self, turn: asyncio.Future[int]) -> None:
        asking = asyncio.ensure_future(self._turns.next())
        freed = asyncio.ensure_future(self._freed.wait())
        try:
            await asyncio.wait({asking, freed}, return_when=asyncio.FIRST_COMPLETED)
            version = asking.result() if asking.done() else None
        finally:
            # What the other actors wait for ends with this one: if it fails, the whole process does.
            asking.cancel()
            freed.cancel()
        if version is None:
            self.free()
        turn.set_result(version or 0)
