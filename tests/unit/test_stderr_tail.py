"""What Chromium says on stderr: its last is kept, and a line can be waited for."""

from __future__ import annotations

import asyncio

import pytest

from webgym.errors import BrowserError
from webgym_workers.browser.starter import STDERR_BYTES, StderrTail


async def test_a_line_is_waited_for_however_it_arrives() -> None:
    tail = StderrTail()
    tail.data_received(b"\nDevTools listening on ws://127.0.0.1:4")
    waiting = asyncio.create_task(tail.said(rb"listening on (\S+)\s"))
    await asyncio.sleep(0)
    assert not waiting.done()
    tail.data_received(b"1/devtools\n")
    assert (await waiting)[1] == b"ws://127.0.0.1:41/devtools"
    assert (await tail.said(b"DevTools"))[0] == b"DevTools"


async def test_a_browser_that_ends_without_the_line_is_told_with_its_cause() -> None:
    tail = StderrTail()
    waiting = asyncio.create_task(tail.said(b"listening"))
    await asyncio.sleep(0)
    tail.data_received(b"[1:1:ERROR:x.cc(1)] no room\n" + b" " * STDERR_BYTES + b"\n")
    tail.data_received(b"[1:1:ERROR:x.cc(1)] no display\n")
    tail.connection_lost(None)
    with pytest.raises(BrowserError, match="the browser has ended: no display"):
        await waiting
