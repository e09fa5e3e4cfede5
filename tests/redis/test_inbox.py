"""The learner's end of Redis: what workers send arrives once, what is dealt is remembered, the ledger comes first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import redis
import redis.asyncio

from webgym.broker import BrokerConfig, connect
from webgym.errors import BrokerError
from webgym.experience import ExperienceWriter
from webgym.keys import Keys
from webgym.params import MissingParameters, StaleGeneration, SyncParameterStore
from webgym.protocol import EpisodeSummary, EpisodeTask, TransitionBatch
from webgym.queue import SyncTaskQueue
from webgym.rundir import read_json_lines
from webgym.schema import Schema
from webgym_learner.inbox import Inbox, StateLost
from webgym_learner.recorder import EpisodeLedger

SCHEMA = Schema(nodes=3, node_features=4, texts=2, text_features=3, pair_features=2, goal_features=5)


def task(index: int, purpose: str = "train", version: int = 0) -> EpisodeTask:
    return EpisodeTask(f"{purpose}-{index:08d}", "shop", seed=index, purpose=purpose, version=version)  # type: ignore[arg-type]


def summary(of: EpisodeTask, attempt: int = 1, success: bool = True) -> EpisodeSummary:
    return EpisodeSummary(
        episode=of.episode, attempt=attempt, task=of.task, seed=of.seed, purpose=of.purpose, success=success,
        reward=1.0, steps=3, seconds=0.5, version=1, epsilon=0.1, worker="w", outcome="terminated",
    )  # fmt: skip


def batch(episode: str, n: int = 4) -> TransitionBatch:
    return TransitionBatch(
        episode=episode, attempt=1, task="shop", first_sequence=0, worker="w", generation=1,
        observations={
            name: np.zeros((n + 1, *spec.shape), spec.dtype) for name, spec in SCHEMA.fields().items()
        },
        obs_index=np.arange(n, dtype=np.int32), next_index=np.arange(1, n + 1, dtype=np.int32),
        action=np.zeros(n, np.int32), reward=np.zeros(n, np.float32), discount=np.ones(n, np.float32),
        priority=np.ones(n, np.float32), version=np.ones(n, np.int64),
    )  # fmt: skip


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[EpisodeLedger]:
    made = EpisodeLedger(tmp_path / "episodes.jsonl")
    yield made
    made.close()


@pytest.fixture
def inbox(client: redis.Redis, keys: Keys, ledger: EpisodeLedger) -> Inbox:
    return Inbox(client, keys, SCHEMA, ledger, generation=1)


@pytest.fixture
def queue(client: redis.Redis, keys: Keys) -> SyncTaskQueue:
    """A worker's view of the same queue."""
    return SyncTaskQueue(client, keys)


async def test_experience_arrives_once_and_is_gone(
    inbox: Inbox, aclient: redis.asyncio.Redis, keys: Keys
) -> None:
    writer = ExperienceWriter(aclient, keys, SCHEMA)
    assert inbox.experience(block_ms=1) == []
    await writer.push([batch("a"), batch("b", 2), batch("a")])
    found = inbox.experience(block_ms=1000)
    assert [(b.episode, len(b)) for b in found] == [("a", 4), ("b", 2)]
    assert await writer.backlog() == 0
    assert inbox.experience(block_ms=1) == []


def test_results_are_in_the_ledger_before_they_leave_the_stream(
    inbox: Inbox, queue: SyncTaskQueue, client: redis.Redis, keys: Keys, tmp_path: Path
) -> None:
    assert inbox.results() == []
    tasks = [task(0), task(1), task(2)]
    assert inbox.add(tasks) == 3
    assert inbox.add(tasks) == 0
    assert inbox.add([]) == 0
    for leased in queue.lease("w", 3, 60):
        assert queue.complete(leased.episode, leased.attempt, summary(leased))
    assert [s.episode for s in inbox.results()] == [t.episode for t in tasks]
    assert client.xlen(keys.results) == 0
    assert len(list(read_json_lines(tmp_path / "episodes.jsonl"))) == 3
    assert inbox.results() == []


def test_a_learner_killed_between_ledger_and_stream_counts_nothing_twice(
    inbox: Inbox, queue: SyncTaskQueue, client: redis.Redis, keys: Keys, tmp_path: Path, ledger: EpisodeLedger
) -> None:
    inbox.add([task(0), task(1)])
    first, second = queue.lease("w", 2, 60)
    queue.complete(first.episode, first.attempt, summary(first))
    ledger.add([summary(first)])  # and then it was killed
    queue.complete(second.episode, second.attempt, summary(second))
    again = EpisodeLedger(tmp_path / "episodes.jsonl")
    successor = Inbox(client, keys, SCHEMA, again, generation=2)
    assert [s.episode for s in successor.results()] == [second.episode]
    assert client.xlen(keys.results) == 0
    again.close()
    assert len(list(read_json_lines(tmp_path / "episodes.jsonl"))) == 2


