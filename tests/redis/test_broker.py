"""Connecting: what works, and the one line for what does not."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import redis
from tcp_server import PASSWORD, External, free_port, tls_front

from webgym.broker import (
    BrokerConfig,
    EmbeddedBroker,
    broker_errors,
    check,
    client_where,
    connect,
    connect_async,
    redact_url,
)
from webgym.errors import BrokerError, UsageError
from webgym.keys import Keys
from webgym.params import SyncParameterStore
from webgym.queue import EpisodeTask, SyncTaskQueue

BOB = {"username": "bob", "password": "bobs-password"}


def refusal(config: BrokerConfig, patience: float = 0.0) -> str:
    with pytest.raises(BrokerError) as caught:
        check(config, patience)
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) < 400
    for secret in (PASSWORD, "bobs-password", "eves-password", "wrong-password"):
        assert secret not in line
    return line


def test_the_embedded_server_is_fit_for_a_run(config: BrokerConfig) -> None:
    info = check(config)
    assert info.name in ("valkey", "redis")
    assert info.warnings == ()


def test_passwords_users_and_url_credentials_log_in(external: External) -> None:
    check(BrokerConfig(external.url(), password=PASSWORD))
    check(BrokerConfig(external.url(), **BOB))
    check(BrokerConfig(external.url(credentials="bob:bobs-password@")))
    # Everything in the URL percent-encoded, as it must be.
    check(BrokerConfig(external.url(credentials=":s3cr3t%2F%40%3Aword@")))


async def test_both_clients_speak_tls(external: External) -> None:
    ca = str(external.certificates / "ca.crt")
    config = BrokerConfig(external.url("rediss"), ca_file=ca, **BOB)
    check(config)
    aclient = connect_async(config)
    assert await aclient.ping()
    await aclient.aclose()


def test_a_client_certificate_is_shown_when_the_server_wants_one(external: External) -> None:
    folder = external.certificates
    config = BrokerConfig(external.url("rediss", external.mutual_port), ca_file=str(folder / "ca.crt"), **BOB)
    assert "redis.tls.certFile" in refusal(config)
    check(replace(config, cert_file=str(folder / "client.crt"), key_file=str(folder / "client.key")))


async def test_a_certificate_may_carry_another_name_than_the_host(external: External) -> None:
    with tls_front(external.certificates, external.port, certificate="named") as port:
        ca = str(external.certificates / "ca.crt")
        config = BrokerConfig(external.url("rediss", port), ca_file=ca, **BOB)
        assert "not trusted" in refusal(config)
        named = replace(config, server_name="redis.example")
        check(named)
        aclient = connect_async(named)
        assert await aclient.ping()
        await aclient.aclose()


def test_every_refusal_says_what_and_how_to_mend(external: External) -> None:
    url = external.url()
    assert "password" in refusal(BrokerConfig(url))
    assert "password" in refusal(BrokerConfig(url, username="bob", password="wrong-password"))
    assert "password" in refusal(BrokerConfig(url, username="nobody", password="wrong-password"))
    assert "grant" in refusal(BrokerConfig(url, username="eve", password="eves-password"))
    assert "grant" in refusal(BrokerConfig(url, username="mallory", password="mallorys-password"))
    other = str(external.certificates / "other.crt")
    assert "caFile" in refusal(BrokerConfig(external.url("rediss"), ca_file=other, **BOB))
    assert "caFile" in refusal(BrokerConfig(external.url("rediss"), **BOB))
    plain = BrokerConfig(external.url("rediss", external.port), connect_timeout=0.5, **BOB)
    assert "this port speaks TLS" in refusal(plain)
    assert "rediss://" in refusal(BrokerConfig(external.url("redis", external.tls_port), **BOB))
    assert "Connection refused" in refusal(BrokerConfig(f"redis://127.0.0.1:{free_port()}/0"))
    assert "No such file" in refusal(BrokerConfig("unix:///nonexistent/redis.sock"))
    assert "cannot be reached" in refusal(BrokerConfig("redis://no-such-host.invalid/0"))


@contextlib.contextmanager
def fake_server(answer: bytes) -> Iterator[int]:
    """Answers whatever comes with the same bytes; with none, never."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    threading.Thread(target=talk, args=(connection,), daemon=True).start()

        def talk(connection: socket.socket) -> None:
            with contextlib.suppress(OSError), connection:
                while connection.recv(4096):
                    connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]


