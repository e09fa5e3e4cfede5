"""The browsers' proxy as a server: it comes back when it ends, and clients that misbehave cost it nothing for long."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from webgym_workers.browser import dial, proxy, relay
from webgym_workers.browser.egress import EgressPolicy
from webgym_workers.browser.proxy import EgressProxy

PATIENCE = 20.0


@asynccontextmanager
async def echo() -> AsyncIterator[tuple[int, asyncio.Queue[bytes]]]:
    """A server that answers each line with itself: its port, and what it heard; empty where a client hung up."""
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            heard.put_nowait(line)
            writer.write(line)
        heard.put_nowait(b"")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], heard
    finally:
        server.close()


async def connect(proxied: EgressProxy) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", urlsplit(proxied.address).port)


async def tunnel(proxied: EgressProxy, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection through the proxy."""
    async with asyncio.timeout(PATIENCE):
        reader, writer = await connect(proxied)
        writer.write(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode())
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        return reader, writer


async def said(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: bytes) -> bytes:
    """What comes back for a line."""
    writer.write(text)
    return await asyncio.wait_for(reader.readline(), PATIENCE)


async def until_idle(proxied: EgressProxy) -> None:
    """Wait until nothing is served any more."""
    async with asyncio.timeout(PATIENCE):
        while proxied._served:
            await asyncio.sleep(0.01)


async def until_reopened(proxied: EgressProxy) -> None:
    """Wait until the proxy was opened again."""
    async with asyncio.timeout(PATIENCE):
        while not proxied.reopened:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("lost", ["server", "port"])
async def test_a_proxy_that_stopped_listening_listens_again_where_it_did(
    lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "HEALTH_SECONDS", 0.05)
    monkeypatch.setattr(proxy, "ANSWER_SECONDS", 0.3)
    async with echo() as (port, _), EgressProxy(EgressPolicy(), [f"http://127.0.0.1:{port}"]) as proxied:
        address = proxied.address
        standing = await tunnel(proxied, port)
        assert proxied._server is not None
        assert proxied._socket is not None
        if lost == "port":
            proxied._socket.close()
        proxied._server.close()
        await until_reopened(proxied)
        assert proxied.address == address
        assert await proxied.answers()
        assert await said(*standing, b"still there\n") == b"still there\n"
        assert await said(*await tunnel(proxied, port), b"new\n") == b"new\n"
    assert not await proxied.answers()


async def test_what_is_open_is_cut_without_a_complaint_when_the_proxy_closes() -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with echo() as (port, heard):
        async with EgressProxy(EgressPolicy(), [f"http://127.0.0.1:{port}"]) as proxied:
            reader, _ = await tunnel(proxied, port)
            silent, _ = await connect(proxied)
        for cut in (reader, silent):
            with pytest.raises((EOFError, ConnectionError)):
                await asyncio.wait_for(cut.readexactly(1), PATIENCE)
        assert await asyncio.wait_for(heard.get(), PATIENCE) == b""
    assert complaints == []


async def test_who_asks_between_two_servers_is_answered_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy, "HEALTH_SECONDS", 3600.0)
    async with echo() as (port, _), EgressProxy(EgressPolicy(), [f"http://127.0.0.1:{port}"]) as proxied:
        assert proxied._server is not None
        proxied._server.close()
        waiting = asyncio.create_task(tunnel(proxied, port))
        taken = socket.socket()
        with pytest.raises(OSError, match="in use"):
            taken.bind(("127.0.0.1", urlsplit(proxied.address).port))
        taken.close()
        await proxied._listen()
        assert await said(*await waiting, b"late\n") == b"late\n"


