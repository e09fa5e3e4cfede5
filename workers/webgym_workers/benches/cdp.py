"""``webgym bench cdp``: the round trip of a command, on our pipe and websocket and through Playwright's CDP session."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from webgym.bench import BenchResult, Column
from webgym.errors import UsageError
from webgym_workers.benches.contest import run_loop

__all__ = ["CdpBench"]

_OURS = "WebGym: pipe"
_WEBSOCKET = "WebGym: websocket"
_PLAYWRIGHT = "Playwright: CDP session"
WARM_UP = 200
TURN = 20
"""Round trips of one way before the next has its turn."""
_LISTEN_SECONDS = 10.0
_COMMAND = "Runtime.evaluate", {"expression": "6*7", "returnByValue": True}
_COLUMNS = (
    Column("way", "way"),
    Column("median_ms", "median, ms", 3),
    Column("p95_ms", "95 of 100 below, ms", 3),
    Column("ratio", "times ours"),
    Column("large_ms", "a value of 100 kB, median, ms", 3),
)
_LARGE = "Runtime.evaluate", {"expression": "'x'.repeat(1e5)", "returnByValue": True}

_Send = Callable[[str, dict[str, Any]], Awaitable[Mapping[str, Any]]]


@dataclass
class _Way:
    """One way to a browser."""

    send: _Send
    seconds: list[float] = field(default_factory=list)
    large: list[float] = field(default_factory=list)

    async def turn(self, count: int) -> None:
        for _ in range(count):
            start = time.perf_counter()
            answer = await self.send(*_COMMAND)
            self.seconds.append(time.perf_counter() - start)
            assert answer["result"]["value"] == 42
        start = time.perf_counter()
        answer = await self.send(*_LARGE)
        self.large.append(time.perf_counter() - start)
        assert len(answer["result"]["value"]) == 100_000


class CdpBench:
    """Round trips of the DevTools protocol."""

    help = "round trip of Runtime.evaluate on the pipe, against Playwright's CDP session"
    title = "Round trip of Runtime.evaluate"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.add_argument(
            "--runs", type=int, default=2000, metavar="N", help="round trips of each way (default: 2000)"
        )

    def run(self, args: argparse.Namespace) -> BenchResult:
        """Measure all ways in turn, so that whatever else the machine does hits all of them.

        Raises:
            BrowserError: There is no Chromium.
        """
        if args.runs < TURN:
            raise UsageError(f"--runs must be at least {TURN}")
        return run_loop(_measure(args.runs))


async def _measure(runs: int) -> BenchResult:
    async with AsyncExitStack() as stack:
        ways = {
            _OURS: _Way(await _ours(stack)),
            _WEBSOCKET: _Way(await _websocket(stack)),
            _PLAYWRIGHT: _Way(await _playwright(stack)),
        }
        for way in ways.values():
            await way.turn(WARM_UP)
            way.seconds.clear()
            way.large.clear()
        for _ in range(runs // TURN):
            for way in ways.values():
                await way.turn(TURN)
    return _result(ways)


def _result(ways: Mapping[str, _Way]) -> BenchResult:
    medians = {name: statistics.median(way.seconds) * 1e3 for name, way in ways.items()}
    ours = medians[_OURS]
    rows = [
        {
            "way": name,
            "median_ms": round(medians[name], 4),
            "p95_ms": round(float(np.percentile(way.seconds, 95)) * 1e3, 4),
            "ratio": round(medians[name] / ours, 2),
            "large_ms": round(statistics.median(way.large) * 1e3, 4),
        }
        for name, way in ways.items()
    ]
    return BenchResult(
        figures={
            "ratio": round(medians[_PLAYWRIGHT] / ours, 2),
            "median_ms": round(ours, 4),
            "playwright_median_ms": round(medians[_PLAYWRIGHT], 4),
            "websocket_median_ms": round(medians[_WEBSOCKET], 4),
        },
        runs=len(ways[_OURS].seconds),
        rows=rows,
        columns=_COLUMNS,
        plotted="median_ms",
        notes=(
            f"Each way has a browser of its own, started from the same program; they take turns of {TURN} round trips "
            "on one event loop, one command at a time.",
        ),
    )


async def _ours(stack: AsyncExitStack) -> _Send:
    from webgym_workers.browser.options import BrowserOptions
    from webgym_workers.browser.pool import BrowserPool

    pool = await stack.enter_async_context(BrowserPool(BrowserOptions(), 1))
    browser = await stack.enter_async_context(pool.browser(0))
    return (await browser.new_page()).session.call


async def _websocket(stack: AsyncExitStack) -> _Send:
    from webgym_workers.browser.chromium import ChromiumProcess
    from webgym_workers.browser.options import BrowserOptions
    from webgym_workers.browser.pool import BrowserPool

    host = await ChromiumProcess.launch(BrowserOptions(extra_flags=("--remote-debugging-port=0",)))
    stack.push_async_callback(host.stop)
    async with asyncio.timeout(_LISTEN_SECONDS):
        told = await host.stderr.said(rb"DevTools listening on (ws://\S+)\s")
    options = BrowserOptions(endpoint=told[1].decode())
    pool = await stack.enter_async_context(BrowserPool(options, 1))
    browser = await stack.enter_async_context(pool.browser(0))
    return (await browser.new_page()).session.call


async def _playwright(stack: AsyncExitStack) -> _Send:
    from playwright.async_api import async_playwright

    from webgym_workers.browser.find import find_chromium

    playwright = await stack.enter_async_context(async_playwright())
    browser = await playwright.chromium.launch(executable_path=find_chromium())
    stack.push_async_callback(browser.close)
    page = await browser.new_page()
    session = await page.context.new_cdp_session(page)
    return session.send
