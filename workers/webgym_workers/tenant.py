"""Whoever keeps a seat: its browser stays borrowed from episode to episode until something breaks."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any

from webgym_workers.browser.faults import BrowserFault
from webgym_workers.episode import Episode
from webgym_workers.seat import Seat

__all__ = ["Tenant"]


class Tenant:
    """The keeper of a seat; an asynchronous context manager that gives the browser back at its end.

    Args:
        seat: nobody else's.
    """

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._held: AbstractAsyncContextManager[Episode] | None = None
        self.episode: Episode | None = None
        """None while nothing is borrowed."""

    async def take(self, task: str, params: Mapping[str, Any]) -> Episode:
        """The episode of a task, on the browser that is held or on one borrowed now.

        Raises:
            BrowserError: the browser cannot be started.
            TaskError: there is no such task.
        """
        if self.episode is None:
            held = self._seat.episode(task, params)
            self.episode = await held.__aenter__()
            self._held = held
        return self.episode

    async def give_back(self, fault: BaseException | None = None) -> None:
        """Let the pool have the browser, and replace what broke if there is a fault. Harmless twice."""
        held, self._held, self.episode = self._held, None, None
        if held is None:
            return
        if fault is None:
            await held.__aexit__(None, None, None)
            return
        broken = fault if isinstance(fault, BrowserFault) else BrowserFault(str(fault))
        try:
            await held.__aexit__(type(broken), broken, broken.__traceback__)
        except BrowserFault:
            return  # the pool hands the fault on; it has been told to the caller already

    async def __aenter__(self) -> Tenant:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.give_back()
