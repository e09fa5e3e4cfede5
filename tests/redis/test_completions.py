"""Completions in the queue: each episode counts once, and its result waits to be acknowledged."""

from __future__ import annotations

import redis
import redis.asyncio
from queueing import LEASE, queue, summary, task

from webgym.keys import Keys
from webgym.queue import (
    Completion,
    Counts,
    SyncTaskQueue,
)

__all__ = ["queue"]


def test_completed_ids_are_remembered_within_bounds(client: redis.Redis, keys: Keys) -> None:
    queue = SyncTaskQueue(client, keys, done_kept=10)
    queue.add(task(str(i)) for i in range(30))
    queue.complete_many(Completion(t.episode, 1, b"") for t in queue.lease("w", 30, LEASE))
    assert client.zcard(keys.queue[7]) == 10
    assert queue.counts().done == 30
    # What is forgotten could be added again, but a repeated completion still counts for nothing.
    assert queue.complete_many(Completion(str(i), 1, b"") for i in range(30)) == [False] * 30


def test_completion_counts_once(queue: SyncTaskQueue) -> None:
    queue.add([task("a")])
    queue.lease("w", 1, LEASE)
    assert queue.complete("a", 1, summary("a"), {"env_steps": 3, "reward": 0.25})
    assert not queue.complete("a", 1, summary("a"), {"env_steps": 3, "reward": 0.25})
    assert not queue.complete("a", 2, summary("a", 2), {"env_steps": 3})
    assert not queue.complete("never added", 1, summary("never added"), {"env_steps": 3})
    assert queue.counters() == {"env_steps": 3.0, "reward": 0.25}
    (result,) = queue.results()
    assert result.summary == summary("a")
    assert queue.counts() == Counts(done=1)


def test_completing_many_tells_them_apart(queue: SyncTaskQueue) -> None:
    queue.add(task(str(i)) for i in range(1200))
    queue.lease("w", 1200, LEASE)
    completions = [Completion(str(i), 1 + i % 2, b"", {"n": 1}) for i in range(1200)]
    assert queue.complete_many(completions) == [i % 2 == 0 for i in range(1200)]
    assert queue.counters() == {"n": 600.0}


def test_an_unreadable_summary_is_counted_and_named(queue: SyncTaskQueue) -> None:
    queue.add([task("a"), task("b")])
    queue.lease("w", 2, LEASE)
    assert queue.complete("a", 1, b"nonsense")
    assert queue.complete("b", 1, summary("a"))
    results = queue.results()
    assert [(r.episode, r.summary) for r in results] == [("a", None), ("b", None)]
    assert "not a WebGym message" in results[0].error


def test_results_wait_until_they_are_acknowledged(queue: SyncTaskQueue) -> None:
    queue.add(task(str(i)) for i in range(5))
    queue.lease("w", 5, LEASE)
    queue.complete_many(Completion(str(i), 1, summary(str(i))) for i in range(5))
    first = queue.results(count=2)
    assert [r.episode for r in first] == ["0", "1"]
    assert [r.episode for r in queue.results(after=first[-1].id)] == ["2", "3", "4"]
    assert queue.ack_results([r.id for r in first]) == 2
    assert queue.ack_results([r.id for r in first]) == 0
    assert [r.episode for r in queue.results()] == ["2", "3", "4"]
    assert queue.results(after=queue.results()[-1].id, block_seconds=0.05) == []


def test_nothing_is_left_of_episodes_that_are_done(queue: SyncTaskQueue, client: redis.Redis) -> None:
    queue.add(task(str(i)) for i in range(20))
    for leased in queue.lease("w", 20, LEASE):
        queue.fail(leased.episode, 1, "once")
    queue.complete_many(
        Completion(str(i), 2, b"") for i in [int(t.episode) for t in queue.lease("w", 20, LEASE)]
    )
    queue.ack_results([r.id for r in queue.results()])
    left = {key.decode().rpartition(":")[2] for key in client.keys(queue.keys.everything)}
    assert left == {"done", "tally", "results"}
