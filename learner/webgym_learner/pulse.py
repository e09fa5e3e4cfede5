"""What shows from outside that a learner lives: its heartbeat in Redis, and how long ago its loop last moved."""

from __future__ import annotations

import json
import os
import time

from redis import Redis

from webgym.broker import broker_errors, client_where

__all__ = ["Pulse"]

_STUCK_SECONDS = 60.0


class Pulse:
    """Of one learner.

    Args:
        client: the run's Redis; used by a thread, with the client's own locking.
        members: key of the heartbeats.
        id: of the program.
    """

    def __init__(self, client: Redis, members: str, id: str) -> None:
        self._client = client
        self._members = members
        self._id = id
        self._moved_at = time.monotonic()

    def moved(self) -> None:
        """The training loop turned once more."""
        self._moved_at = time.monotonic()

    def beat(self) -> None:
        """Tell the world that the process lives.

        Raises:
            BrokerError: Redis cannot be reached or refuses.
        """
        figures = {"role": "learner", "pid": os.getpid(), "time": time.time()}
        with broker_errors(client_where(self._client)):
            self._client.hset(self._members, self._id, json.dumps(figures))

    def unwell(self) -> str | None:
        """Why ``/healthz`` should fail, or None."""
        silent = time.monotonic() - self._moved_at
        return f"the training loop has not moved for {silent:.0f} s" if silent > _STUCK_SECONDS else None
