"""The parameter store: newest first, old ones trimmed, stale learners fenced off, damage refused."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
import time

import numpy as np
import pytest
import redis
import redis.asyncio

from webgym.broker import BrokerConfig, EmbeddedBroker, connect
from webgym.errors import ProtocolError, SchemaMismatch
from webgym.keys import Keys
from webgym.params import MissingParameters, ParameterStore, StaleGeneration, SyncParameterStore

HASH = "0123456789ab"


@pytest.fixture
def store(client: redis.Redis, keys: Keys) -> SyncParameterStore:
    return SyncParameterStore(client, keys)


def state(value: float, size: int = 5) -> dict[str, np.ndarray]:
    return {"w": np.full((2, size), value, np.float32), "steps": np.array(3, np.int64)}


def test_the_newest_is_fetched_whole(store: SyncParameterStore) -> None:
    assert store.latest_version() == 0
    assert store.generation() == 0
    for version in (1, 2, 10):
        store.publish(version, 1, state(version), HASH)
    assert store.latest_version() == 10
    found = store.fetch()
    assert (found.version, found.generation, found.schema_hash) == (10, 1, HASH)
    assert abs(found.time - time.time()) < 60
    assert found.state.keys() == {"w", "steps"}
    np.testing.assert_array_equal(found.state["w"], state(10)["w"])
    assert found.state["w"].dtype == np.float32
    assert found.state["steps"].shape == ()
    np.testing.assert_array_equal(store.fetch(2).state["w"], state(2)["w"])
    assert store.fetch(0).version == 10


def test_large_parameters_travel_in_chunks(
    store: SyncParameterStore, client: redis.Redis, keys: Keys
) -> None:
    rng = np.random.default_rng(0)
    large = {
        "w": rng.normal(size=(3000, 1000)).astype(np.float32),
        "b": rng.normal(size=7).astype(np.float32),
    }
    store.publish(1, 1, large, HASH, pinned=True)
    assert client.hlen(keys.params_version(1)) == 1 + 3
    found = store.fetch()
    for name, array in large.items():
        np.testing.assert_array_equal(found.state[name], array)


def test_old_versions_are_trimmed_and_pinned_ones_stay(
    store: SyncParameterStore, client: redis.Redis, keys: Keys
) -> None:
    store.publish(1, 1, state(1), HASH, pinned=True)
    for version in range(2, 9):
        store.publish(version, 1, state(version), HASH)
    assert store.versions() == [1, 5, 6, 7, 8]
    np.testing.assert_array_equal(store.fetch(1).state["w"], state(1)["w"])
    with pytest.raises(MissingParameters, match=r"version 4 .*1, 5, 6, 7, 8"):
        store.fetch(4)
    assert store.unpin(1)
    assert not store.unpin(1)
    assert store.versions() == [5, 6, 7, 8]
    left = {key.decode() for key in client.keys(keys.everything)}
    expected = {keys.params_version(v) for v in (5, 6, 7, 8)}
    assert left == expected | {keys.params_index, keys.params_generation}


def test_what_a_killed_learner_pinned_goes_with_its_successors_first_publication(
    store: SyncParameterStore, client: redis.Redis, keys: Keys
) -> None:
    store.publish(1, 1, state(1), HASH, pinned=True)
    store.publish(2, 1, state(2), HASH)
    for version in range(3, 8):
        store.publish(version, 2, state(version), HASH, pinned=version < 5)
    assert store.versions() == [2, 3, 4, 5, 6, 7]
    assert client.smembers(keys.params_pinned) == {b"3", b"4"}
    for version in range(8, 12):
        store.publish(version, 2, state(version), HASH)
    assert store.versions() == [3, 4, 8, 9, 10, 11]


def test_a_store_that_lost_all_its_versions_has_nothing_new(
    store: SyncParameterStore, client: redis.Redis, keys: Keys
) -> None:
    store.publish(7, 1, state(7), HASH)
    client.delete(*client.keys(keys.everything))
    started = time.monotonic()
    assert store.wait_newer(7, 0.2) == 0
    assert time.monotonic() - started >= 0.2
    store.publish(8, 1, state(8), HASH)
    assert store.wait_newer(7, 10.0) == 8
    store.close()


def test_nothing_published_is_told_apart(store: SyncParameterStore) -> None:
    with pytest.raises(MissingParameters, match="no parameters were published yet"):
        store.fetch()


def test_a_stale_learner_is_refused_and_changes_nothing(
    store: SyncParameterStore, client: redis.Redis, keys: Keys
) -> None:
    store.publish(5, 2, state(5), HASH)
    before = set(client.keys(keys.everything))
    with pytest.raises(StaleGeneration, match="generation 2 has published"):
        store.publish(6, 1, state(6), HASH)
    assert set(client.keys(keys.everything)) == before
    assert store.latest_version() == 5
    assert store.generation() == 2


def test_a_resumed_learner_counts_on_from_its_checkpoint(store: SyncParameterStore) -> None:
    for version in (8, 9, 10):
        store.publish(version, 1, state(version), HASH)
    store.publish(10, 1, state(10), HASH, pinned=True)
    store.publish(9, 2, state(-9), HASH)
    assert store.latest_version() == 9
    np.testing.assert_array_equal(store.fetch().state["w"], state(-9)["w"])
    np.testing.assert_array_equal(store.fetch(10).state["w"], state(10)["w"])
    store.publish(10, 2, state(-10), HASH)
    assert store.fetch().version == 10
    np.testing.assert_array_equal(store.fetch(10).state["w"], state(-10)["w"])


def test_publishing_again_replaces(store: SyncParameterStore) -> None:
    store.publish(1, 1, state(1, size=3_000_000), HASH)
    store.publish(1, 1, state(2), HASH)
    np.testing.assert_array_equal(store.fetch(1).state["w"], state(2)["w"])
    assert store.versions() == [1]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("header", b"forged"),
        ("header", None),
        ("chunk:0", b"forged"),
        ("chunk:0", None),
        ("chunk:1", b"more"),
        ("other", b"?"),
    ],
)
def test_damage_is_refused_by_version(
    store: SyncParameterStore, client: redis.Redis, keys: Keys, field: str, value: bytes | None
) -> None:
    store.publish(7, 1, state(7), HASH)
    if value is None:
        client.hdel(keys.params_version(7), field)
    else:
        client.hset(keys.params_version(7), field, value)
    with pytest.raises(ProtocolError, match="version 7"):
        store.fetch()


def test_one_version_is_not_taken_for_another(
    store: SyncParameterStore, client: redis.Redis, keys: Keys
) -> None:
    store.publish(7, 1, state(7), HASH)
    store.publish(8, 1, state(8), HASH)
    client.copy(keys.params_version(7), keys.params_version(8), replace=True)
    with pytest.raises(ProtocolError, match="version 8: the entry says version 7"):
        store.fetch()


def test_another_schema_is_refused_with_both_hashes(store: SyncParameterStore) -> None:
    store.publish(1, 1, state(1), HASH)
    with pytest.raises(SchemaMismatch, match=f"{HASH}.*ffffffffffff"):
        store.fetch(schema_hash="ffffffffffff")
    assert store.fetch(schema_hash=HASH).version == 1


def test_diverged_parameters_are_not_published(store: SyncParameterStore) -> None:
    with pytest.raises(ProtocolError, match="NaN"):
        store.publish(1, 1, {"w": np.array([np.nan], np.float32)}, HASH)
    assert store.latest_version() == 0
    for version, generation in ((0, 1), (1, 0), (2**40, 1), (1, 2**13)):
        with pytest.raises(ValueError, match="out of range"):
            store.publish(version, generation, state(1), HASH)


def test_a_publication_that_was_cut_off_leaves_nothing_for_long(
    store: SyncParameterStore, client: redis.Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "_caller", dies)
    with pytest.raises(KeyboardInterrupt):
        store.publish(1, 1, state(1), HASH)
    assert store.latest_version() == 0
    (staging,) = client.keys(keys.everything)
    assert 0 < client.ttl(staging) <= 120


def publish_many(store: SyncParameterStore) -> None:
    for version in range(2, 10):
        store.publish(version, 1, state(version, size=400_000), HASH)


def test_publishing_goes_on_when_memory_is_full_and_takes_no_more_of_it(keys: Keys) -> None:
    with EmbeddedBroker(max_memory=4 * 1024 * 1024) as small:
        client = connect(BrokerConfig(small.url))
        store = SyncParameterStore(client, keys, keep=2)
        store.publish(1, 1, state(1, size=400_000), HASH)
        fill(client)
        publish_many(store)
        assert store.fetch().version == 9
        assert store.versions() == [8, 9]
        client.close()


def fill(client: redis.Redis) -> None:
    """Until the server refuses."""
    with contextlib.suppress(redis.exceptions.OutOfMemoryError):
        for i in range(1000):
            client.set(f"filler-{i}", b"x" * 50_000)
        raise AssertionError("the server takes whatever comes")


def test_a_waiter_is_woken_by_a_publication(
    store: SyncParameterStore, config: BrokerConfig, keys: Keys
) -> None:
    client = connect(config)
    waiter = SyncParameterStore(client, keys)
    assert waiter.wait_newer(0, 0.0) == 0
    woken: list[tuple[int, float]] = []

    def wait() -> None:
        version = waiter.wait_newer(0, 10.0)
        woken.append((version, time.monotonic()))

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    published = time.monotonic()
    store.publish(1, 1, state(1), HASH)
    thread.join(10)
    assert woken[0][0] == 1
    assert woken[0][1] - published < 2.0  # Not the 10 s, nor the 5 s after which it looks by itself.
    # What was published in between is seen without waiting.
    store.publish(2, 1, state(2), HASH)
    assert waiter.wait_newer(1, 10.0) == 2
    started = time.monotonic()
    assert waiter.wait_newer(2, 0.1) == 2
    assert time.monotonic() - started < 2.0
    waiter.close()
    client.close()


async def test_the_asyncio_store_is_the_same_store(
    aclient: redis.asyncio.Redis, store: SyncParameterStore, keys: Keys
) -> None:
    other = ParameterStore(aclient, keys)
    with pytest.raises(MissingParameters):
        await other.fetch()
    waiting = asyncio.create_task(other.wait_newer(0, 10.0))
    await asyncio.sleep(0.05)
    await asyncio.to_thread(store.publish, 1, 1, state(1), HASH, True)
    assert await asyncio.wait_for(waiting, 2.0) == 1
    await other.publish(2, 2, state(2), HASH)
    assert await other.versions() == [1, 2]
    assert await other.generation() == 2
    assert await other.latest_version() == 2
    np.testing.assert_array_equal((await other.fetch()).state["w"], state(2)["w"])
    np.testing.assert_array_equal((await other.fetch(1, HASH)).state["w"], state(1)["w"])
    with pytest.raises(StaleGeneration):
        await other.publish(3, 1, state(3), HASH)
    await other.publish(3, 2, state(3), HASH, True)
    assert await other.unpin(3)
    await other.aclose()


def test_both_stores_have_the_same_methods() -> None:
    def public(cls: type) -> dict[str, str]:
        return {
            name: str(inspect.signature(member))
            for name, member in inspect.getmembers(cls, inspect.isfunction)
            if not name.startswith("_") and "close" not in name
        }

    assert public(ParameterStore) == public(SyncParameterStore)
