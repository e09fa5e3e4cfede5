"""Inference with the real parameter store: what is published is what answers, and whoever dies is replaced."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import redis

from webgym.broker import BrokerConfig, connect
from webgym.keys import Keys
from webgym.params import SyncParameterStore
from webgym.program import Drain
from webgym.schema import Observation, Schema
from webgym_policy.network import PolicyNetwork, infer, parameters_of
from webgym_workers.inference import InferenceLoop, ParameterFeed
from webgym_workers.inference_client import InferenceClient, ParametersGone
from webgym_workers.pulse import Pulses
from webgym_workers.slots import ObservationSlots, Request, channel

SCHEMA = Schema()
HIDDEN = 8
SLOTS = 24


def observation(seed: int) -> Observation:
    rng = np.random.default_rng(seed)
    made = SCHEMA.empty()
    for name, array in made.items():
        array[...] = 1 if name.endswith("mask") else rng.integers(0, 256, array.shape) / 256
    return made


def expected(version: int, seed: int) -> np.ndarray:
    batch = {name: array[None] for name, array in observation(seed).items()}
    return infer(network(version), batch)[0]


def network(version: int) -> PolicyNetwork:
    """One for each version, with weights that half precision, as they travel, holds exactly."""
    made = PolicyNetwork(SCHEMA, HIDDEN, seed=version)
    return made.half().float()


class Worker:
    """Slots, a channel, and a learner's side of the store."""

    def __init__(self, config: BrokerConfig, keys: Keys, store: SyncParameterStore) -> None:
        self.config, self.keys, self.store = config, keys, store
        self.memory = ObservationSlots.create(SCHEMA, SLOTS)
        self.theirs, self.ours = channel()

    def publish(self, version: int, schema_hash: str = SCHEMA.hash, pinned: bool = False) -> None:
        state = parameters_of(network(version))
        self.store.publish(version, 1, state, schema_hash, pinned)

    def client(self, retry_seconds: float = 2.0) -> InferenceClient:
        return InferenceClient(ObservationSlots(SCHEMA, SLOTS, self.memory), self.ours, retry_seconds)

    @contextlib.contextmanager
    def serving(self) -> Iterator[InferenceLoop]:
        """Inference in a thread, as its program puts it together."""
        connection = connect(self.config)
        feed = ParameterFeed(SyncParameterStore(connection, self.keys), SCHEMA.hash, lambda: loop.wake())
        sock = socket.socket(fileno=os.dup(self.theirs.fileno()))
        slots = ObservationSlots(SCHEMA, SLOTS, self.memory)
        loop, drain = InferenceLoop(SCHEMA, HIDDEN, True, slots, [sock], feed), Drain()
        thread = threading.Thread(target=loop.run, args=(drain,))
        feed.start()
        thread.start()
        try:
            yield loop
        finally:
            drain.request("over")
            feed.stop()
            for running in (thread, feed):
                running.join(10)
                assert not running.is_alive()
            connection.close()
            sock.close()


@pytest.fixture
def worker(config: BrokerConfig, keys: Keys, client: redis.Redis) -> Iterator[Worker]:
    made = Worker(config, keys, SyncParameterStore(client, keys, keep=2))
    yield made
    os.close(made.memory)
    made.theirs.close()
    made.ours.close()


async def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


async def test_the_first_parameters_answer_all_that_waited_for_them(worker: Worker) -> None:
    client = worker.client()
    with worker.serving() as loop:
        asking = [asyncio.ensure_future(client.q_values(i, observation(i))) for i in range(6)]
        done, _ = await asyncio.wait(asking, timeout=0.2)
        assert not done
        worker.publish(3)
        answers = await asyncio.wait_for(asyncio.gather(*asking), 10)
        # All of them had arrived, so one pass does.
        assert (loop.batches, loop.requests) == (1, 6)
    for i, (q, version) in enumerate(answers):
        assert version == 3
        np.testing.assert_allclose(q, expected(3, i), rtol=1e-4, atol=1e-5)
    client.close()


async def test_the_newest_version_is_adopted_while_requests_keep_coming(worker: Worker) -> None:
    worker.publish(1)
    client = worker.client()
    seen: list[int] = []
    with worker.serving():
        for version in range(2, 6):
            worker.publish(version)
            async with asyncio.timeout(10):
                while not seen or seen[-1] != version:
                    q, used = await client.q_values(0, observation(used_seed := len(seen)))
                    seen.append(used)
                    np.testing.assert_allclose(q, expected(used, used_seed), rtol=1e-4, atol=1e-5)
    assert seen == sorted(seen)
    client.close()


