"""Leases of the queue: they end, are kept, given back, and waited for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import redis
import redis.asyncio
from queueing import LEASE, lease_until, names, queue, summary, task

from webgym.keys import Keys
from webgym.queue import (
    Counts,
    SyncTaskQueue,
    TaskQueue,
)

__all__ = ["queue"]


def test_an_expired_lease_returns_once_and_the_late_holder_is_refused(queue: SyncTaskQueue) -> None:
    queue.add([task("a", priority=5), task("b")])
    queue.lease("gone", 1, 0.5)  # Long enough for the next line on a busy machine.
    queue.lease("keeper", 1, LEASE)
    again = lease_until(queue, "next")
    assert (again.episode, again.attempt) == ("a", 2)
    assert queue.lease("third", 5, LEASE) == []
    assert queue.heartbeat("gone", ["a"], LEASE) == []
    assert not queue.complete("a", 1, summary("a"), {"n": 1})
    assert queue.fail("a", 1, "late") == "ignored"
    assert queue.complete("a", 2, summary("a", 2), {"n": 1})
    assert queue.counters() == {"n": 1.0}


def test_late_work_counts_while_nobody_else_has_begun(queue: SyncTaskQueue) -> None:
    queue.add([task("a")])
    queue.lease("slow", 1, 0.01)
    deadline = time.monotonic() + 10
    while queue.counts().queued == 0:  # Leasing nothing reclaims.
        assert time.monotonic() < deadline
        queue.lease("other", 0, LEASE)
    assert queue.complete("a", 1, summary("a"), {"n": 1})
    assert queue.lease("other", 1, LEASE) == []
    assert queue.counts() == Counts(done=1)


def test_heartbeats_keep_a_lease(queue: SyncTaskQueue) -> None:
    queue.add([task("a"), task("b")])
    queue.lease("w", 2, 1.2)
    deadline = time.monotonic() + 1.8
    while time.monotonic() < deadline:
        assert queue.heartbeat("w", ["a", "unknown"], 1.2) == ["a"]
        time.sleep(0.02)
        taken = queue.lease("other", 5, LEASE)
        assert "a" not in names(taken)
    assert queue.heartbeat("other", ["a"], LEASE) == []


def test_released_tasks_return_unharmed(queue: SyncTaskQueue) -> None:
    queue.add([task("a"), task("b")])
    for attempt in range(1, 8):
        (leased,) = queue.lease("draining", 1, LEASE)
        assert (leased.episode, leased.attempt) == ("a", attempt)
        assert queue.release([leased]) == 1
        assert queue.release([leased]) == 0
    assert queue.counts() == Counts(queued=2)


def test_a_restarted_worker_gives_back_what_it_held(queue: SyncTaskQueue) -> None:
    queue.add(task(str(i)) for i in range(5))
    queue.lease("worker-0", 3, LEASE)
    queue.lease("worker-1", 1, LEASE)
    assert queue.abandon("worker-0") == 3
    assert queue.counts() == Counts(queued=4, leased=1)
    assert [(t.episode, t.attempt) for t in queue.lease("worker-0", 3, LEASE)] == [
        ("0", 2),
        ("1", 2),
        ("2", 2),
    ]


def test_waiting_ends_when_a_task_is_added_or_returned(
    queue: SyncTaskQueue, client: redis.Redis, keys: Keys
) -> None:
    started = time.monotonic()
    assert queue.lease("w", 1, LEASE, wait_seconds=0.1) == []
    assert 0.1 <= time.monotonic() - started < 2.0

    def soon(act: Callable[[], object]) -> float:
        """Seconds from the act to the lease that waited for it."""
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(SyncTaskQueue(client, keys).lease, "w", 1, LEASE, 10.0)
            time.sleep(0.1)
            began = time.monotonic()
            act()
            assert names(waiting.result(10)) == ["a"]
            return time.monotonic() - began

    latencies = [
        soon(lambda: queue.add([task("a")])),
        soon(lambda: queue.release([task("a", attempt=1)])),
        soon(lambda: queue.fail("a", 2, "reason")),
        soon(lambda: queue.abandon("w")),
    ]
    assert min(latencies) < 0.5  # Not the second after which it looks by itself.


async def test_coroutines_that_wait_each_get_one(aclient: redis.asyncio.Redis, keys: Keys) -> None:
    queue = TaskQueue(aclient, keys)
    waiting = [asyncio.create_task(queue.lease("w", 1, LEASE, 10.0)) for _ in range(5)]
    await asyncio.sleep(0.1)
    await queue.add(task(str(i)) for i in range(5))
    leased = await asyncio.wait_for(asyncio.gather(*waiting), 5.0)
    assert sorted(t.episode for one in leased for t in one) == ["0", "1", "2", "3", "4"]
    assert await queue.lease("w", 1, LEASE, 0.05) == []
