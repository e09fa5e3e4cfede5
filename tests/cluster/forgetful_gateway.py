"""A way to the API server on which watches can be made to come too late."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
from aiohttp import web

from webgym_operator.api import connection

__all__ = ["Gateway"]

_STATUS = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410}
_EXPIRED = {"type": "ERROR", "object": {**_STATUS, "message": "too old resource version: 1 (1000)"}}
"""What a server sends on a watch of what it no longer remembers."""


class Gateway:
    """Passes requests on to the server of KUBECONFIG; see :meth:`forget`.

    Attributes:
        kubeconfig: what leads through it.
        expired: paths of watches that were told that they came too late.
    """

    def __init__(self, folder: Path) -> None:
        self.kubeconfig = folder / "gateway.kubeconfig"
        self.expired: set[str] = set()
        self._info = connection()
        self._session: aiohttp.ClientSession | None = None
        self._forgetting = False
        self._watches: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Gateway]:
        """Serve, on a port of this machine."""
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._serve)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        connector = aiohttp.TCPConnector(ssl=self._info.as_ssl_context(), limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            self._session = session
            await runner.setup()
            try:
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                self._write_kubeconfig(runner.addresses[0][1])
                yield self
            finally:
                await runner.cleanup()

    def forget(self) -> None:
        """Break off all watches, and refuse each, once, when it is asked for again."""
        self._forgetting = True
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
        if watching and self._forgetting and request.path not in self.expired:
            self.expired.add(request.path)
            return web.Response(text=json.dumps(_EXPIRED) + "\n", content_type="application/json")
        headers = {"Accept": "application/json", **self._info.as_http_headers()}
        if request.can_read_body:
            headers["Content-Type"] = request.headers["Content-Type"]
        async with self._session.request(
            request.method,
            self._info.server.rstrip("/") + request.path,
            params=query,
            data=await request.read() or None,
            headers=headers,
        ) as answer:
            response = web.StreamResponse(status=answer.status)
            response.content_type = answer.content_type
            await response.prepare(request)
            passing = asyncio.create_task(self._pass_on(answer, response))
            if watching:
                self._watches.add(passing)
            try:
                await asyncio.wait([passing])
            finally:
                passing.cancel()
                self._watches.discard(passing)
            return response

    @staticmethod
    async def _pass_on(answer: aiohttp.ClientResponse, response: web.StreamResponse) -> None:
        async for chunk in answer.content.iter_any():
            await response.write(chunk)
        await response.write_eof()