async def test_a_stranger_on_the_port_is_not_taken_for_the_proxy(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(proxy, "HEALTH_SECONDS", 0.05)
    async with EgressProxy(EgressPolicy()) as proxied, EgressProxy(EgressPolicy()) as stranger:
        port = urlsplit(proxied.address).port
        assert proxied._server is not None
        assert proxied._socket is not None
        proxied._socket.close()
        proxied._server.close()
        server = await asyncio.get_running_loop().create_server(stranger._protocol, "127.0.0.1", port)
        async with asyncio.timeout(PATIENCE):
            while not caplog.records:
                await asyncio.sleep(0.01)
        assert not await proxied.answers()
        assert proxied.reopened == 0
        server.close()
        await until_reopened(proxied)
        assert await proxied.answers()


SLOW = {
    "says nothing": b"",
    "never ends its head": b"GET http://127.0.0.1/ HTTP/1.1\r\nA: b\r\n",
    "has no end of fields": b"GET http://127.0.0.1/ HTTP/1.1\r\n" + b"A: b\r\n" * 20_000,
}


@pytest.mark.parametrize("sent", SLOW.values(), ids=SLOW)
async def test_a_client_without_a_request_is_cut_off(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy, "HEAD_SECONDS", 0.2)
    async with EgressProxy(EgressPolicy()) as proxied:
        reader, writer = await connect(proxied)
        writer.write(sent)
        with pytest.raises((EOFError, ConnectionError)):
            await asyncio.wait_for(reader.readexactly(1), PATIENCE)
        await until_idle(proxied)


@pytest.mark.parametrize(
    "line",
    [
        "GET / HTTP/1.1",
        "GET ftp://127.0.0.1/ HTTP/1.1",
        "GET http://127.0.0.1:99999/ HTTP/1.1",
        "GET http://[::1/ HTTP/1.1",
        "CONNECT :443 HTTP/1.1",
        "nonsense",
    ],
)
async def test_what_is_no_request_to_a_proxy_is_answered_so(line: str) -> None:
    async with EgressProxy(EgressPolicy()) as proxied:
        reader, writer = await connect(proxied)
        writer.write(f"{line}\r\n\r\n".encode())
        assert b" 400 " in await asyncio.wait_for(reader.readline(), PATIENCE)
        writer.close()


async def test_connections_are_counted_until_either_side_hangs_up() -> None:
    async with echo() as (port, heard), EgressProxy(EgressPolicy(), [f"http://127.0.0.1:{port}"]) as proxied:
        proxied._most = 2
        first, _ = await tunnel(proxied, port), await tunnel(proxied, port)
        reader, writer = await connect(proxied)
        assert b" 503 " in await asyncio.wait_for(reader.readline(), PATIENCE)
        writer.close()
        # A page that drops a request which its server never answers.
        first[1].close()
        assert await asyncio.wait_for(heard.get(), PATIENCE) == b""
        async with asyncio.timeout(PATIENCE):
            while len(proxied._served) > 1:
                await asyncio.sleep(0.01)
        assert await said(*await tunnel(proxied, port), b"room again\n") == b"room again\n"


async def test_a_page_that_hangs_up_ends_the_search_for_its_server() -> None:
    asked = asyncio.Event()

    async def resolve(host: str, port: int) -> list[str]:
        asked.set()
        await asyncio.Event().wait()
        return []

    async with EgressProxy(EgressPolicy(), resolve=resolve) as proxied:
        _, writer = await connect(proxied)
        writer.write(b"POST http://slow.example/ HTTP/1.1\r\nContent-Length: 9\r\n\r\nbody")
        await asyncio.wait_for(asked.wait(), PATIENCE)
        writer.close()
        await until_idle(proxied)


async def test_a_tunnel_that_moves_one_way_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "IDLE_SECONDS", 0.8)
    ticking: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ticking.append(writer)
        writer.write(await reader.readline())

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with EgressProxy(EgressPolicy(), [f"http://127.0.0.1:{port}"]) as proxied:
        reader, writer = await tunnel(proxied, port)
        async with asyncio.timeout(PATIENCE):
            while not ticking:
                await asyncio.sleep(0.01)
        loop = asyncio.get_running_loop()
        until = loop.time() + 1.0
        while loop.time() < until:
            ticking[0].write(b"tick\n")
            assert await asyncio.wait_for(reader.readline(), PATIENCE) == b"tick\n"
            await asyncio.sleep(0.01)
        assert await said(reader, writer, b"heard\n") == b"heard\n"
        # Now nobody says anything.
        assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
        await until_idle(proxied)
    server.close()


async def test_an_address_that_does_not_answer_holds_up_the_next_one_a_moment_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dial, "STAGGER_SECONDS", 0.01)
    really = asyncio.open_connection
    tried = []

    async def connection(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        tried.append(host)
        if host == "192.0.2.1":
            await asyncio.Event().wait()
        return await really(host, port)

    monkeypatch.setattr(asyncio, "open_connection", connection)
    async with echo() as (port, _):
        reader, writer = await asyncio.wait_for(dial.dial(["192.0.2.1", "127.0.0.1"], port), PATIENCE)
        assert await said(reader, writer, b"hi\n") == b"hi\n"
        assert tried == ["192.0.2.1", "127.0.0.1"]
        monkeypatch.setattr(dial, "DIAL_SECONDS", 0.05)
        with pytest.raises(TimeoutError):
            await dial.dial(["192.0.2.1"], port)
        with pytest.raises(ConnectionError):
            await dial.dial([], port)
        writer.close()


async def test_names_are_looked_up_and_literal_addresses_are_not() -> None:
    resolver = dial.Resolver()
    assert await resolver("0x7f.1", 80) == ["127.0.0.1"]
    assert await resolver("::ffff:10.0.0.1", 80) == ["::ffff:10.0.0.1"]
    assert "127.0.0.1" in await resolver("localhost", 80)
    for name in ("a..example", "a" * 70 + ".example"):
        with pytest.raises(OSError, match="no host can be called"):
            await resolver(name, 80)
    resolver.close()
    assert await resolver("127.1", 80) == ["127.0.0.1"]
    with pytest.raises(OSError, match="closed"):
        await resolver("localhost", 80)


def test_this_machine_is_told_from_others_by_its_routes() -> None:
    assert dial.is_here("127.0.0.1")
    assert dial.is_here("::ffff:127.0.0.1")
    assert not dial.is_here("192.0.2.1")
    assert not dial.is_here("no address")


def test_connections_leave_open_files_for_browsers(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    for soft, most in ((256, 64), (20_000, proxy.CONNECTIONS), (resource.RLIM_INFINITY, proxy.CONNECTIONS)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        assert proxy._most_connections() == most
