"""A way to the API server on which watches can be made to come too late."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
from aiohttp import web

from webgym_operator.api import connection

__all__ = ["Gateway"]

_NOT_PASSED_ON = frozenset({"connection", "host", "content-length", "transfer-encoding", "content-encoding"})


class Gateway:
    """Passes requests on to the server of KUBECONFIG; see :meth:`forget`.

    Attributes:
        kubeconfig: what leads through it.
        expired: how often the server said that a watch came too late, by path.
    """

    def __init__(self, folder: Path) -> None:
        self.kubeconfig = folder / "gateway.kubeconfig"
        self.expired: Counter[str] = Counter()
        self._info = connection()
        self._session: aiohttp.ClientSession | None = None
        self._forgotten: set[str] | None = None
        self._watches: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Gateway]:
        """Serve, on a port of this machine."""
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._serve)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        connector = aiohttp.TCPConnector(ssl=self._info.as_ssl_context(), limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, auto_decompress=False
        ) as session:
            self._session = session
            await runner.setup()
            try:
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                self._write_kubeconfig(runner.addresses[0][1])
                yield self
            finally:
                await runner.cleanup()

    def forget(self) -> None:
        """Break off all watches, and ask for the state of long ago when each is asked for again: once each."""
        self._forgotten = set()
        for watch in self._watches:
            watch.cancel()

    def _write_kubeconfig(self, port: int) -> None:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "gateway",
            "contexts": [{"name": "gateway", "context": {"cluster": "gateway", "user": "gateway"}}],
            "clusters": [{"name": "gateway", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "gateway", "user": {"token": "none"}}],
        }
        self.kubeconfig.write_text(json.dumps(config))

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        assert self._session is not None
        query = dict(request.query)
        watching = query.get("watch") == "true"
        if watching and self._forgotten is not None and request.path not in self._forgotten:
            self._forgotten.add(request.path)
            query["resourceVersion"] = "1"
        own = self._info.as_http_headers()
        given = {
            k: v for k, v in request.headers.items() if k.lower() not in {*_NOT_PASSED_ON, "authorization"}
        }
        async with self._session.request(
            request.method,
            self._info.server.rstrip("/") + request.path,
            params=query,
            data=await request.read(),
            headers={**given, **own},
        ) as answer:
            headers = {k: v for k, v in answer.headers.items() if k.lower() not in _NOT_PASSED_ON}
            response = web.StreamResponse(status=answer.status, headers=headers)
            await response.prepare(request)
            passing = asyncio.create_task(self._pass_on(answer, response, request.path if watching else ""))
            if watching:
                self._watches.add(passing)
            try:
                await asyncio.wait([passing])
            finally:
                passing.cancel()
                self._watches.discard(passing)
            return response

    async def _pass_on(
        self, answer: aiohttp.ClientResponse, response: web.StreamResponse, watched: str
    ) -> None:
        async for chunk in answer.content.iter_any():
            if watched and b'"code":410' in chunk:
                self.expired[watched] += 1
            await response.write(chunk)
        await response.write_eof()
