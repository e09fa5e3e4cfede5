"""The queue: order, leases, retries, dead letters, each episode once."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
import redis.asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from webgym.broker import BrokerConfig, EmbeddedBroker, connect
from webgym.errors import ProtocolError
from webgym.keys import Keys
from webgym.queue import (
    STARVATION_SHARE,
    Completion,
    Counts,
    EpisodeSummary,
    EpisodeTask,
    SyncTaskQueue,
    TaskQueue,
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