def test_an_episode_that_was_given_up_is_a_failure_with_its_reason(
    inbox: Inbox, queue: SyncTaskQueue
) -> None:
    inbox.add([task(7, "evaluate", version=3)])
    (leased,) = queue.lease("worker-0.0", 1, 60)
    assert queue.fail(leased.episode, leased.attempt, "Shop.judge raised", "agent", final=True) == "dead"
    (found,) = inbox.results()
    assert (found.episode, found.purpose, found.seed, found.version) == (leased.episode, "evaluate", 7, 3)
    assert (found.outcome, found.success, found.steps) == ("fault", False, 0)
    assert (found.fault, found.worker) == ("Shop.judge raised", "worker-0.0")


def test_a_result_that_cannot_be_read_is_said_and_put_aside(
    inbox: Inbox, queue: SyncTaskQueue, caplog: pytest.LogCaptureFixture, client: redis.Redis, keys: Keys
) -> None:
    inbox.add([task(0), task(1)])
    first, second = queue.lease("w", 2, 60)
    queue.complete(first.episode, first.attempt, b"\xff no summary")
    queue.complete(second.episode, second.attempt, summary(second))
    assert [s.episode for s in inbox.results()] == [second.episode]
    assert first.episode in caplog.text
    assert client.xlen(keys.results) == 0


def test_dealing_remembers_how_far_it_came_and_counts_what_waits(
    inbox: Inbox, queue: SyncTaskQueue, client: redis.Redis, keys: Keys
) -> None:
    inbox.deal([task(0), task(0, "validate")], {"train": 1, "validate": 1})
    assert json.loads(client.hget(keys.control, "cursors") or b"") == {"train": 1, "validate": 1}
    assert inbox.queued() == 2
    inbox.deal([], {"train": 5})
    assert json.loads(client.hget(keys.control, "cursors") or b"") == {"train": 5}
    assert inbox.cancel("validate") == 1
    assert inbox.cancel("validate") == 0
    queue.lease("w", 1, 60)
    assert inbox.queued() == 0


def test_browsers_are_what_the_workers_say_and_not_asked_for_at_every_look(
    inbox: Inbox, client: redis.Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("webgym_learner.inbox.time.monotonic", lambda: now[0])
    assert inbox.browsers() == 0
    client.hset(keys.members, mapping={"worker-0.0": '{"browsers": 3}', "worker-0.8": '{"browsers": 2}'})
    client.hset(keys.members, mapping={"learner-0": '{"role": "learner"}', "odd": "no JSON"})
    assert inbox.browsers() == 0
    now[0] += 2.5
    assert inbox.browsers() == 5


def test_parameters_are_pinned_until_let_go_and_an_older_learner_is_refused(
    inbox: Inbox, client: redis.Redis, keys: Keys, ledger: EpisodeLedger
) -> None:
    store = SyncParameterStore(client, keys)
    weights = {"w": np.arange(3, dtype=np.float32)}
    inbox.publish(1, weights, pinned=True)
    for version in range(2, 9):
        inbox.publish(version, weights, pinned=False)
    assert np.array_equal(store.fetch(1, SCHEMA.hash).state["w"], weights["w"])
    inbox.unpin(1)
    with pytest.raises(MissingParameters):
        store.fetch(1)
    Inbox(client, keys, SCHEMA, ledger, generation=2).publish(3, weights, pinned=False)
    assert store.latest_version() == 3
    with pytest.raises(StaleGeneration):
        inbox.publish(9, weights, pinned=False)


def test_a_learner_learns_that_it_was_replaced_or_forgotten(
    inbox: Inbox, client: redis.Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webgym_learner.inbox._CHECK_SECONDS", 0.0)
    client.hset(keys.control, "generation", 1)
    inbox.check()
    client.hset(keys.control, "generation", 2)
    with pytest.raises(StaleGeneration, match="generation 1 was replaced by 2"):
        inbox.check()
    client.delete(keys.control)
    with pytest.raises(StateLost, match="flushed, or started again without its data"):
        inbox.check()


def test_a_server_that_is_gone_is_one_line_whatever_is_asked(keys: Keys, ledger: EpisodeLedger) -> None:
    gone = connect(BrokerConfig("redis://127.0.0.1:1", patience=0))
    inbox = Inbox(gone, keys, SCHEMA, ledger, generation=1)
    for ask in (
        inbox.check,
        inbox.browsers,
        inbox.results,
        lambda: inbox.deal([], {}),
        lambda: inbox.film("a"),
    ):
        with pytest.raises(BrokerError, match="cannot be reached"):
            ask()


def test_a_film_is_found_by_its_episode(inbox: Inbox, client: redis.Redis, keys: Keys) -> None:
    assert inbox.film("evaluate-1") == {}
    client.hset(f"{keys.film}:evaluate-1", mapping={"meta": "{}", "frame-0": b"png"})
    assert inbox.film("evaluate-1") == {b"meta": b"{}", b"frame-0": b"png"}
