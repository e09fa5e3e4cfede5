"""The queue: what is added, in which order it is leased, and what is told of it."""

from __future__ import annotations

import inspect

import pytest
import redis
import redis.asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from queueing import LEASE, names, queue, summary, task

from webgym.broker import BrokerConfig, EmbeddedBroker, connect
from webgym.errors import ProtocolError
from webgym.keys import Keys
from webgym.queue import (
    STARVATION_SHARE,
    Completion,
    Counts,
    EpisodeTask,
    SyncTaskQueue,
    TaskQueue,
)

__all__ = ["queue"]


def test_higher_priorities_first_and_first_come_among_equals(queue: SyncTaskQueue) -> None:
    order = [("a", 0.0), ("b", 1.0), ("c", -3.0), ("d", 1.0), ("e", 0.0), ("f", 1e-300), ("g", -1e300)]
    queue.add(task(name, priority=priority) for name, priority in order)
    queue.add([task("h", priority=1.0)])
    assert names(queue.lease("w", 3, LEASE)) == ["b", "d", "h"]
    assert names(queue.lease("w", 100, LEASE)) == ["f", "a", "e", "c", "g"]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=30))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_finite_priorities_order_exactly(client: redis.Redis, priorities: list[float]) -> None:
    keys = Keys("property")
    client.delete(*client.keys(keys.everything), "nothing")
    queue = SyncTaskQueue(client, keys)
    queue.add(task(str(i), priority=p) for i, p in enumerate(priorities))
    expected = sorted(range(len(priorities)), key=lambda i: -priorities[i])
    assert names(queue.lease("w", 100, LEASE)) == [str(i) for i in expected]


def test_order_holds_at_large_counters(queue: SyncTaskQueue, client: redis.Redis) -> None:
    """Where counter and priority shared one double, these would be equal."""
    client.hset(queue.keys.queue[9], "counter", 2**53 - 1000)
    queue.add(task(f"{i:03}", priority=1e15 + i % 2) for i in range(100))
    expected = [f"{i:03}" for i in range(1, 100, 2)] + [f"{i:03}" for i in range(0, 100, 2)]
    assert names(queue.lease("w", 100, LEASE)) == expected


def test_what_is_leased_is_what_was_added(queue: SyncTaskQueue) -> None:
    added = task("x", params={"a": [1, "ü"]}, seed=7, purpose="evaluate", max_steps=5, version=3, record=True)
    queue.add([added])
    (leased,) = queue.lease("w", 1, LEASE)
    assert leased == EpisodeTask(**{**added.__dict__, "attempt": 1})


def test_odd_episode_names_survive(queue: SyncTaskQueue) -> None:
    odd = ["a:train:b", "ü 1", "0000000000000001:train:x", "{x}", "a b:c"]
    assert queue.add(task(name) for name in odd) == len(odd)
    leased = queue.lease("w", 10, LEASE)
    assert names(leased) == odd
    queue.release(leased[:1])
    assert all(queue.complete_many(Completion(t.episode, t.attempt, b"") for t in queue.lease("w", 1, LEASE)))


def test_an_id_is_added_once_whatever_became_of_it(queue: SyncTaskQueue) -> None:
    assert queue.add([task("a"), task("a"), task("b"), task("c")]) == 3
    assert queue.add([task("a")]) == 0
    leased = queue.lease("w", 2, LEASE)
    assert queue.add([task("a")]) == 0
    queue.complete("a", 1, summary("a"))
    queue.fail("b", leased[1].attempt, "never works", final=True)
    assert queue.add([task("a"), task("b"), task("c")]) == 0
    assert queue.counts() == Counts(queued=1, leased=0, done=1, dead=1)


def test_cancelling_removes_only_what_is_queued_of_that_purpose(queue: SyncTaskQueue) -> None:
    queue.add(task(f"t{i}") for i in range(5))
    queue.add(task(f"v{i}", purpose="validate") for i in range(5))
    queue.lease("w", 2, LEASE)
    assert queue.cancel("train") == 3
    assert queue.counts("train") == Counts(leased=2)
    assert queue.counts("validate") == Counts(queued=5)
    assert queue.complete("t0", 1, b"")
    assert queue.add([task("t4")]) == 1
    with pytest.raises(ValueError, match="purpose"):
        queue.cancel("everything")  # type: ignore[arg-type]


def test_impossible_arguments_are_refused(queue: SyncTaskQueue) -> None:
    queue.add([task("a")])
    queue.lease("w", 1, LEASE)
    with pytest.raises(ProtocolError, match="counter n"):
        queue.complete("a", 1, b"", {"n": float("nan")})
    with pytest.raises(ProtocolError):
        queue.add([task("b", priority=float("inf"))])
    with pytest.raises(ValueError, match="lease"):
        queue.lease("w", 1, 0.0)
    assert queue.lease("w", 0, 1.0) == []
    assert queue.add([]) == 0
    assert queue.complete_many([]) == []


def test_a_full_server_still_moves_episodes_on(keys: Keys) -> None:
    def fill(client: redis.Redis) -> None:
        for i in range(1000):
            client.set(f"filler-{i}", b"x" * 50_000)

    with EmbeddedBroker(max_memory=6 * 1024 * 1024) as small:
        client = connect(BrokerConfig(small.url))
        queue = SyncTaskQueue(client, keys)
        queue.add(task(str(i)) for i in range(50))
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            fill(client)
        assert queue.add(task(f"late-{i}") for i in range(20)) == 20
        leased = queue.lease("w", 50, LEASE)
        assert len(leased) == 50
        assert queue.fail("0", 1, "reason") == "queued"
        assert all(queue.complete_many(Completion(t.episode, 1, b"") for t in leased))
        assert queue.ack_results([r.id for r in queue.results()]) == 50
        client.close()


