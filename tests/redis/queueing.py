"""A queue on the server of the tests, and what goes into it."""

from __future__ import annotations

import time

import pytest
import redis
import redis.asyncio

from webgym.keys import Keys
from webgym.queue import (
    EpisodeSummary,
    EpisodeTask,
    SyncTaskQueue,
)

# Long enough that nothing expires by accident on a busy machine.
LEASE = 60.0


@pytest.fixture
def queue(client: redis.Redis, keys: Keys) -> SyncTaskQueue:
    return SyncTaskQueue(client, keys, max_attempts=3)


def task(episode: str, **fields: object) -> EpisodeTask:
    return EpisodeTask(episode, "miniwob.click-button", **fields)  # type: ignore[arg-type]


def summary(episode: str, attempt: int = 1) -> EpisodeSummary:
    return EpisodeSummary(
        episode=episode,
        attempt=attempt,
        task="miniwob.click-button",
        seed=1,
        purpose="train",
        success=True,
        reward=1.0,
        steps=3,
        seconds=0.5,
        version=1,
        epsilon=0.1,
        worker="w",
        outcome="terminated",
    )


def lease_until(queue: SyncTaskQueue, worker: str, lease_seconds: float = LEASE) -> EpisodeTask:
    """The next task, as soon as there is one."""
    deadline = time.monotonic() + 10
    while not (found := queue.lease(worker, 1, lease_seconds)):
        assert time.monotonic() < deadline, "nothing to lease"
        time.sleep(0.01)
    return found[0]


def names(tasks: list[EpisodeTask]) -> list[str]:
    return [t.episode for t in tasks]
