"""A browser that is reached over a websocket, through a proxy that cuts the connection or refuses it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from webgym.errors import BrowserError
from webgym_workers.browser.faults import BrowserGone, ConnectionLost, TargetClosed
from webgym_workers.browser.options import BrowserOptions
from webgym_workers.browser.page import Page
from webgym_workers.browser.pool import BrowserPool
from webgym_workers.browser.remote import RemoteBrowser
from webgym_workers.frames.ring import FrameRing
from webgym_workers.frames.source import open_frames

pytestmark = pytest.mark.asyncio(loop_scope="session")

FLAGS = (
    "--headless --remote-debugging-port=0 --no-sandbox --disable-background-networking --disable-component-update "
    "--disable-sync --no-first-run --disable-quic --disable-gpu --disable-dev-shm-usage"
).split()


class Proxy:
    """Forwards TCP to a port, as long as it is told to."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self._flows: set[asyncio.Task[None]] = set()
        self.port = 0
        self.accepted = 0

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def refuse(self) -> None:
        """Take no further connections."""
        if self._server is not None:
            self._server.close()
        self.cut()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        there = await asyncio.open_connection("127.0.0.1", self._to)
        self._writers += [writer, there[1]]
        for source, sink in ((reader, there[1]), (there[0], writer)):
            flow = asyncio.create_task(self._flow(source, sink))
            self._flows.add(flow)
            flow.add_done_callback(self._flows.discard)

    async def _flow(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(1 << 16):
                sink.write(data)
                await sink.drain()
        sink.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def port(chromium: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[int]:
    """Of a Chromium that somebody else has started."""
    profile = tmp_path_factory.mktemp("elsewhere")
    process = await asyncio.create_subprocess_exec(
        chromium, *FLAGS, f"--user-data-dir={profile}", "about:blank", stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    async with asyncio.timeout(60):
        while b"DevTools listening on " not in (line := await process.stderr.readline()):
            assert line, "Chromium ended"
    drained = asyncio.create_task(process.stderr.read())
    yield int(line.split(b":")[2].split(b"/")[0])
    process.kill()
    await process.wait()
    await drained


@pytest_asyncio.fixture(loop_scope="session")
async def proxy(port: int) -> AsyncIterator[Proxy]:
    proxy = Proxy(port)
    await proxy.open()
    yield proxy
    await proxy.refuse()


def options(proxy: Proxy) -> BrowserOptions:
    return BrowserOptions(
        endpoint=f"http://127.0.0.1:{proxy.port}", width=640, height=400, timezone="Asia/Kolkata", locale="de"
    )


async def test_a_broken_connection_comes_back_with_everything_in_force(proxy: Proxy, pages: str) -> None:
    async with BrowserPool(options(proxy), 1) as pool, pool.browser(0) as browser:
        page = await browser.new_page(scripts=["globalThis.runs = (globalThis.runs ?? 0) + 1"])
        extra = await page.add_script("globalThis.extra = true")
        await page.navigate(f"{pages}/controls.html")
        await page.evaluate("globalThis.clicks = 0; addEventListener('mousedown', () => clicks++); 0")
        pending = asyncio.ensure_future(page.evaluate("clicks++, new Promise(() => {})", timeout=20))
        await asyncio.sleep(0)
        assert await page.evaluate("clicks") == 1
        proxy.cut()
        with pytest.raises(ConnectionLost):
            await pending
        # The same page goes on: what was pending was not done twice, and nothing is waited for in vain.
        assert await page.evaluate("clicks", timeout=20) == 1
        await page.click(5, 5)
        assert await page.evaluate("[clicks, runs, extra, innerWidth, innerHeight]") == [2, 1, True, 640, 400]
        assert (await page.settle(5.0)).reason == "quiet"
        # Documents from here on are like those before.
        await page.remove_script(extra)
        await page.navigate(f"{pages}/controls.html")
        told = await page.evaluate(
            "[runs, typeof extra, innerWidth, Intl.DateTimeFormat().resolvedOptions().timeZone, navigator.language,"
            " document.hasFocus(), typeof __webgym_settle]"
        )
        assert told == [1, "undefined", 640, "Asia/Calcutta", "de", True, "object"]
        assert pool.restarts == {}
        assert isinstance(browser.process, RemoteBrowser)
        assert browser.process.reconnects == 1


async def test_it_is_tried_until_the_port_takes_connections_again(proxy: Proxy) -> None:
    browser = await RemoteBrowser.connect(options(proxy), patience=60)
    page = await Page.open(browser.client)
    other = await Page.open(browser.client)
    await page.evaluate("globalThis.here = 1")
    await proxy.refuse()
    await until_lost(browser)
    waiting = asyncio.ensure_future(page.evaluate("here", timeout=60))
    elsewhere = await RemoteBrowser.connect(BrowserOptions(endpoint=f"http://127.0.0.1:{proxy._to}"))
    await elsewhere.client.browser.call("Target.closeTarget", {"targetId": target_of(other)})
    await elsewhere.stop()
    assert browser.alive
    await proxy.open()
    assert await waiting == 1
    # A tab that ended meanwhile is told to be so.
    with pytest.raises(TargetClosed):
        await other.evaluate("1", timeout=60)
    await browser.stop()


async def test_a_browser_that_stays_out_of_reach_is_gone(proxy: Proxy) -> None:
    browser = await RemoteBrowser.connect(options(proxy), patience=0.3)
    page = await Page.open(browser.client)
    await proxy.refuse()
    await until_lost(browser)
    with pytest.raises(BrowserGone, match=r"lost and not reached again in 0\.3 s: .*refused"):
        await page.evaluate("1", timeout=60)
    assert not browser.alive
    await browser.stop()
    # A new connection, as the pool makes one, finds out in one clear line.
    with pytest.raises(BrowserError, match=r"cannot reach the browser at http://127\.0\.0\.1:\d+: .*refused"):
        await RemoteBrowser.connect(options(proxy))


async def test_its_frames_come_by_screenshot_and_its_tabs_are_closed_in_the_end(
    proxy: Proxy, pages: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with BrowserPool(options(proxy), 1) as pool:
        async with pool.browser(0) as browser:
            page = await browser.new_page()
            await page.navigate(f"{pages}/controls.html")
            with caplog.at_level(logging.WARNING):
                frames = await open_frames(browser, page, FrameRing((224, 224, 3), 4))
            assert frames.way == "screenshot"
            assert f"the browser is elsewhere, at http://127.0.0.1:{proxy.port}" in caplog.text
            frame = await frames.take(None)
            assert frame.shape == (224, 224, 3)
            assert np.unique(frame).size > 2
        context = page.context
    async with BrowserPool(options(proxy), 1) as pool, pool.browser(0) as browser:
        told = await browser.process.client.browser.call("Target.getBrowserContexts")
        assert context not in told["browserContextIds"]


async def until_lost(browser: RemoteBrowser) -> None:
    async with asyncio.timeout(10):
        while browser.client.connected:
            await asyncio.sleep(0)


def target_of(page: Page) -> str:
    session = page.session
    return session.client.targets[session.id or ""]
