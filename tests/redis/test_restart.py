"""The server is killed and comes back: who was waiting goes on waiting, and nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
from batches import SCHEMA, batch

from webgym.broker import BrokerConfig, EmbeddedBroker, connect, connect_async
from webgym.experience import ExperienceReader, ExperienceWriter
from webgym.keys import Keys
from webgym.params import SyncParameterStore
from webgym.queue import EpisodeTask, SyncTaskQueue, TaskQueue


def restart(broker: EmbeddedBroker, away_seconds: float) -> None:
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGKILL)
    while not broker.died:
        time.sleep(0.01)
    time.sleep(away_seconds)
    broker.start()


async def test_all_who_wait_live_through_a_restart(tmp_path: Path, keys: Keys) -> None:
    with EmbeddedBroker(append_only_dir=tmp_path) as broker:
        config = BrokerConfig(broker.url)
        aclient, client = connect_async(config), connect(config)
        writer = ExperienceWriter(aclient, keys, SCHEMA, high_water=8)
        await writer.push([batch("a", n=8)])
        reader = ExperienceReader(client, keys, SCHEMA)
        store = SyncParameterStore(client, keys)
        store.publish(1, 1, {"w": np.ones(3, np.float32)}, "h")
        waiting = [
            asyncio.create_task(writer.await_capacity()),
            asyncio.create_task(TaskQueue(aclient, keys).lease("w", 1, 60, 20.0)),
            asyncio.create_task(
                asyncio.to_thread(SyncParameterStore(connect(config), keys).wait_newer, 1, 20.0)
            ),
            asyncio.create_task(
                asyncio.to_thread(read_until, ExperienceReader(connect(config), keys, SCHEMA), "b")
            ),
        ]
        await asyncio.sleep(0.2)
        await asyncio.to_thread(restart, broker, 0.3)
        assert not any(task.done() for task in waiting)
        await asyncio.to_thread(SyncTaskQueue(client, keys).add, [EpisodeTask("e", "t")])
        await asyncio.to_thread(store.publish, 2, 1, {"w": np.ones(3, np.float32)}, "h")
        read = await asyncio.to_thread(reader.read)
        assert await asyncio.to_thread(reader.ack, [id for id, _ in read]) == 0
        capacity, leased, version, _ = await asyncio.wait_for(
            asyncio.gather(*waiting[:3], writer.push([batch("b")])), 15
        )
        assert capacity <= 4
        assert [t.episode for t in leased] == ["e"]
        assert version == 2
        assert await asyncio.wait_for(waiting[3], 15) == ["a", "b"]
        await aclient.aclose()


def read_until(reader: ExperienceReader, last: str) -> list[str]:
    """Read, without acknowledging, until that episode has come."""
    found: list[str] = []
    while last not in found:
        found += [b.episode for _, b in reader.read(10, 5000)]
    return found


async def test_a_server_that_is_silent_for_a_while_loses_and_doubles_nothing(keys: Keys) -> None:
    """Packets vanish, commands time out and are sent again, and in the end the server runs all of them."""
    with EmbeddedBroker() as broker:
        assert broker.pid is not None
        config = BrokerConfig(broker.url, connect_timeout=0.5, reply_timeout=0.5)
        aclient = connect_async(config)
        reader = ExperienceReader(connect(config), keys, SCHEMA)
        writer = ExperienceWriter(aclient, keys, SCHEMA)
        store = SyncParameterStore(connect(config), keys)
        done = 0

        def act() -> int:
            queue = SyncTaskQueue(connect(config), keys, max_attempts=100)
            count, deadline = 0, time.monotonic() + 60
            while queue.counts().open and time.monotonic() < deadline:
                for task in queue.lease("w", 5, 1.0):
                    queue.complete(task.episode, task.attempt, b"", {"episodes": 1})
                    count += 1
            return count

        async def push() -> None:
            nonlocal done
            while done < 60:
                await writer.push([batch(f"b-{done}")])
                done += 1
                await asyncio.sleep(0.02)

        queue = SyncTaskQueue(connect(config), keys, max_attempts=100)
        queue.add(EpisodeTask(f"e-{i}", "t") for i in range(2000))
        working = [asyncio.create_task(asyncio.to_thread(act)) for _ in range(3)]
        pushing = asyncio.create_task(push())
        for _ in range(2):
            await asyncio.sleep(0.1)
            os.kill(broker.pid, signal.SIGSTOP)
            publishing = asyncio.create_task(
                asyncio.to_thread(store.publish, 1, 1, {"w": np.ones(3, np.float32)}, "h")
            )
            await asyncio.sleep(1.5)
            os.kill(broker.pid, signal.SIGCONT)
            await asyncio.wait_for(publishing, 30)
        await asyncio.wait_for(asyncio.gather(pushing, *working), 90)
        results = await asyncio.to_thread(queue.results, "0", 5000)
        assert len(results) == len({r.episode for r in results}) == 2000
        assert queue.counters() == {"episodes": 2000.0}
        assert [b.episode for _, b in await asyncio.to_thread(reader.read, 100)] == [
            f"b-{i}" for i in range(60)
        ]
        assert store.versions() == [1]
        await aclient.aclose()


def test_work_goes_on_across_restarts_and_counts_once(tmp_path: Path, keys: Keys) -> None:
    with EmbeddedBroker(append_only_dir=tmp_path) as broker:
        stop = threading.Event()

        def act() -> None:
            queue = SyncTaskQueue(connect(BrokerConfig(broker.url)), keys, max_attempts=100)
            while not stop.is_set():
                for task in queue.lease("w", 10, 1.0, 0.1):
                    queue.complete(task.episode, task.attempt, b"", {"episodes": 1})

        actors = [threading.Thread(target=act) for _ in range(3)]
        queue = SyncTaskQueue(connect(BrokerConfig(broker.url)), keys, max_attempts=100)
        for actor in actors:
            actor.start()
        tasks = [EpisodeTask(f"e-{i}", "t") for i in range(900)]
        for first in range(0, 900, 300):
            queue.add(tasks[first : first + 300])
            restart(broker, 0.1)
        # A killed server may lose its last second or two; whoever waits for episodes queues them again, which is
        # harmless for those that are there or done.
        queue.add(tasks)
        deadline = time.monotonic() + 15
        while queue.counts().open:
            assert time.monotonic() < deadline, queue.counts()
            time.sleep(0.02)
        stop.set()
        for actor in actors:
            actor.join(10)
        results = [r.episode for r in queue.results(count=5000)]
        assert len(results) == len(set(results)) == 900
        assert queue.counters() == {"episodes": 900.0}
