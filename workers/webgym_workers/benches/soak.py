"""``webgym bench soak``: thousands of resets over mixed pages, and whether memory grows or anything is left behind."""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from webgym.bench import BenchResult, Column
from webgym.errors import UsageError
from webgym_workers.benches.contest import check_positive, default_browsers, run_loop
from webgym_workers.benches.footprint import ZombieWatch
from webgym_workers.benches.local_pages import LOCAL_PAGES
from webgym_workers.benches.slope import Slope, fit_slope, stitch

if TYPE_CHECKING:
    from webgym_workers.browser.pool import BrowserPool
    from webgym_workers.seat import Seat

__all__ = ["Sample", "SoakBench", "growth", "resets"]

MINIWOB = (
    "click-button",
    "click-checkboxes",
    "click-collapsible-2",
    "click-dialog",
    "click-tab-2",
    "choose-date",
    "count-shape",
    "email-inbox",
    "enter-text",
    "login-user",
    "moving-items",
    "social-media",
    "use-autocomplete",
)
_LOCAL_TASK = f"{__package__}.local_pages:LocalPageTask"
LONGEST_STRETCH = 20
"""Resets on one page at most until another page takes its place."""
SAMPLES = 150
LEAST_RESETS = 10
"""Between two looks."""
LEAST_SAMPLES = 3
"""That warm-up and measurement need each."""
_SHORTEST = 2 * LEAST_SAMPLES * LEAST_RESETS
_REFERENCE = "miniwob.click-button"
"""All browsers show it, their garbage collected, when memory is looked at: what differs is what has piled up."""
_COLLECT_SECONDS = 10.0
_SETTLE_SECONDS = 5.0
"""How long what was ended may take to be gone, before it counts as left behind."""
_COLUMNS = (
    Column("resets", "resets"),
    Column("memory_mb", "memory, MB", 1),
    Column("browsers_mb", "browsers, MB", 1),
    Column("process_mb", "our process, MB", 1),
    Column("recycles", "browsers replaced"),
    Column("zombies", "zombies"),
)
_SHOWN = 20


@dataclass(frozen=True)
class Sample:
    """One look.

    Attributes:
        resets: Done so far.
        process: Bytes of our process.
        browsers: By slot: process id and bytes of its browser, display and all.
        recycles: Browsers replaced so far.
        zombies: Children that have ended and wait to be reaped.
    """

    resets: int
    process: int
    browsers: dict[int, tuple[int, int]]
    recycles: int
    zombies: int

    @property
    def total(self) -> int:
        """Bytes of all."""
        return self.process + sum(size for _, size in self.browsers.values())


