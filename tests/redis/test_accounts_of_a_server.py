"""The books of a queue, read from a server of the kind that is put under fire."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import redis

from webgym.benches.accounts import read_books, reconcile
from webgym.benches.victims import TcpServer
from webgym.keys import Keys
from webgym.protocol import EpisodeSummary, EpisodeTask
from webgym.queue import SyncTaskQueue


def summary(task: EpisodeTask) -> EpisodeSummary:
    return EpisodeSummary(
        episode=task.episode, attempt=task.attempt, task=task.task, seed=task.seed, purpose=task.purpose,
        success=True, reward=1.0, steps=3, seconds=0.5, version=1, epsilon=0.1, worker="w", outcome="terminated",
    )  # fmt: skip


def test_the_books_outlive_the_server_and_a_run_cannot_clear_them(tmp_path: Path, keys: Keys) -> None:
    with TcpServer(tmp_path / "server") as server:
        queue = SyncTaskQueue(server.client, keys, max_attempts=1)
        queue.add([EpisodeTask(f"train-{i:08d}", "shop", seed=i) for i in range(5)])
        server.client.hset(keys.control, "cursors", json.dumps({"train": 6}))
        first, second, third = queue.lease("w", 3, 30.0)
        for task in (first, second):
            queue.complete(task.episode, task.attempt, summary(task), {"train_episodes": 1})
        queue.fail(third.episode, third.attempt, "broken", "site")
        queue.ack_results([queue.results(count=1)[0].id])
        server.kill()
        server.start()
        books = read_books(server.client, keys)
        with pytest.raises(redis.exceptions.NoPermissionError):
            server.client.scan()
    ended = [task.episode for task in (first, second, third)]
    assert books.done == set(ended[:2])
    assert books.dead == {ended[2]}
    assert books.open == {"train-00000003", "train-00000004"}
    assert books.waiting == set(ended[1:])
    account = reconcile([{"episode": ended[0]}], books)
    assert account.sound
    assert account.never_played == 1
    assert reconcile([], books).lost == (ended[0],)
