"""A server whose memory is full: workers wait, everything else goes on, and nothing is lost."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import redis
from batches import batch

from webgym.broker import BrokerConfig, EmbeddedBroker, connect, connect_async
from webgym.experience import ExperienceReader, ExperienceWriter
from webgym.keys import Keys
from webgym.params import SyncParameterStore
from webgym.protocol import EpisodeTask
from webgym.queue import SyncTaskQueue
from webgym.schema import Schema


async def test_a_learner_goes_on_while_workers_wait_for_room(keys: Keys) -> None:
    schema = Schema()
    with EmbeddedBroker(max_memory=6 * 1024 * 1024) as small:
        config = BrokerConfig(small.url)
        client, aclient = connect(config), connect_async(config)
        writer = ExperienceWriter(aclient, keys, schema, high_water=10**9)

        async def push_all() -> None:
            for i in range(150):
                await writer.push([batch(f"e{i}", n=30, schema=schema)])

        pushing = asyncio.create_task(push_all())
        async with asyncio.timeout(60):
            while not await refuses(aclient):
                await asyncio.sleep(0.05)
        assert not pushing.done()

        def learn() -> list[str]:
            """All that a learner and its workers write besides experience, then what it reads."""
            client.hset(keys.progress, mapping={"steps": "1", "loss": "0.5"})
            client.hset(keys.members, "learner-0", b"{}")
            assert client.hget(keys.progress, "loss") == b"0.5"
            queue, store = SyncTaskQueue(client, keys), SyncParameterStore(client, keys)
            assert queue.add(EpisodeTask(f"e-{i}", "t") for i in range(100)) == 100
            for task in queue.lease("w", 100, 60.0):
                assert queue.complete(task.episode, task.attempt, b"", {"episodes": 1})
            store.publish(1, 1, {"w": np.ones(100_000, np.float32)}, "h")
            assert store.fetch().version == 1
            reader, episodes = ExperienceReader(client, keys, schema), []
            while len(episodes) < 150:
                read = reader.read(20, 500)
                episodes += [b.episode for _, b in read]
                reader.ack([id for id, _ in read])
            return episodes

        assert await asyncio.wait_for(asyncio.to_thread(learn), 60) == [f"e{i}" for i in range(150)]
        await asyncio.wait_for(pushing, 30)
        await aclient.hset(keys.members, "worker-0", b"{}")
        assert await aclient.hgetall(keys.members) == {b"learner-0": b"{}", b"worker-0": b"{}"}  # type: ignore[misc]
        with pytest.raises(redis.DataError):
            client.hset(keys.members)
        await aclient.aclose()
        client.close()


async def refuses(client: redis.asyncio.Redis) -> bool:
    try:
        await client.set("probe", b"x")
    except redis.exceptions.OutOfMemoryError:
        return True
    return False
