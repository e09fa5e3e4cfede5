"""Question and answer between browser and inference process: newest and pinned parameters, and whoever dies."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import numpy as np
import pytest

from webgym.program import Drain
from webgym.protocol import Parameters
from webgym.schema import Observation, Schema
from webgym_policy.network import PolicyNetwork, infer, parameters_of
from webgym_workers.inference import InferenceLoop, ParameterFeed
from webgym_workers.inference_client import InferenceClient, ParametersGone
from webgym_workers.slots import ObservationSlots, Request, channel

SCHEMA = Schema(nodes=3, node_features=4, texts=2, text_features=3, pair_features=2, goal_features=5)
SLOTS = 4


def parameters(version: int) -> Parameters:
    state = parameters_of(PolicyNetwork(SCHEMA, 8, seed=version))
    return Parameters(version=version, generation=1, state=state, schema_hash=SCHEMA.hash)


def observation(seed: int) -> Observation:
    rng = np.random.default_rng(seed)
    made = SCHEMA.empty()
    for name, array in made.items():
        array[...] = 1 if name.endswith("mask") else rng.integers(0, 256, array.shape) / 256
    return made


def expected(version: int, seed: int) -> np.ndarray:
    network = PolicyNetwork(SCHEMA, 8, seed=version)
    return infer(network, {name: array[None] for name, array in observation(seed).items()})[0]


class Feed:
    """In place of the store's follower."""

    def __init__(self) -> None:
        self.now: Parameters | None = None
        self.kept: dict[int, Parameters | None] = {}

    def newest(self) -> Parameters | None:
        return self.now

    def pinned(self, version: int) -> tuple[bool, Parameters | None]:
        return version in self.kept, self.kept.get(version)


class Worker:
    """The slots and one channel, as the worker program holds them; and inference that can be started and ended."""

    def __init__(self) -> None:
        self.memory = ObservationSlots.create(SCHEMA, SLOTS)
        self.theirs, self.ours = channel()
        self.feed = Feed()

    def slots(self) -> ObservationSlots:
        return ObservationSlots(SCHEMA, SLOTS, self.memory)

    def loop(self) -> InferenceLoop:
        sock = socket.socket(fileno=os.dup(self.theirs.fileno()))
        return InferenceLoop(SCHEMA, 8, True, self.slots(), [sock], cast(ParameterFeed, self.feed))

    @contextmanager
    def serving(self) -> Iterator[InferenceLoop]:
        drain, loop = Drain(), self.loop()
        thread = threading.Thread(target=loop.run, args=(drain,))
        thread.start()
        try:
            yield loop
        finally:
            drain.request("over")
            thread.join(10)
            assert not thread.is_alive()

    async def read_requests(self, count: int) -> list[Request]:
        """Take requests off the channel, as an inference process does."""
        self.theirs.setblocking(False)
        loop = asyncio.get_running_loop()
        return [Request.unpack(await loop.sock_recv(self.theirs, 64)) for _ in range(count)]

    def close(self) -> None:
        os.close(self.memory)
        self.theirs.close()
        self.ours.close()


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.close()


async def test_each_browser_gets_its_own_answer(worker: Worker) -> None:
    worker.feed.now = parameters(5)
    client = InferenceClient(worker.slots(), worker.ours)
    with worker.serving() as loop:
        answers = await asyncio.gather(*(client.q_values(slot, observation(slot)) for slot in range(SLOTS)))
        for slot, (q, version) in enumerate(answers):
            assert version == 5
            assert q.shape == (SCHEMA.actions,)
            np.testing.assert_allclose(q, expected(5, slot), rtol=1e-4, atol=1e-5)
        assert loop.requests == SLOTS
        worker.feed.now = parameters(6)
        q, version = await client.q_values(2, observation(9))
        assert version == 6
        np.testing.assert_allclose(q, expected(6, 9), rtol=1e-4, atol=1e-5)
    client.close()


async def test_requests_that_wait_are_answered_in_one_pass(worker: Worker) -> None:
    worker.feed.now = parameters(1)
    client = InferenceClient(worker.slots(), worker.ours)
    asking = asyncio.gather(*(client.q_values(slot, observation(slot)) for slot in range(SLOTS)))
    await asyncio.sleep(0)  # all have asked; nobody serves yet
    await asyncio.sleep(0)
    with worker.serving() as loop:
        await asking
        assert (loop.batches, loop.requests) == (1, SLOTS)
    client.close()


