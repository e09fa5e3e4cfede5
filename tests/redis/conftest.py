"""A real server for every test: the embedded one, and one on TCP with users and TLS in front of it."""

from __future__ import annotations

import contextlib
import subprocess
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest
import redis
import redis.asyncio
from tcp_server import (
    ACL,
    External,
    free_port,
    make_certificates,
    server_under_test,
    tls_front,
    wait_for_port,
)

from webgym.broker import BrokerConfig, EmbeddedBroker, connect, connect_async
from webgym.keys import Keys


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(server=server_under_test()) as running:
        yield running


@pytest.fixture
def config(broker: EmbeddedBroker) -> BrokerConfig:
    return BrokerConfig(broker.url)


@pytest.fixture
def keys() -> Keys:
    return Keys(uuid.uuid4().hex)


@pytest.fixture
def client(config: BrokerConfig) -> Iterator[redis.Redis]:
    with contextlib.closing(connect(config)) as made:
        yield made


@pytest.fixture
async def aclient(config: BrokerConfig) -> AsyncIterator[redis.asyncio.Redis]:
    made = connect_async(config)
    yield made
    await made.aclose()


@pytest.fixture(scope="session")
def external(tmp_path_factory: pytest.TempPathFactory) -> Iterator[External]:
    folder = tmp_path_factory.mktemp("external")
    make_certificates(folder)
    (folder / "users.acl").write_text(ACL)
    port = free_port()
    server = subprocess.Popen(
        [
            *(
                str(server_under_test()),
                "--port",
                str(port),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--dir",
                str(folder),
            ),
            *("--aclfile", str(folder / "users.acl")),
        ],
        stdout=(folder / "log").open("wb"),
        stderr=subprocess.STDOUT,
    )
    try:
        wait_for_port(port, server)
        with tls_front(folder, port) as plain, tls_front(folder, port, mutual=True) as mutual:
            yield External(port, plain, mutual, folder)
    finally:
        server.terminate()
        server.wait(10)
