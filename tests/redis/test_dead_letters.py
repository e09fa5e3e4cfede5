"""Episodes of the queue that fail: tried again, then kept as dead letters."""

from __future__ import annotations

import time

import pytest
import redis
import redis.asyncio
from queueing import LEASE, lease_until, names, queue, summary, task

from webgym.queue import (
    Counts,
    SyncTaskQueue,
)

__all__ = ["queue"]


def test_failures_retry_in_place_and_end_as_a_dead_letter(queue: SyncTaskQueue) -> None:
    queue.add([task("bad"), task("good")])
    for attempt in (1, 2):
        (leased,) = queue.lease("w", 1, LEASE)
        assert (leased.episode, leased.attempt) == ("bad", attempt)
        assert queue.fail("bad", attempt, f"reason {attempt}", "page") == "queued"
        assert queue.fail("bad", attempt, "again") == "ignored"
    queue.lease("w2", 1, LEASE)
    assert queue.fail("bad", 3, "reason 3", "browser") == "dead"
    (letter,) = queue.dead_letters()
    assert (letter.episode, letter.attempt) == ("bad", 3)
    assert letter.task == task("bad", attempt=3)
    assert [(r.attempt, r.worker, r.reason, r.fault_class) for r in letter.reasons] == [
        (1, "w", "reason 1", "page"),
        (2, "w", "reason 2", "page"),
        (3, "w2", "reason 3", "browser"),
    ]
    assert abs(letter.reasons[0].time - time.time()) < 60
    (result,) = queue.results()
    assert result.dead == letter
    assert queue.counts() == Counts(queued=1, dead=1)
    assert not queue.complete("bad", 3, summary("bad", 3))
    assert names(queue.lease("w", 5, LEASE)) == ["good"]


def test_leases_that_always_expire_end_as_a_dead_letter(queue: SyncTaskQueue) -> None:
    """A task that kills its worker never gets to report a failure."""
    queue.add([task("killer")])
    for attempt in (1, 2, 3):
        assert lease_until(queue, f"w{attempt}", 0.01).attempt == attempt
    deadline = time.monotonic() + 10
    while not queue.dead_letters():
        assert time.monotonic() < deadline
        assert queue.lease("w4", 1, LEASE) == []
    assert "w3 gave no sign of life" in queue.dead_letters()[0].reasons[2].reason


def test_dead_letters_can_be_requeued(queue: SyncTaskQueue) -> None:
    queue.add([task("a"), task("b")])
    for leased in queue.lease("w", 2, LEASE):
        queue.fail(leased.episode, leased.attempt, "broken", final=True)
    assert queue.requeue_dead(["a", "unknown"]) == 1
    (leased,) = queue.lease("w", 5, LEASE)
    assert (leased.episode, leased.attempt) == ("a", 2)
    # A clean slate: it takes all attempts again to kill it.
    assert queue.fail("a", 2, "broken") == "queued"
    assert queue.requeue_dead() == 1
    assert queue.counts() == Counts(queued=2)


@pytest.mark.parametrize("payload", [b"", b"\xff" * 50, task("another").encode()])
def test_a_poisoned_payload_ends_as_a_dead_letter(
    queue: SyncTaskQueue, client: redis.Redis, payload: bytes
) -> None:
    queue.add([task("poisoned"), task("good")])
    client.hset(queue.keys.queue[2], "poisoned", payload)
    assert names(queue.lease("w", 5, LEASE)) == ["good"]
    (letter,) = queue.dead_letters()
    assert letter.episode == "poisoned"
    assert letter.reasons[0].fault_class == "payload"
    assert queue.results()[0].episode == "poisoned"