def test_what_is_no_redis_is_told_apart() -> None:
    with fake_server(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        assert "not Redis" in refusal(BrokerConfig(f"redis://127.0.0.1:{port}"))
    with fake_server(b"") as port:
        started = time.monotonic()
        config = BrokerConfig(f"redis://127.0.0.1:{port}", connect_timeout=0.3)
        assert "does not answer" in refusal(config)
        assert time.monotonic() - started < 5


def test_checking_waits_for_a_server_that_is_just_starting() -> None:
    port = free_port()
    answers = b"+PONG\r\n"
    found: list[str] = []

    def look() -> None:
        found.append(refusal(BrokerConfig(f"redis://127.0.0.1:{port}"), patience=1.0))

    thread = threading.Thread(target=look)
    thread.start()
    with socket.create_server(("127.0.0.1", port)) as listener:
        listener.settimeout(5)
        connection, _ = listener.accept()
        connection.sendall(answers)
        connection.close()
    thread.join()
    assert found  # It connected once there was a listener; what it met there is no Redis.


def test_a_limited_user_can_run_everything(external: External, keys: Keys) -> None:
    config = BrokerConfig(external.url(), **BOB)
    with contextlib.closing(connect(config)) as client:
        queue = SyncTaskQueue(client, keys)
        assert queue.add([EpisodeTask("a", "t")]) == 1
        assert queue.lease("w", 1, 10)[0].episode == "a"
        store = SyncParameterStore(client, keys)
        store.publish(1, 1, {"x": np.ones(3, np.float32)}, "h")
        assert store.wait_newer(0, 5) == 1
        assert store.fetch().version == 1
        store.close()


def test_operations_fail_with_one_line_too(external: External, keys: Keys) -> None:
    config = BrokerConfig(external.url(), username="eve", password="eves-password")
    with contextlib.closing(connect(config)) as client:
        with pytest.raises(BrokerError, match="grant"):
            SyncTaskQueue(client, keys).add([EpisodeTask("a", "t")])
        with pytest.raises(BrokerError, match="grant"):
            SyncParameterStore(client, keys).publish(1, 1, {"x": np.ones(3, np.float32)}, "h")


async def test_credentials_are_in_no_repr(external: External) -> None:
    config = BrokerConfig(external.url(credentials=":s3cr3t%2F%40%3Aword@"))
    aclient = connect_async(config)
    with contextlib.closing(connect(config)) as client:
        client.ping()
        for thing in (config, client, client.connection_pool, aclient, aclient.connection_pool):
            assert "s3cr3t" not in repr(thing)
            assert "s3cr3t" not in str(thing)
        assert client_where(client) == f"redis://127.0.0.1:{external.port}"
    await aclient.aclose()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("redis://:secret@host", "redis://:***@host"),
        ("rediss://bob:se/cr@et@host:1/2", "rediss://bob:***@host:1/2"),
        ("unix://bob@/run/redis.sock?password=secret", "unix://bob@/run/redis.sock"),
        ("redis://[::1]:6379", "redis://[::1]:6379"),
        ("secret", "(malformed URL)"),
    ],
)
def test_urls_are_shown_without_secrets(url: str, shown: str) -> None:
    assert redact_url(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:6379",
        "http://localhost",
        "redis://",
        "redis://host:99999",
        "redis://host:port",
        "redis://host/db",
        "redis://host?password=secret",
        "unix://",
        "unix://host/path",
        "redis://[::1",
    ],
)
def test_malformed_urls_are_usage_errors(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        BrokerConfig(url)
    assert "secret" not in str(caught.value)


def test_missing_certificate_files_are_usage_errors() -> None:
    with pytest.raises(UsageError, match="ca file /nonexistent"):
        BrokerConfig("rediss://host", ca_file="/nonexistent/ca.crt")


def test_full_memory_is_named() -> None:
    def fill(client: redis.Redis) -> None:
        with broker_errors("here"):
            for i in range(100):
                client.set(f"webgym:{i}", b"x" * 100_000)

    with (
        EmbeddedBroker(max_memory=4 * 1024 * 1024) as small,
        contextlib.closing(connect(BrokerConfig(small.url))) as client,
    ):
        with pytest.raises(BrokerError, match="memory is full"):
            fill(client)
        assert client.get("webgym:0")
