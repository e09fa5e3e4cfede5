"""The browsers' own proxy: every connection of a page is judged here, by the address it is then made to."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from webgym.printable import one_line
from webgym_workers.browser.dial import Resolver, dial, is_here
from webgym_workers.browser.egress import EgressPolicy, Place, normal_host, place_of, refusal
from webgym_workers.browser.relay import NearReader, hanging_up, relay

__all__ = ["EgressProxy"]

LOG = logging.getLogger(__name__)
HEAD_BYTES = 65536
HEAD_SECONDS = 30.0
CONNECTIONS = 1024
HOSTS_LOGGED = 100
PLACES_REMEMBERED = 256
HEALTH_SECONDS = 1.0
"""How often the proxy is asked whether it still answers."""
ANSWER_SECONDS = 2.0
"""One that does not answer for this long is opened again; where it was just slow, that costs nothing."""
_WELL = "204 No Content"


class EgressProxy:
    """An HTTP proxy on a loopback port: tunnels (CONNECT), and plain requests, one to a connection.

    It sees to it that it answers, and keeps its port for as long as it is open: if it stopped listening, it listens
    again where browsers look for it.

    Args:
        policy: What may be reached.
        start_pages: URLs of the tasks' own servers that are known already; others are :meth:`admit`-ted later.
        resolve: Looks up what addresses a host has; raises OSError where it has none.

    Attributes:
        policy: What may be reached by now.
        refused: Requests refused since the start.
        reopened: How often it did not answer and was opened again.
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
        self.reopened = 0
        self._start_pages = start_pages
        self._lookups = Resolver()
        self._resolve = resolve or self._lookups
        self._refusals: OrderedDict[Place, str] = OrderedDict()
        self._logged: set[str] = set()
        self._served: set[asyncio.Task[None]] = set()
        self._most = _most_connections()
        self._health_check = secrets.token_hex(8)
        self._server: asyncio.Server | None = None
        self._watching: asyncio.Task[None] | None = None
        # Ours beside the server's own descriptor of it: whatever ends the server, nobody else gets the port, and what
        # asks meanwhile waits.
        self._socket: socket.socket | None = None
        self._port = 0

    @property
    def address(self) -> str:
        """What Chromium is given (``http://127.0.0.1:PORT``)."""
        assert self._port, "the proxy was not opened"
        return f"http://127.0.0.1:{self._port}"

    async def open(self) -> None:
        """Listen on a free loopback port, and admit the start pages.

        Raises:
            OSError: There is none.
        """
        await self._listen()
        self._watching = asyncio.create_task(self._watch(), name="egress-proxy")
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

    async def answers(self) -> bool:
        """Whether who connects to :attr:`address` now reaches this proxy."""
        if len(self._served) > self._most:
            return True
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                async with hanging_up(writer):
                    writer.write(f"GET {self._health_check} HTTP/1.1\r\n\r\n".encode())
                    return _WELL.encode() in await reader.readline()
        except (OSError, ValueError):
            return False

    async def close(self) -> None:
        """Stop listening and cut what is open. Browsers that go on reach nothing then."""
        if self._watching is not None:
            self._watching.cancel()
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._socket is not None:
            self._socket.close()
        ending = [*self._served, *([self._watching] if self._watching else [])]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        self._lookups.close()

    async def __aenter__(self) -> EgressProxy:
        """Open it."""
        await self.open()
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close it."""
        await self.close()

    async def _listen(self) -> None:
        """Listen, on the same port if there was one; connections that stand go on.

        Raises:
            OSError: The port is somebody else's.
        """
        if self._socket is None or not _listens(self._socket, self._port):
            if self._socket is not None:
                # Somebody has closed it behind our back: its number may be another file's by now.
                self._socket.detach()
            self._socket = socket.create_server(("127.0.0.1", self._port), backlog=CONNECTIONS)
            self._port = int(self._socket.getsockname()[1])
        loop = asyncio.get_running_loop()
        fresh = await loop.create_server(self._protocol, sock=self._socket.dup(), backlog=CONNECTIONS)
        former, self._server = self._server, fresh
        if former is not None:
            former.close()

    async def _watch(self) -> None:
        trouble = ""
        while True:
            await asyncio.sleep(HEALTH_SECONDS)
            if await self.answers():
                trouble = ""
                continue
            try:
                await self._listen()
            except OSError as error:
                if trouble != (trouble := str(error)):
                    LOG.error("the browsers' proxy at %s does not answer: %s", self.address, trouble)
            else:
                self.reopened += 1
                LOG.warning("the browsers' proxy at %s did not answer: opened again", self.address)

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        reader = NearReader(limit=HEAD_BYTES)

        def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # In a task of our own: what the protocol would make of a coroutine complains when it is cancelled.
            def ended(task: asyncio.Task[None]) -> None:
                self._served.discard(task)
                # Does nothing but where the task was cancelled before it began.
                writer.transport.abort()

            task = asyncio.create_task(self._accept(reader, writer))
            self._served.add(task)
            task.add_done_callback(ended)

        return asyncio.StreamReaderProtocol(reader, accept)

    async def _accept(self, reader: NearReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with hanging_up(writer):
                if self._server is None:
                    writer.transport.abort()
                elif len(self._served) > self._most:
                    await _answer(writer, "503 Service Unavailable", "too many connections")
                else:
                    await self._serve(reader, writer)
        except (OSError, EOFError, asyncio.LimitOverrunError) as error:
            LOG.debug("a page's connection ended: %r", error)

    async def _serve(self, reader: NearReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(HEAD_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        asked = _Request.of(head)
        if asked is None:
            well = head.startswith(f"GET {self._health_check} ".encode())
            await _answer(writer, _WELL if well else "400 Bad Request", "" if well else "this is a proxy")
            return
        host, port = asked.host, asked.port
        async with reader.wanted():
            addresses: list[str] = []
            why = refusal(self.policy, host, port, [])
            if why is None:
                try:
                    addresses = await self._resolve(host, port)
                except OSError:
                    await _answer(writer, "502 Bad Gateway", f"{host} has no address")
                    return
                why = refusal(self.policy, host, port, addresses, here=set(filter(is_here, addresses)))
            if why is not None:
                self._count((host, port), why)
                await _answer(writer, "403 Forbidden", f"{host}:{port} is not reached: {why}")
                return
            self._refusals.pop((host, port), None)
            try:
                far = await dial(addresses, port)
            except OSError:
                await _answer(writer, "502 Bad Gateway", f"{host}:{port} does not answer")
                return
        async with hanging_up(far[1]):
            if asked.tunnel:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                far[1].write(asked.forwarded())
            await relay((reader, writer), far)

    def _count(self, place: Place, why: str) -> None:
        host, _ = place
        self.refused += 1
        self._refusals[place] = f"{host} is refused: {why}"
        self._refusals.move_to_end(place)
        if len(self._refusals) > PLACES_REMEMBERED:
            self._refusals.popitem(last=False)
        if host not in self._logged and len(self._logged) < HOSTS_LOGGED:
            self._logged.add(host)
            LOG.warning("a browser asked for %.200s: refused, %s", one_line(host), why)


class _Request(NamedTuple):
    """What a browser asks the proxy for."""

    method: str
    host: str
    port: int
    path: str
    version: str
    fields: bytes

    @classmethod
    def of(cls, head: bytes) -> _Request | None:
        """From the head of a request; None where it is not one for a proxy."""
        line, _, fields = head.partition(b"\r\n")
        try:
            method, target, version = line.decode("latin-1").split(" ")
            url = urlsplit(f"//{target}" if method == "CONNECT" else target)
            port = url.port
        except ValueError:
            return None
        if not url.hostname or url.scheme != ("" if method == "CONNECT" else "http"):
            return None
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        port = port or (443 if method == "CONNECT" else 80)
        return cls(method, normal_host(url.hostname), port, path, version, fields)

    @property
    def tunnel(self) -> bool:
        """Whether the browser speaks with the server itself, through us."""
        return self.method == "CONNECT"

    def forwarded(self) -> bytes:
        """The head as the server gets it, with what asks it to close after its answer.

        A second request on the connection could name another host, and would not be judged.
        """
        dropped = (b"connection:", b"proxy-connection:", b"proxy-authorization:", b"keep-alive:")
        lines = [line for line in self.fields.split(b"\r\n") if line]
        upgrade = any(line.lower().startswith(b"upgrade:") for line in lines)
        kept = [line for line in lines if not line.lower().startswith(dropped)]
        last = b"Connection: " + (b"Upgrade" if upgrade else b"close")
        line = f"{self.method} {self.path} {self.version}".encode("latin-1")
        return b"\r\n".join([line, *kept, last, b"", b""])


async def _answer(writer: asyncio.StreamWriter, status: str, text: str) -> None:
    body = text.encode()
    writer.write(
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n".encode()
        + body
    )
    await writer.drain()


def _listens(held: socket.socket, port: int) -> bool:
    try:
        listening = held.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        return bool(listening) and held.getsockname()[1] == port
    except OSError:
        return False


def _most_connections() -> int:
    """How many at the same time: each takes two open files, and browsers are started in this process, too."""
    try:
        import resource
    except ImportError:  # Windows
        return CONNECTIONS
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS if files == resource.RLIM_INFINITY else min(CONNECTIONS, max(1, files // 4))