class SoakBench:
    """Resets without end."""

    help = "20,000 resets over mixed pages: growth of memory, zombies, and what is left behind"
    title = "Memory over resets on mixed pages"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.add_argument(
            "--resets", type=int, default=20_000, metavar="N", help="how many (default: 20000)"
        )
        parser.add_argument(
            "--warm-up",
            type=int,
            metavar="N",
            help="resets before growth counts (default: a tenth, but at least what three looks take)",
        )
        parser.add_argument("--browsers", type=int, metavar="N", help="how many (default: 1.5 per core)")
        parser.add_argument("--seed", type=int, default=0, metavar="N", help="of pages and their order")
        parser.add_argument(
            "--no-frames", action="store_true", help="headless, without displays and frames in shared memory"
        )
        parser.add_argument(
            "--recycle-mb",
            type=int,
            metavar="MB",
            help="replace a browser above this size, as workers do (default: never, so that nothing hides growth)",
        )

    def run(self, args: argparse.Namespace) -> BenchResult:
        """Reset and look.

        Raises:
            UsageError: An option is out of range.
            BrowserError: There is no Chromium.
        """
        check_positive(args, "resets", "warm_up", "browsers", "recycle_mb")
        if args.resets < _SHORTEST:
            raise UsageError(
                f"--resets must be at least {_SHORTEST} to tell growth from noise, not {args.resets}"
            )
        every = max(LEAST_RESETS, args.resets // SAMPLES)
        warm_up = args.warm_up or max(args.resets // 10, LEAST_SAMPLES * every)
        if warm_up > args.resets - LEAST_SAMPLES * every:
            raise UsageError(
                f"--warm-up {warm_up} leaves too few of {args.resets} resets to measure growth by"
            )
        return run_loop(_Soak(args, every, warm_up).run())


def resets(seed: int) -> Iterator[tuple[str, dict[str, Any], int]]:
    """Task, parameters and page seed of each reset, without end: stretches on one page, then on another."""
    rng = random.Random(seed)
    pages: list[tuple[str, dict[str, Any]]] = [(f"miniwob.{name}", {}) for name in MINIWOB]
    pages += [(_LOCAL_TASK, {"page": page}) for page in LOCAL_PAGES]
    while True:
        task, params = rng.choice(pages)
        for _ in range(rng.randint(1, LONGEST_STRETCH)):
            yield task, params, rng.randrange(1 << 30)


def growth(samples: Sequence[Sample], warm_up: int) -> dict[str, Slope]:
    """MB per 1,000 resets after the warm-up: ``all``, of our ``process``, and of the ``browsers``.

    A browser that was replaced goes on where the one before it ended (:func:`~webgym_workers.benches.slope.stitch`).

    Raises:
        ValueError: Fewer than two samples after the warm-up.
    """
    browsers = stitch([sample.browsers for sample in samples])
    kept = [
        (s.resets / 1e3, s.process, b) for s, b in zip(samples, browsers, strict=True) if s.resets >= warm_up
    ]
    x = [at for at, _, _ in kept]
    return {
        "all": fit_slope(x, [(process + browser) / 1e6 for _, process, browser in kept]),
        "process": fit_slope(x, [process / 1e6 for _, process, _ in kept]),
        "browsers": fit_slope(x, [browser / 1e6 for _, _, browser in kept]),
    }


@dataclass
class _End:
    """What was there when all had ended."""

    zombies: int
    left: list[str] = field(default_factory=list)
    seconds: float = 0.0


class _Soak:
    """One soak."""

    def __init__(self, args: argparse.Namespace, every: int, warm_up: int) -> None:
        self._wanted: int = args.resets
        self._every, self._warm_up = every, warm_up
        self._browsers: int = args.browsers or default_browsers()
        self._frames = not args.no_frames
        self._memory_limit = None if args.recycle_mb is None else args.recycle_mb * 10**6
        self._seed: int = args.seed
        self._done = 0
        self._next_look = 0
        self._meeting = asyncio.Barrier(self._browsers)
        self._samples: list[Sample] = []
        self._watch = ZombieWatch()
        self._failures: list[str] = []

    async def run(self) -> BenchResult:
        from webgym.schema import FRAME_SHAPE, Schema
        from webgym_workers.benches.footprint import Leftovers
        from webgym_workers.browser.options import BrowserOptions
        from webgym_workers.browser.pool import BrowserPool
        from webgym_workers.seat import Seat

        leftovers = Leftovers()
        schema = Schema(frame=FRAME_SHAPE if self._frames else None)
        options = BrowserOptions(display="Prefer" if self._frames else "None")
        started = time.monotonic()
        async with BrowserPool(options, self._browsers, memory_limit=self._memory_limit) as pool:
            await pool.ready()
            async with asyncio.TaskGroup() as group:
                for index in range(self._browsers):
                    group.create_task(self._play(pool, Seat(pool, index, schema), index))
        end = await self._afterwards(leftovers)
        end.seconds = time.monotonic() - started
        return self._result(end, pool.restarts)

    async def _play(self, pool: BrowserPool, seat: Seat, index: int) -> None:
        for task, params, seed in resets(self._seed * 1009 + index):
            # Everybody sees that a look is due, for only the look itself puts the next one off: all come to meet.
            if self._done >= self._next_look:
                await self._reset(seat, _REFERENCE, {}, 0, collect=True)
                if await self._meeting.wait() == 0:
                    await self._look(pool)
                await self._meeting.wait()
            if self._done >= self._wanted:
                return
            self._done += 1
            await self._reset(seat, task, params, seed)

    async def _reset(
        self, seat: Seat, task: str, params: dict[str, Any], seed: int, *, collect: bool = False
    ) -> None:
        from webgym_workers.browser.faults import BrowserFault

        try:
            async with seat.episode(task, params) as episode:
                await episode.reset(seed)
                if collect:
                    await episode.page.session.call("HeapProfiler.collectGarbage", timeout=_COLLECT_SECONDS)
        except BrowserFault as fault:
            self._failures.append(f"{task}: {type(fault).__name__}: {fault}")

    async def _look(self, pool: BrowserPool) -> None:
        """Take a sample; all browsers show the same page and do nothing meanwhile."""
        from webgym_workers.benches.footprint import zombies

        gc.collect()
        self._watch.look(await asyncio.to_thread(zombies))
        sizes = await asyncio.to_thread(_sizes, pool)
        self._samples.append(Sample(self._done, *sizes, pool.restarts.total(), len(self._watch.stayed)))
        self._next_look = min(self._wanted, self._done + self._every)

    async def _afterwards(self, leftovers: Any) -> _End:
        """Zombies and names that are there when all browsers have ended, and stay."""
        from webgym_workers.benches.footprint import zombies

        deadline = time.monotonic() + _SETTLE_SECONDS
        while True:
            dead, left = await asyncio.to_thread(zombies), leftovers.left()
            if not (dead or left) or time.monotonic() > deadline:
                return _End(len(self._watch.stayed | dead), left)
            await asyncio.sleep(0.1)  # processes that are not our children and names tell nobody when they go

    def _result(self, end: _End, restarts: Any) -> BenchResult:
        slopes = growth(self._samples, self._warm_up)
        fitted = slopes["all"]
        recycles = sum(restarts.values())
        in_memory = [path for path in end.left if path.startswith("/dev/shm/")]
        picture = _picture(self._samples, fitted, self._warm_up)
        step = max(1, len(self._samples) // _SHOWN)
        notes = [
            f"{fitted.slope:+.2f} MB per 1,000 resets after the first {self._warm_up}, with a standard error of "
            f"{fitted.error:.2f}: our process {slopes['process'].slope:+.2f}, browsers "
            f"{slopes['browsers'].slope:+.2f}. Memory is looked at while all browsers show the same page, their "
            "garbage collected; what processes share counts once, and pages of programs, which others share, not.",
            f"{self._browsers} browsers{', frames from displays' if self._frames else ', headless'}; "
            f"{len(MINIWOB)} MiniWoB tasks and {len(LOCAL_PAGES)} local pages, up to {LONGEST_STRETCH} resets in a row "
            f"on one; {self._done} resets in {end.seconds:.0f} s.",
            f"Browsers replaced: {recycles}"
            + (f" ({', '.join(f'{n} {why}' for why, n in restarts.items())})" if recycles else "")
            + "; one that takes another's place counts on from where that one ended.",
            f"Left behind: {', '.join(end.left) if end.left else 'nothing in shared memory or temporary folders'}.",
        ]
        if self._failures:
            notes.append(f"Resets that failed: {len(self._failures)}, such as {self._failures[0]}.")
        return BenchResult(
            figures={
                "mb_per_1000_resets": round(fitted.slope, 3),
                "mb_per_1000_resets_error": round(fitted.error, 3),
                "mb_per_1000_resets_process": round(slopes["process"].slope, 3),
                "mb_per_1000_resets_browsers": round(slopes["browsers"].slope, 3),
                "zombies": end.zombies,
                "recycles": recycles,
                "failed": len(self._failures),
                "left_in_shared_memory": len(in_memory),
                "left_in_temporary_folders": len(end.left) - len(in_memory),
                "resets": self._done,
                "resets_per_second": round(self._done / end.seconds, 2),
            },
            runs=1,
            rows=[_row(sample) for sample in self._samples[::step]],
            columns=_COLUMNS,
            plotted="memory_mb",
            notes=notes,
            pictures={} if picture is None else {"soak.png": picture},
        )


def _sizes(pool: BrowserPool) -> tuple[int, dict[int, tuple[int, int]]]:
    """Bytes of our process, and of each browser that is there."""
    from webgym_workers.benches.footprint import tree_bytes
    from webgym_workers.browser.chromium import ChromiumProcess
    from webgym_workers.browser.faults import BrowserFault

    browsers = {}
    for index in range(pool.count):
        try:
            process = pool[index].process
        except BrowserFault:
            continue
        assert isinstance(process, ChromiumProcess)
        display = process.display
        size = sum(tree_bytes(one.pid, files=False) for one in (process, display) if one is not None)
        browsers[index] = process.pid, size
    return tree_bytes(descendants=False, files=False), browsers


def _row(sample: Sample) -> dict[str, Any]:
    return {
        "resets": sample.resets,
        "memory_mb": round(sample.total / 1e6, 2),
        "browsers_mb": round((sample.total - sample.process) / 1e6, 2),
        "process_mb": round(sample.process / 1e6, 2),
        "recycles": sample.recycles,
        "zombies": sample.zombies,
    }


def _picture(samples: Sequence[Sample], fitted: Slope, warm_up: int) -> bytes | None:
    from webgym_workers.benches.plot import line_plot

    x = [sample.resets for sample in samples]
    ends = [warm_up, samples[-1].resets]
    return line_plot(
        "Memory over resets on mixed pages",
        "resets",
        (
            (
                "all, MB",
                {
                    "all": (x, [sample.total / 1e6 for sample in samples]),
                    f"fit: {fitted.slope:+.2f} MB per 1,000 resets": (
                        ends,
                        [fitted.intercept + fitted.slope * end / 1e3 for end in ends],
                    ),
                },
            ),
            ("our process, MB", {"process": (x, [sample.process / 1e6 for sample in samples])}),
        ),
    )
