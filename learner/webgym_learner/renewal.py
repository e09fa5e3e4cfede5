"""Episodes that are waited for, queued again should the server have lost them."""

from __future__ import annotations

import time
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

from webgym.protocol import EpisodeTask

if TYPE_CHECKING:
    from webgym_learner.inbox import Inbox

__all__ = ["RENEW_SECONDS", "Renewal"]

RENEW_SECONDS = 10.0
"""How often they are queued again. The queue takes only those that it does not know: a server that was killed may have
lost its last second, and what was lost there nobody would ever play."""


class Renewal:
    """Of episodes that were queued just now.

    Args:
        inbox: where episodes go.
        tasks: the episodes.
    """

    def __init__(self, inbox: Inbox, tasks: Sequence[EpisodeTask]) -> None:
        self._inbox = inbox
        self._tasks = tasks
        self._next = time.monotonic() + RENEW_SECONDS

    def look(self, awaited: Container[str]) -> None:
        """Queue again, if it is time to, those whose names are still waited for.

        Raises:
            BrokerError: Redis is gone.
        """
        now = time.monotonic()
        if now >= self._next:
            self._next = now + RENEW_SECONDS
            self._inbox.add([task for task in self._tasks if task.episode in awaited])
