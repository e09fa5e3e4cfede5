"""Real browsers, and a small web server for the pages beside this file.

One browser serves all tests of a module (they get a page of their own), so these tests share an event loop:
``pytestmark = pytest.mark.asyncio(loop_scope="session")``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import pytest_asyncio
from playing import Deal, dealing

from webgym.errors import BrowserError
from webgym_workers.browser.chromium import BrowserOptions, ChromiumProcess
from webgym_workers.browser.find import find_chromium
from webgym_workers.browser.page import Page

PAGES = Path(__file__).parent / "pages"


@pytest.fixture(scope="session")
def chromium() -> Path:
    try:
        return find_chromium()
    except BrowserError as error:
        pytest.skip(str(error))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def process(chromium: Path) -> AsyncIterator[ChromiumProcess]:
    browser = await ChromiumProcess.launch(BrowserOptions())
    yield browser
    await browser.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def page(process: ChromiumProcess) -> AsyncIterator[Page]:
    page = await Page.open(process.client)
    yield page
    await page.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def deal(process: ChromiumProcess) -> AsyncIterator[Deal]:
    """Episodes on pages written in the test: ``await deal(html, goal)``."""
    async with dealing(process.client) as deal:
        yield deal


@pytest_asyncio.fixture(loop_scope="session")
async def site() -> AsyncIterator[str]:
    """Address of a server for ``pages/``. ``/slow?ms=N`` answers ``done`` after that time."""
    async with serving() as address:
        yield address


@pytest_asyncio.fixture(loop_scope="session")
async def other_site() -> AsyncIterator[str]:
    """Address of another such server: another origin."""
    async with serving() as address:
        yield address


@asynccontextmanager
async def serving() -> AsyncIterator[str]:
    answering: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        answering.add(task)
        try:
            request = await reader.readuntil(b"\r\n\r\n")
            url = urlsplit(request.split(b" ", 2)[1].decode())
            status, body, kind = HTTPStatus.OK, b"done", "text/plain"
            if url.path == "/slow":
                await asyncio.sleep(int(parse_qs(url.query)["ms"][0]) / 1000)
            elif url.path == "/empty":
                status = HTTPStatus.NO_CONTENT
            elif (file := PAGES / url.path.lstrip("/")).is_file():
                body, kind = file.read_bytes(), "text/html"
            else:
                status = HTTPStatus.NOT_FOUND
            head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}"
            writer.write(f"{head}\r\nConnection: close\r\n\r\n".encode() + body)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            answering.discard(task)
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    for task in answering:
        task.cancel()


@pytest.fixture
def pages() -> str:
    """Address of ``pages/`` as files."""
    return PAGES.as_uri()