async def test_after_a_flush_the_feed_waits_and_does_not_spin(
    worker: Worker, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = [0]
    fetch = SyncParameterStore.fetch

    def counted(*arguments: object) -> object:
        looks[0] += 1
        return fetch(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(SyncParameterStore, "fetch", counted)
    worker.publish(4)
    with worker.serving():
        asker = worker.client()
        assert (await asker.q_values(0, observation(1)))[1] == 4
        client.delete(*client.keys(worker.keys.everything))
        # An index that names what is not there is the other way to spin.
        await asyncio.sleep(0.3)
        assert looks[0] <= 2
        client.zadd(worker.keys.params_index, {"9": 9})
        await asyncio.sleep(0.3)
        assert 0 < looks[0] < 40
        # What was fetched before goes on answering, and what comes next is adopted.
        assert (await asker.q_values(0, observation(2)))[1] == 4
        client.delete(worker.keys.params_index)
        worker.publish(5)
        async with asyncio.timeout(10):
            while (await asker.q_values(0, observation(2)))[1] != 5:
                await asyncio.sleep(0.02)
        asker.close()


async def test_pinned_versions_are_looked_up_and_missing_ones_told(worker: Worker) -> None:
    worker.publish(1)
    worker.publish(2, pinned=True)
    for version in (3, 4, 5):
        worker.publish(version)
    assert worker.store.versions() == [2, 4, 5]
    client = worker.client()
    with worker.serving():
        q, used = await asyncio.wait_for(client.q_values(0, observation(7), version=2), 10)
        assert used == 2
        np.testing.assert_allclose(q, expected(2, 7), rtol=1e-4, atol=1e-5)
        # Trimmed, and never published: neither blocks the episodes beside it.
        answers = await asyncio.wait_for(
            asyncio.gather(
                client.q_values(1, observation(1), version=1),
                client.q_values(2, observation(1), version=99),
                client.q_values(3, observation(1), version=4),
                client.q_values(4, observation(1)),
                return_exceptions=True,
            ),
            10,
        )
        assert [isinstance(a, ParametersGone) for a in answers] == [True, True, False, False]
        assert "parameters 99 are gone" in str(answers[1])
        assert [a[1] for a in answers[2:] if isinstance(a, tuple)] == [4, 5]
    client.close()


async def test_parameters_of_another_schema_are_refused_by_name(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    other = Schema(nodes=7)
    worker.publish(1)
    client = worker.client()
    with worker.serving(), caplog.at_level(logging.WARNING):
        assert (await client.q_values(0, observation(1)))[1] == 1
        worker.publish(2, other.hash)
        await until(lambda: other.hash in caplog.text)
        assert SCHEMA.hash in caplog.text
        # It stays refused, which is told once; what it has is still good.
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.q_values(1, observation(1), version=2), 1.5)
        assert caplog.text.count(other.hash) == 1
        assert (await client.q_values(0, observation(1)))[1] == 1
        worker.publish(3)
        async with asyncio.timeout(10):
            while (await client.q_values(0, observation(1)))[1] != 3:
                await asyncio.sleep(0.01)
    client.close()


async def test_more_requests_than_the_channel_holds_are_all_answered(worker: Worker) -> None:
    client = worker.client(retry_seconds=0.3)
    # Nobody reads: the channel is full, and every browser goes on asking.
    with contextlib.suppress(BlockingIOError):
        while True:
            worker.ours.send(Request(0, 0, 0).pack())
    asking = [asyncio.ensure_future(client.q_values(i, observation(i))) for i in range(SLOTS)]
    done, _ = await asyncio.wait(asking, timeout=0.7)
    assert not done
    worker.publish(1)
    with worker.serving():
        answers = await asyncio.wait_for(asyncio.gather(*asking), 10)
    for i, (q, version) in enumerate(answers):
        assert version == 1
        np.testing.assert_allclose(q, expected(1, i), rtol=1e-4, atol=1e-5)
    client.close()


async def test_a_channel_that_nobody_else_holds_costs_no_time(worker: Worker) -> None:
    client = worker.client(retry_seconds=0.1)
    worker.theirs.close()
    asking = asyncio.ensure_future(client.q_values(0, observation(0)))
    before = time.process_time()
    done, _ = await asyncio.wait([asking], timeout=0.5)
    assert not done
    assert time.process_time() - before < 0.25
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    client.close()


MANIFEST = f"""
apiVersion: webgym.io/v1alpha1
kind: WebGymRun
metadata: {{name: inference}}
spec:
  task: {{name: miniwob.click-test}}
  policy: {{hiddenSize: {HIDDEN}}}
"""


@contextlib.contextmanager
def program(worker: Worker, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The inference program."""
    manifest = tmp_path / "run.yaml"
    manifest.write_text(MANIFEST)
    environment = {
        **os.environ,
        "WEBGYM_SPEC": str(manifest),
        "WEBGYM_RUN_UID": worker.keys.uid,
        "WEBGYM_REDIS_URL": worker.config.url,
        "WEBGYM_OUT": str(tmp_path),
        "WEBGYM_ID": "worker-0",
    }
    pulse = Pulses.create(1)
    fds = (worker.memory, worker.theirs.fileno(), pulse)
    argv = [f"--memory-fd={fds[0]}", f"--slots={SLOTS}", f"--socket-fds={fds[1]}"]
    argv += [f"--pulse-fd={pulse}", "--pulses=1", "--pulse=0"]
    started = subprocess.Popen(
        [sys.executable, "-m", "webgym_workers.inference", *argv], env=environment, pass_fds=fds
    )
    try:
        yield started
    finally:
        started.kill()
        started.wait(10)
        os.close(pulse)


async def test_a_killed_program_is_replaced_without_its_askers_noticing(
    worker: Worker, tmp_path: Path
) -> None:
    worker.publish(1)
    client = worker.client(retry_seconds=0.5)
    with program(worker, tmp_path) as first:
        assert (await asyncio.wait_for(client.q_values(0, observation(0)), 60))[1] == 1
        first.send_signal(signal.SIGKILL)
        first.wait(10)
    asking = [asyncio.ensure_future(client.q_values(i, observation(i))) for i in range(SLOTS)]
    worker.publish(2)
    with program(worker, tmp_path) as second:
        answers = await asyncio.wait_for(asyncio.gather(*asking), 60)
        for i, (q, version) in enumerate(answers):
            assert version == 2
            np.testing.assert_allclose(q, expected(2, i), rtol=1e-4, atol=1e-5)
        # Asked to end, it ends in good order.
        second.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(second.wait, 20) == 0
    client.close()
