"""The browsers' own proxy: every connection of a page is judged here, by the address it is then made to."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from urllib.parse import urlsplit

from webgym_workers.browser.egress import EgressPolicy, Place, normal_host, place_of, refusal

__all__ = ["EgressProxy"]

LOG = logging.getLogger(__name__)
HEAD_BYTES = 65536
CHUNK_BYTES = 65536
HEAD_SECONDS = 30.0
CONNECT_SECONDS = 15.0
IDLE_SECONDS = 300.0
CONNECTIONS = 1024
HOSTS_LOGGED = 100
PLACES_REMEMBERED = 256


class EgressProxy:
    """An HTTP proxy on a loopback port: tunnels (CONNECT), and plain requests, one to a connection.

    Args:
        policy: What may be reached.
        start_pages: URLs of the tasks' own servers that are known already; others are :meth:`admit`-ted later.
        resolve: Looks up what addresses a host has; raises OSError where it has none.

    Attributes:
        policy: What may be reached by now.
        refused: Requests refused since the start.
    """

    def __init__(
        self,
        policy: EgressPolicy,
        start_pages: Sequence[str] = (),
        *,
        resolve: Callable[[str, int], Awaitable[list[str]]] | None = None,
    ) -> None:
        self.policy = policy
        self.refused = 0
        self._start_pages = start_pages
        self._resolve = resolve or _resolve
        self._refusals: OrderedDict[Place, str] = OrderedDict()
        self._logged: set[str] = set()
        self._served: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._port: int | None = None

    @property
    def address(self) -> str:
        """What Chromium is given (``http://127.0.0.1:PORT``)."""
        assert self._port is not None, "the proxy was not opened"
        return f"http://127.0.0.1:{self._port}"

    async def open(self) -> None:
        """Listen on a free loopback port, and admit the start pages.

        Raises:
            OSError: There is none.
        """
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=HEAD_BYTES)
        self._port = int(self._server.sockets[0].getsockname()[1])
        await self.admit(self._start_pages)

    async def admit(self, urls: Iterable[str] = (), sites: Iterable[str] = ()) -> None:
        """Let pages reach further own servers, by the addresses that they have now, and sites.

        A server whose name has no address yet is not admitted.
        """
        if more := [site for site in map(normal_host, sites) if site not in self.policy.sites]:
            self.policy = self.policy.with_sites(more)
        for url in urls:
            place = place_of(url)
            if place is None or place in self.policy.own:
                continue
            with contextlib.suppress(OSError):
                addresses = await self._resolve(*place)
                self.policy = self.policy.with_own(place, addresses)
                self._refusals.clear()

    def why(self, url: str) -> str | None:
        """Why the server of a URL was refused lately; None where it was not."""
        place = place_of(url)
        return None if place is None else self._refusals.get(place)

    async def close(self) -> None:
        """Stop listening and cut what is open. Browsers that go on reach nothing then."""
        if self._server is not None:
            self._server.close()
        for task in self._served:
            task.cancel()
        await asyncio.gather(*self._served, return_exceptions=True)

    async def __aenter__(self) -> EgressProxy:
        """Open it."""
        await self.open()
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close it."""
        await self.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._served.add(task)
        try:
            if len(self._served) > CONNECTIONS:
                await _answer(writer, "503 Service Unavailable", "too many connections")
            else:
                await self._serve(reader, writer)
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError, ValueError) as error:
            LOG.debug("a page's connection ended: %r", error)
        finally:
            self._served.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(HEAD_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        line, _, fields = head.partition(b"\r\n")
        method, target, version = line.decode("latin-1").split(" ")
        tunnel = method == "CONNECT"
        url = urlsplit(f"//{target}" if tunnel else target)
        if not url.hostname or (not tunnel and url.scheme != "http"):
            await _answer(writer, "400 Bad Request", "this is a proxy")
            return
        host, port = normal_host(url.hostname), url.port or (443 if tunnel else 80)
        why = refusal(self.policy, host, port, [])
        addresses: list[str] = []
        if why is None:
            try:
                addresses = await self._resolve(host, port)
            except OSError:
                await _answer(writer, "502 Bad Gateway", f"{host} has no address")
                return
            why = refusal(self.policy, host, port, addresses)
        if why is not None:
            self._count((host, port), why)
            await _answer(writer, "403 Forbidden", f"{host}:{port} is not reached: {why}")
            return
        connected = await _connect(addresses, port)
        if connected is None:
            await _answer(writer, "502 Bad Gateway", f"{host}:{port} does not answer")
            return
        far_reader, far_writer = connected
        try:
            if tunnel:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                path = (url.path or "/") + (f"?{url.query}" if url.query else "")
                far_writer.write(f"{method} {path} {version}\r\n".encode("latin-1") + _one_request(fields))
            await _relay(reader, writer, far_reader, far_writer)
        finally:
            far_writer.close()

    def _count(self, place: Place, why: str) -> None:
        host, _ = place
        self.refused += 1
        self._refusals[place] = f"{host} is refused: {why}"
        self._refusals.move_to_end(place)
        if len(self._refusals) > PLACES_REMEMBERED:
            self._refusals.popitem(last=False)
        if host not in self._logged and len(self._logged) < HOSTS_LOGGED:
            self._logged.add(host)
            LOG.warning("a browser asked for %s: refused, %s", host, why)


def _one_request(fields: bytes) -> bytes:
    """Header fields for the server, with what asks it to close after its answer.

    A second request on the connection could name another host, and would not be judged.
    """
    dropped = (b"connection:", b"proxy-connection:", b"proxy-authorization:", b"keep-alive:")
    lines = [line for line in fields.split(b"\r\n") if line]
    upgrade = any(line.lower().startswith(b"upgrade:") for line in lines)
    kept = [line for line in lines if not line.lower().startswith(dropped)]
    return b"\r\n".join([*kept, b"Connection: " + (b"Upgrade" if upgrade else b"close"), b"", b""])


async def _answer(writer: asyncio.StreamWriter, status: str, text: str) -> None:
    body = text.encode()
    writer.write(
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n".encode()
        + body
    )
    await writer.drain()


async def _resolve(host: str, port: int) -> list[str]:
    async with asyncio.timeout(CONNECT_SECONDS):
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


async def _connect(
    addresses: list[str], port: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
    for address in addresses:
        # An address, not the name: looked up again, the name could stand for another one by now.
        with contextlib.suppress(OSError):
            async with asyncio.timeout(CONNECT_SECONDS):
                return await asyncio.open_connection(address, port)
    return None


async def _relay(
    near: asyncio.StreamReader,
    near_writer: asyncio.StreamWriter,
    far: asyncio.StreamReader,
    far_writer: asyncio.StreamWriter,
) -> None:
    """Pass bytes both ways until the server is done; a browser that has sent all may still wait for its answer."""
    up = asyncio.ensure_future(_pump(near, far_writer))
    try:
        await _pump(far, near_writer)
    finally:
        up.cancel()
        await asyncio.gather(up, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        async with asyncio.timeout(IDLE_SECONDS):
            data = await reader.read(CHUNK_BYTES)
        if not data:
            break
        writer.write(data)
        async with asyncio.timeout(IDLE_SECONDS):
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()
