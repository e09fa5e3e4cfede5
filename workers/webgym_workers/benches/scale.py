"""``webgym bench scale``: page loads a second with few and with many browsers, and what they take of the machine."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from webgym.bench import BenchResult, Column
from webgym.errors import UsageError
from webgym_workers.benches.contest import Tally, check_positive, run_loop, take_turn

if TYPE_CHECKING:
    from webgym_workers.browser.options import DisplayMode

__all__ = ["ScaleBench", "browser_counts"]

COUNTS = (2, 3, 5, 10, 20, 50)
_COLUMNS = (
    Column("browsers", "browsers"),
    Column("per_second", "pages a second", 2),
    Column("median_ms", "one page, median, ms", 0),
    Column("p95_ms", "95 of 100 below, ms", 0),
    Column("cores", "busy cores", 2),
    Column("memory_mb", "memory, MB", 0),
    Column("memory_mb_each", "MB a browser", 0),
    Column("start_seconds", "all started after, s"),
    Column("alive", "alive at the end"),
    Column("failed", "failed"),
)


def browser_counts(text: str) -> tuple[int, ...]:
    """``2,5,20`` as numbers, ascending and each once.

    Raises:
        UsageError: It is no list of whole numbers above zero.
    """
    try:
        counts = sorted({int(part) for part in text.split(",")})
    except ValueError:
        counts = []
    if not counts or counts[0] < 1:
        raise UsageError(
            f"--browsers must be whole numbers above 0 with commas between, such as 2,5, not {text!r}"
        )
    return tuple(counts)


class ScaleBench:
    """Throughput by number of browsers."""

    help = "page loads a second with 2 to 50 browsers, each page 300 ms away, with CPU and memory"
    title = "Page loads a second by number of browsers"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        default = ",".join(map(str, COUNTS))
        parser.add_argument(
            "--browsers", default=default, metavar="N,N", help=f"numbers of browsers (default: {default})"
        )
        parser.add_argument(
            "--seconds",
            type=float,
            default=15.0,
            metavar="S",
            help="measurement of each number (default: 15)",
        )
        parser.add_argument(
            "--latency-ms", type=float, default=300.0, metavar="MS", help="wait of the server (default: 300)"
        )
        parser.add_argument(
            "--frames",
            action="store_true",
            help="a virtual display for each browser, and a frame of each page, 1080p to 224x224",
        )

    def run(self, args: argparse.Namespace) -> BenchResult:
        """Measure one number of browsers after the other.

        Raises:
            UsageError: An option is out of range.
            BrowserError: There is no Chromium, or no Xvfb with ``--frames``.
        """
        counts = browser_counts(args.browsers)
        check_positive(args, "seconds", "latency_ms")
        return run_loop(_measure(counts, args.seconds, args.latency_ms / 1e3, frames=args.frames))


@dataclass
class _Count:
    """What one number of browsers has shown."""

    browsers: int
    tally: Tally
    cores: float
    memory: int
    start_seconds: float
    alive: int
    restarts: int
    failures: list[str]

    def row(self) -> dict[str, Any]:
        return {
            "browsers": self.browsers,
            "per_second": round(self.tally.per_second, 3),
            "median_ms": round(self.tally.median_ms, 1),
            "p95_ms": round(self.tally.p95_ms, 1),
            "cores": round(self.cores, 3),
            "memory_mb": round(self.memory / 1e6, 1),
            "memory_mb_each": round(self.memory / 1e6 / self.browsers, 1),
            "start_seconds": round(self.start_seconds, 2),
            "alive": self.alive,
            "restarts": self.restarts,
            "pages": len(self.tally.seconds),
            "failed": len(self.failures),
        }


async def _measure(counts: tuple[int, ...], seconds: float, latency: float, *, frames: bool) -> BenchResult:
    from webgym_workers.benches.local_server import local_server

    found = []
    async with local_server(latency) as server:
        for count in counts:
            found.append(await _measure_one(server, count, seconds, frames=frames))
    return _result(found, latency, frames=frames)


async def _measure_one(server: str, browsers: int, seconds: float, *, frames: bool) -> _Count:
    from webgym_workers.benches.footprint import CpuMeter, tree_bytes
    from webgym_workers.browser.options import BrowserOptions
    from webgym_workers.browser.pool import BrowserPool

    display: DisplayMode = "Require" if frames else "None"
    options = BrowserOptions(width=1920, height=1080, display=display)
    failures: list[str] = []
    tally = Tally()
    async with AsyncExitStack() as stack:
        start = time.perf_counter()
        pool = await stack.enter_async_context(BrowserPool(options, browsers))
        await pool.ready()
        started = time.perf_counter() - start
        work = [_loading(pool, index, server, failures, frames=frames) for index in range(browsers)]
        # Once outside of the measurement: each browser has its tab and has shown a page.
        await asyncio.gather(*[piece() for piece in work])
        meter = CpuMeter()
        await take_turn(tally, work, seconds)
        cores = meter.cores()
        memory = await asyncio.to_thread(tree_bytes)
        return _Count(browsers, tally, cores, memory, started, pool.alive, pool.restarts.total(), failures)


def _loading(
    pool: Any, index: int, server: str, failures: list[str], *, frames: bool
) -> Callable[[], Awaitable[None]]:
    """Going to the next page and observing it, on one browser."""
    from webgym.schema import FRAME_SHAPE
    from webgym_workers.browser.faults import BrowserFault
    from webgym_workers.frames.ring import CELLS_PER_BROWSER, FrameRing
    from webgym_workers.frames.source import FrameSource, open_frames
    from webgym_workers.observer.framed import read_page
    from webgym_workers.observer.snapshot import PageSnapshot, observe_expression, observer_script

    number = index * 100_000
    ring = FrameRing(FRAME_SHAPE, CELLS_PER_BROWSER) if frames else None
    source: FrameSource | None = None

    async def load() -> None:
        nonlocal number, source
        number += 1
        try:
            async with pool.browser(index) as browser:
                if not browser.pages:
                    page = await browser.new_page(scripts=[observer_script()])
                    source = None if ring is None else await open_frames(browser, page, ring)
                page = browser.pages[0]
                await page.navigate(f"{server}/{number}")
                mark = source.mark() if source else "null"
                read = await read_page(page, f"({{page: {observe_expression()}, mark: {mark}}})", 1.0)
                snapshot = PageSnapshot.parse(read.value["page"])
                if source is not None:
                    await source.take(read.value["mark"])
                if f"Page {number}," not in snapshot.title:
                    failures.append(f"browser {index} shows {snapshot.title!r} in place of page {number}")
        except BrowserFault as fault:
            failures.append(f"browser {index}: {type(fault).__name__}: {fault}")

    return load


def _result(found: list[_Count], latency: float, *, frames: bool) -> BenchResult:
    from webgym_workers.benches.plot import line_plot

    by_number = {str(count.browsers): count for count in found}
    numbers = [count.browsers for count in found]
    picture = line_plot(
        f"Page loads, each page {latency * 1e3:.0f} ms away",
        "browsers",
        (
            ("pages a second", {"pages": (numbers, [count.tally.per_second for count in found])}),
            ("busy cores", {"cores": (numbers, [count.cores for count in found])}),
            ("memory, GB", {"memory": (numbers, [count.memory / 1e9 for count in found])}),
        ),
        marker="o",
    )
    failures = [failure for count in found for failure in count.failures]
    notes = [
        f"Each page comes from a local server that waits {latency * 1e3:.0f} ms before it answers. A page counts when "
        "it has loaded and come to rest and its DOM has been read"
        + (" and its frame made from the display." if frames else "; browsers are headless."),
        "Busy cores and memory are those of this process, the server and all browsers; memory that processes share "
        "counts once.",
    ]
    if failures:
        notes.append(f"Failed: {'; '.join(failures[:5])}{' ...' if len(failures) > 5 else ''}.")
    return BenchResult(
        figures={
            "per_second": {n: round(count.tally.per_second, 3) for n, count in by_number.items()},
            "failed": len(failures),
            "restarts": sum(count.restarts for count in found),
            "alive": {n: count.alive for n, count in by_number.items()},
            "cores": {n: round(count.cores, 3) for n, count in by_number.items()},
            "memory_bytes": {n: count.memory for n, count in by_number.items()},
        },
        runs=1,
        rows=[count.row() for count in found],
        columns=_COLUMNS,
        plotted="per_second",
        notes=notes,
        pictures={} if picture is None else {"scale.png": picture},
    )