async def test_before_the_first_parameters_requests_wait(worker: Worker) -> None:
    client = InferenceClient(worker.slots(), worker.ours)
    with worker.serving() as loop:
        asking = asyncio.ensure_future(client.q_values(0, observation(3)))
        done, _ = await asyncio.wait([asking], timeout=0.1)
        assert not done
        worker.feed.now = parameters(1)
        loop.wake()
        q, version = await asyncio.wait_for(asking, 5)
    assert version == 1
    np.testing.assert_allclose(q, expected(1, 3), rtol=1e-4, atol=1e-5)
    client.close()


async def test_who_asks_for_a_version_or_later_waits_for_it(worker: Worker) -> None:
    worker.feed.now = parameters(3)
    client = InferenceClient(worker.slots(), worker.ours)
    with worker.serving() as loop:
        assert (await client.q_values(0, observation(3), version=-3))[1] == 3
        asking = asyncio.ensure_future(client.q_values(1, observation(3), version=-4))
        assert (await client.q_values(0, observation(3), version=-2))[1] == 3  # holds up nobody
        assert not asking.done()
        worker.feed.now = parameters(5)
        loop.wake()
        q, version = await asyncio.wait_for(asking, 5)
    assert version == 5
    np.testing.assert_allclose(q, expected(5, 3), rtol=1e-4, atol=1e-5)
    client.close()


async def test_a_pinned_version_is_used_even_when_there_is_a_newer_one(worker: Worker) -> None:
    worker.feed.now = parameters(9)
    worker.feed.kept = {4: parameters(4), 5: None}
    client = InferenceClient(worker.slots(), worker.ours)
    with worker.serving() as loop:
        pinned, newest = await asyncio.gather(
            client.q_values(0, observation(1), version=4), client.q_values(1, observation(1))
        )
        assert (pinned[1], newest[1]) == (4, 9)
        np.testing.assert_allclose(pinned[0], expected(4, 1), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(newest[0], expected(9, 1), rtol=1e-4, atol=1e-5)
        with pytest.raises(ParametersGone, match="5"):
            await client.q_values(0, observation(1), version=5)
        # Not known yet: it waits, and holds up nobody.
        asking = asyncio.ensure_future(client.q_values(2, observation(1), version=6))
        assert (await client.q_values(0, observation(1)))[1] == 9
        assert not asking.done()
        worker.feed.kept[6] = parameters(6)
        loop.wake()
        assert (await asyncio.wait_for(asking, 5))[1] == 6
    client.close()


async def test_an_inference_process_that_takes_over_answers_what_its_predecessor_had_read(
    worker: Worker,
) -> None:
    worker.feed.now = parameters(1)
    client = InferenceClient(worker.slots(), worker.ours, retry_seconds=0.1)
    asking = asyncio.ensure_future(client.q_values(0, observation(1)))
    [request] = await worker.read_requests(1)  # and then it was killed
    assert request.slot == 0
    with worker.serving():
        assert (await asyncio.wait_for(asking, 5))[1] == 1
    client.close()


async def test_only_the_newest_request_of_a_slot_counts(worker: Worker) -> None:
    worker.feed.now = parameters(1)
    client = InferenceClient(worker.slots(), worker.ours, retry_seconds=0.05)
    asking = asyncio.ensure_future(client.q_values(0, observation(1)))
    asked = await worker.read_requests(3)
    assert [r.slot for r in asked] == [0, 0, 0]
    assert len({r.sequence for r in asked}) == 3
    for request in asked:
        worker.ours.send(request.pack())  # as though nobody had read them yet
    with worker.serving():
        q, _ = await asyncio.wait_for(asking, 5)
        np.testing.assert_allclose(q, expected(1, 1), rtol=1e-4, atol=1e-5)
        # What was sent for the earlier askings is taken for no later answer.
        q, _ = await client.q_values(0, observation(2))
        np.testing.assert_allclose(q, expected(1, 2), rtol=1e-4, atol=1e-5)
    client.close()


async def test_nonsense_on_the_channel_is_dropped(worker: Worker, caplog: pytest.LogCaptureFixture) -> None:
    worker.feed.now = parameters(1)
    client = InferenceClient(worker.slots(), worker.ours)
    worker.ours.send(b"nonsense")
    worker.theirs.send(b"nonsense")
    with worker.serving():
        assert (await asyncio.wait_for(client.q_values(0, observation(1)), 5))[1] == 1
    assert "8 bytes" in caplog.text
    client.close()
