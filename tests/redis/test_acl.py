"""The users that the operator gives a run's Redis: each can do its work, and a worker cannot write parameters."""

from __future__ import annotations

import contextlib
import subprocess
import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast
from unittest.mock import AsyncMock

import numpy as np
import pytest
import redis
from batches import SCHEMA, batch
from queueing import summary, task
from redis.exceptions import NoPermissionError, ResponseError
from tcp_server import free_port, server_under_test, wait_for_port

from webgym.broker import BrokerConfig, check, connect, connect_async
from webgym.errors import BrokerError
from webgym.experience import ExperienceReader, ExperienceWriter
from webgym.keys import Keys
from webgym.params import SyncParameterStore
from webgym.queue import SyncTaskQueue
from webgym_operator.redis_objects import Passwords, acl
from webgym_workers.episode import Episode
from webgym_workers.film import FilmRecorder

UID = str(uuid.uuid4())
KEYS = Keys(UID)
PASSWORDS = Passwords.generate()
WEIGHTS = {"w": np.ones(3, np.float32)}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("acl")
    (folder / "users.acl").write_text(acl(UID, PASSWORDS))
    port = free_port()
    argv = [str(server_under_test()), "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    argv += ["--dir", str(folder), "--aclfile", str(folder / "users.acl")]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_for_port(port, process)
        yield port
    finally:
        process.terminate()
        process.wait(10)


def config(port: int, role: str) -> BrokerConfig:
    return BrokerConfig(f"redis://{role}:{getattr(PASSWORDS, role)}@127.0.0.1:{port}/0", patience=0)


@pytest.fixture
def clients(server: int) -> Iterator[dict[str, redis.Redis]]:
    with contextlib.ExitStack() as stack:
        yield {
            role: stack.enter_context(contextlib.closing(connect(config(server, role))))
            for role in ("learner", "worker", "operator")
        }


async def test_learner_and_worker_can_do_their_work(server: int, clients: dict[str, redis.Redis]) -> None:
    for role in ("learner", "worker"):
        check(config(server, role))
    SyncParameterStore(clients["learner"], KEYS).publish(1, 1, WEIGHTS, "0123456789ab")
    assert SyncParameterStore(clients["worker"], KEYS).fetch().version == 1
    SyncTaskQueue(clients["learner"], KEYS).add([task("a"), task("b")])
    worker = SyncTaskQueue(clients["worker"], KEYS)
    first, second = worker.lease("w", 2, 60.0)
    worker.heartbeat("w", [first.episode], 60.0)
    worker.release([second])
    assert worker.complete("a", first.attempt, summary("a"))
    pushing = connect_async(config(server, "worker"))
    try:
        await ExperienceWriter(pushing, KEYS, SCHEMA, high_water=100).push([batch("a")])
        page = SimpleNamespace(screenshot=AsyncMock(return_value=b"png"))
        await (
            FilmRecorder(pushing, KEYS)
            .start(task("a"))
            .end(cast(Episode, SimpleNamespace(page=page)), success=True)
        )
    finally:
        await pushing.aclose()
    assert len(ExperienceReader(clients["learner"], KEYS, SCHEMA).read()) == 1
    film = clients["learner"].hgetall(f"{KEYS.film}:a")
    assert film.keys() == {b"frame-0", b"meta"}
    clients["worker"].hset(KEYS.members, "worker-0", "{}")
    assert clients["operator"].hgetall(KEYS.members)


def test_a_worker_cannot_write_what_the_learner_says(clients: dict[str, redis.Redis]) -> None:
    worker = clients["worker"]
    with pytest.raises(BrokerError, match="No permissions to access a key"):
        SyncParameterStore(worker, KEYS).publish(2, 1, WEIGHTS, "0123456789ab")
    for key in (KEYS.control, KEYS.progress, KEYS.params_index, "other"):
        with pytest.raises(NoPermissionError):
            worker.hset(key, "phase", "done")
    assert worker.hgetall(KEYS.control) == {}


@pytest.mark.parametrize("role", ["worker", "learner", "operator"])
@pytest.mark.parametrize(
    "command", ["FLUSHALL", "CONFIG GET *", "ACL LIST", "KEYS *", "SHUTDOWN", "DEBUG SLEEP 0"]
)
def test_nobody_may_administer_the_server(clients: dict[str, redis.Redis], role: str, command: str) -> None:
    with pytest.raises((NoPermissionError, ResponseError)):
        clients[role].execute_command(*command.split())


def test_the_operator_reads_only(clients: dict[str, redis.Redis]) -> None:
    with pytest.raises(NoPermissionError):
        clients["operator"].hset(KEYS.control, "phase", "done")


def test_nobody_comes_in_without_a_password(server: int) -> None:
    with contextlib.closing(redis.Redis(port=server)) as anybody, pytest.raises(redis.AuthenticationError):
        anybody.ping()
