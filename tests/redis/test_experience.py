"""The experience stream: nothing lost, nothing twice, counted exactly, and writers wait when they should."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import redis
import redis.asyncio
from batches import SCHEMA, batch
from hypothesis import given
from hypothesis import strategies as st

from webgym.broker import BrokerConfig, EmbeddedBroker, connect, connect_async
from webgym.errors import ProtocolError
from webgym.experience import ExperienceReader, ExperienceWriter, SequenceFilter
from webgym.keys import Keys
from webgym.protocol import TransitionBatch
from webgym.schema import Schema


@pytest.fixture
def writer(aclient: redis.asyncio.Redis, keys: Keys) -> ExperienceWriter:
    return ExperienceWriter(aclient, keys, SCHEMA, high_water=10)


@pytest.fixture
def reader(client: redis.Redis, keys: Keys) -> ExperienceReader:
    return ExperienceReader(client, keys, SCHEMA)


def sequences(read: list[tuple[str, TransitionBatch]]) -> Iterator[tuple[str, int, int]]:
    for _, one in read:
        for i in range(len(one)):
            yield one.episode, one.attempt, one.first_sequence + i


async def test_batches_arrive_in_order_and_the_backlog_is_exact(
    writer: ExperienceWriter, reader: ExperienceReader, client: redis.Redis, keys: Keys
) -> None:
    assert await writer.push([batch("a"), batch("b", n=2)]) == 6
    assert await writer.push([batch("a", first=4, n=3)]) == 9
    assert await writer.push([]) == 9
    read = reader.read()
    assert [(b.episode, b.first_sequence, len(b)) for _, b in read] == [("a", 0, 4), ("b", 0, 2), ("a", 4, 3)]
    assert reader.backlog() == 9  # Still the stream's, until acknowledged.
    assert reader.ack([read[0][0]]) == 5
    assert reader.ack([read[0][0]]) == 5
    assert await writer.backlog() == 5
    assert reader.ack([read[1][0], read[2][0]]) == 0
    assert client.xlen(keys.experience) == 0
    assert reader.read() == []


async def test_reading_blocks_until_something_comes(
    writer: ExperienceWriter, reader: ExperienceReader
) -> None:
    started = time.monotonic()
    assert reader.read(block_ms=100) == []
    assert time.monotonic() - started >= 0.09
    waiting = asyncio.create_task(asyncio.to_thread(reader.read, 10, 5000))
    await asyncio.sleep(0.05)
    await writer.push([batch("a")])
    assert len(await asyncio.wait_for(waiting, 2.0)) == 1


async def test_a_new_reader_begins_with_what_was_not_acknowledged(
    writer: ExperienceWriter, reader: ExperienceReader, client: redis.Redis, keys: Keys
) -> None:
    await writer.push([batch("a"), batch("b"), batch("c")])
    read = reader.read(2)
    assert [b.episode for _, b in read] == ["a", "b"]
    reader.ack([read[0][0]])
    again = ExperienceReader(client, keys, SCHEMA)
    read = again.read()
    assert [b.episode for _, b in read] == ["b", "c"]
    assert again.ack([id for id, _ in read]) == 0


async def test_a_repeated_push_adds_nothing_even_after_the_first_was_consumed(
    writer: ExperienceWriter, reader: ExperienceReader, client: redis.Redis, keys: Keys
) -> None:
    assert await writer.push([batch("a")]) == 4
    assert await writer.push([batch("a"), batch("a")]) == 4
    reader.ack([id for id, _ in reader.read()])
    assert await writer.push([batch("a")]) == 0
    assert ExperienceReader(client, keys, SCHEMA).read() == []


async def test_overlapping_batches_give_each_transition_once(
    writer: ExperienceWriter, reader: ExperienceReader
) -> None:
    await writer.push(
        [batch("a", 0, 4), batch("a", 6, 2), batch("a", 2, 10), batch("a", 5, 1), batch("b", 0, 2)]
    )
    await writer.push([batch("a", 0, 4, attempt=2)])
    read = reader.read()
    found = list(sequences(read))
    assert len(found) == len(set(found))
    assert set(found) == {("a", 1, i) for i in range(12)} | {("b", 1, i) for i in range(2)} | {
        ("a", 2, i) for i in range(4)
    }
    for _, one in read:  # The right columns went with the numbers.
        np.testing.assert_array_equal(
            one.action, np.arange(one.first_sequence, one.first_sequence + len(one))
        )
    assert reader.duplicates == 5
    assert reader.ack([id for id, _ in read]) == 0


async def test_unreadable_batches_are_dropped_and_counted(
    writer: ExperienceWriter,
    reader: ExperienceReader,
    aclient: redis.asyncio.Redis,
    client: redis.Redis,
    keys: Keys,
) -> None:
    other = replace(SCHEMA, nodes=4)
    await ExperienceWriter(aclient, keys, other).push([batch("a", schema=other)])
    await writer.push([batch("b")])
    client.xadd(keys.experience, {"n": "x", "batch": b"nonsense"})
    client.xadd(keys.experience, {"something": "else"})
    read = reader.read()
    assert [b.episode for _, b in read] == ["b"]
    assert reader.rejected == 3
    assert "truncated or not a WebGym message" in reader.last_rejection
    assert reader.backlog() == 4
    assert client.xlen(keys.experience) == 1


async def test_a_bad_batch_is_refused_before_anything_is_sent(
    writer: ExperienceWriter, reader: ExperienceReader
) -> None:
    bad = replace(batch("b"), reward=np.full(4, np.nan, np.float32))
    with pytest.raises(ProtocolError, match="reward"):
        await writer.push([batch("a"), bad])
    assert reader.backlog() == 0


async def test_writers_wait_at_the_high_water_mark_until_told(
    writer: ExperienceWriter, reader: ExperienceReader, client: redis.Redis
) -> None:
    assert await writer.await_capacity() == 0
    await writer.push([batch("a"), batch("b")])
    assert await writer.await_capacity() == 8
    assert writer.waited_seconds == 0.0
    await writer.push([batch("c"), batch("d")])
    waiting = [asyncio.create_task(writer.await_capacity()) for _ in range(5)]
    await asyncio.sleep(0.2)
    assert not any(task.done() for task in waiting)
    commands = client.info("commandstats")["cmdstat_get"]["calls"]
    await asyncio.sleep(0.3)
    assert client.info("commandstats")["cmdstat_get"]["calls"] == commands  # Nobody polls.
    ids = [id for id, _ in await asyncio.to_thread(reader.read)]
    await asyncio.to_thread(reader.ack, ids[:1])
    await asyncio.sleep(0.1)
    assert not any(task.done() for task in waiting)  # 12 are still more than 10.
    await asyncio.to_thread(reader.ack, ids[1:2])
    assert await asyncio.wait_for(asyncio.gather(*waiting), 2.0) == [8] * 5
    assert writer.waited_seconds > 0.4


async def test_a_cancelled_waiter_does_not_block_the_others(
    writer: ExperienceWriter, reader: ExperienceReader
) -> None:
    await writer.push([batch(str(i)) for i in range(4)])
    first, second = (asyncio.create_task(writer.await_capacity()) for _ in range(2))
    await asyncio.sleep(0.05)
    first.cancel()
    await asyncio.sleep(0.05)
    read = await asyncio.to_thread(reader.read)
    await asyncio.to_thread(reader.ack, [id for id, _ in read])
    assert await asyncio.wait_for(second, 2.0) == 0


async def test_full_memory_pauses_writers_and_loses_nothing(keys: Keys) -> None:
    schema = Schema()
    with EmbeddedBroker(max_memory=6 * 1024 * 1024) as small:
        config = BrokerConfig(small.url)
        client, aclient = connect(config), connect_async(config)
        writer = ExperienceWriter(aclient, keys, schema, high_water=10**9)
        reader = ExperienceReader(client, keys, schema)
        pushed = 0

        async def push_all() -> None:
            nonlocal pushed
            for i in range(400):
                await writer.push([batch(f"e{i}", n=10, schema=schema)])
                pushed += 1

        pushing = asyncio.create_task(push_all())
        await asyncio.sleep(0.5)
        while await asyncio.sleep(0.2, pushed) != pushed:
            pass
        assert 0 < pushed < 400  # It waits for room.
        episodes: list[str] = []
        while len(episodes) < 400:
            read = await asyncio.to_thread(reader.read, 50, 200)
            episodes += [b.episode for _, b in read]
            await asyncio.to_thread(reader.ack, [id for id, _ in read])
        await asyncio.wait_for(pushing, 10)
        assert episodes == [f"e{i}" for i in range(400)]
        assert reader.backlog() == 0
        await aclient.aclose()
        client.close()


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10)), max_size=30))
def test_the_filter_agrees_with_a_set(ranges: list[tuple[int, int]]) -> None:
    seen: set[int] = set()
    sequence_filter = SequenceFilter()
    for start, length in ranges:
        gaps = sequence_filter.add("e", 1, start, start + length)
        new = [i for a, b in gaps for i in range(a, b)]
        assert new == sorted(set(range(start, start + length)) - seen)
        seen |= set(new)


def test_the_filter_forgets_what_is_longest_without_news() -> None:
    sequence_filter = SequenceFilter(capacity=2)
    for episode in ("a", "b"):
        assert sequence_filter.add(episode, 1, 0, 5) == [(0, 5)]
    assert sequence_filter.add("a", 1, 3, 7) == [(5, 7)]
    assert sequence_filter.add("c", 1, 0, 5) == [(0, 5)]
    assert sequence_filter.add("a", 1, 0, 7) == []
    assert sequence_filter.add("b", 1, 0, 5) == [(0, 5)]