def test_none_waits_for_ever_behind_more_urgent_ones(queue: SyncTaskQueue) -> None:
    """Each lease is followed by a more urgent episode, and the patient ones are leased all the same, oldest first."""
    queue.add([task("patient-0"), task("patient-1", priority=-1)])
    queue.add(task(f"urgent-{i}", priority=5) for i in range(3))
    seen: list[str] = []
    for i in range(2 * STARVATION_SHARE):
        seen += names(queue.lease("w", 1, LEASE))
        queue.add([task(f"later-{i}", priority=5)])
    patient = [i for i, name in enumerate(seen) if name.startswith("patient")]
    assert patient == [STARVATION_SHARE - 1, 2 * STARVATION_SHARE - 1]
    assert [name for name in seen if name.startswith("patient")] == ["patient-0", "patient-1"]
    # In one large lease, too, and nothing is given out twice.
    queue.add([task("patient-2")])
    more = names(queue.lease("w", 30, LEASE))
    assert "patient-2" in more
    assert len({*seen, *more}) == len(seen) + len(more)


def test_priorities_move_wherever_an_episode_is(queue: SyncTaskQueue) -> None:
    queue = SyncTaskQueue(queue._client, queue.keys, max_attempts=1)
    queue.add(task(name) for name in ("dead", "leased", "a", "b", "c"))
    queue.lease("w", 2, LEASE)
    queue.fail("dead", 1, "no")
    assert queue.move(["b", "leased", "dead", "nobody"], 7.5) == {
        "b": "queued",
        "leased": "leased",
        "dead": "dead",
        "nobody": None,
    }
    assert queue.move(["b"], 7.5) == {"b": "queued"}
    assert [(e.episode, e.priority) for e in queue.entries("queued")] == [("b", 7.5), ("a", 0.0), ("c", 0.0)]
    queue.requeue_dead(["dead"])
    queue.release([task("leased", attempt=1)])
    assert names(queue.lease("w", 5, LEASE)) == ["dead", "leased", "b", "a", "c"]
    with pytest.raises(ProtocolError, match="priority nan"):
        queue.move(["a"], float("nan"))


def test_entries_say_who_holds_what_and_why_it_failed(queue: SyncTaskQueue, client: redis.Redis) -> None:
    queue.add([task("a", priority=2), task("b"), EpisodeTask("c", "miniwob.click-link"), task("odd")])
    queue.lease("worker 0.1", 2, 30.0)
    queue.fail("b", 1, "the page crashed", "page")
    client.hset(queue.keys.queue[2], "odd", b"no task")
    (leased,) = queue.entries("leased")
    assert (leased.episode, leased.state, leased.priority, leased.attempt) == ("a", "leased", 2.0, 1)
    assert leased.worker == "worker 0.1"
    assert 0 <= leased.held_seconds < 20
    assert 10 < leased.left_seconds <= 30
    b, c = queue.entries("queued", 2)
    assert (b.episode, b.attempt, b.worker, b.held_seconds) == ("b", 1, "", 0.0)
    assert [(r.attempt, r.worker, r.reason) for r in b.reasons] == [(1, "worker 0.1", "the page crashed")]
    assert c.task is not None
    assert c.task.task == "miniwob.click-link"
    assert queue.entries("queued", 3)[2].task is None
    assert queue.entries("dead") == []
    with pytest.raises(ValueError, match="lost"):
        queue.entries("lost")  # type: ignore[arg-type]


async def test_the_asyncio_queue_is_the_same_queue(aclient: redis.asyncio.Redis, keys: Keys) -> None:
    queue = TaskQueue(aclient, keys, max_attempts=2)
    assert await queue.add([task("a", priority=1), task("b"), task("c"), task("d")]) == 4
    a, b = await queue.lease("w", 2, LEASE)
    assert await queue.heartbeat("w", ["a", "b", "c"], LEASE) == ["a", "b"]
    assert await queue.complete(a.episode, a.attempt, summary("a"), {"n": 2})
    assert not await queue.complete(a.episode, a.attempt, summary("a"), {"n": 2})
    assert await queue.fail(b.episode, b.attempt, "x") == "queued"
    again = await queue.lease("w", 2, LEASE)
    assert names(again) == ["b", "c"]
    assert await queue.fail("b", 2, "x") == "dead"
    assert await queue.release(again[1:]) == 1
    assert [d.episode for d in await queue.dead_letters()] == ["b"]
    assert await queue.counts() == Counts(queued=2, done=1, dead=1)
    assert [e.episode for e in await queue.entries("queued")] == ["c", "d"]
    assert await queue.move(["d"], 1.0) == {"d": "queued"}
    assert await queue.requeue_dead() == 1
    await queue.lease("w", 1, LEASE)
    assert await queue.abandon("w") == 1
    assert await queue.cancel("train") == 3
    assert await queue.counters() == {"n": 2.0}
    results = await queue.results()
    assert [r.episode for r in results] == ["a", "b"]
    assert await queue.ack_results([r.id for r in results]) == 2


def test_both_queues_have_the_same_methods() -> None:
    def public(cls: type) -> dict[str, str]:
        return {
            name: str(inspect.signature(member))
            for name, member in inspect.getmembers(cls, inspect.isfunction)
            if not name.startswith("_")
        }

    assert public(TaskQueue) == public(SyncTaskQueue)
