"""``webgym bench steps``: a click, the page settled, its frame and its DOM, against the same through Playwright."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Protocol

from webgym.bench import BenchResult, Column
from webgym.errors import RunError
from webgym_workers.benches.contest import Tally, check_positive, default_browsers, run_loop, take_turn
from webgym_workers.benches.local_pages import BUTTONS, LOCAL_PAGES, page_url

if TYPE_CHECKING:
    from webgym_workers.episode import Episode

__all__ = ["StepsBench", "overall_rate"]

WIDTH, HEIGHT = 1920, 1080
_OURS = "WebGym"
_PLAYWRIGHT = "Playwright"
_TASK = f"{__package__}.local_pages:LocalPageTask"
_ENDLESS = 1 << 30
_COLUMNS = (
    Column("way", "way"),
    Column("per_minute", "interactions a minute", 0),
    Column("median_ms", "latency, median, ms"),
    Column("p95_ms", "95 of 100 below, ms"),
    Column("interactions", "interactions"),
    Column("lost", "clicks lost"),
)


class _Side(Protocol):
    """One way to interact, on several browsers."""

    async def prepare(self, page: str) -> None:
        """Load one of the pages in every browser."""
        ...

    @property
    def work(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """One interaction on each browser."""
        ...

    async def lost(self) -> int:
        """Clicks that the pages of this turn have not seen."""
        ...


class StepsBench:
    """Interactions by our engine against Playwright's."""

    help = (
        "click to settled observation with frame and DOM at 1080p, against Playwright with as many browsers"
    )
    title = "Click, settled page, frame and DOM at 1920x1080"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.add_argument(
            "--browsers", type=int, metavar="N", help="browsers of each side (default: 1.5 per core)"
        )
        parser.add_argument(
            "--rounds", type=int, default=2, metavar="N", help="turns of each side on each page (default: 2)"
        )
        parser.add_argument(
            "--seconds", type=float, default=8.0, metavar="S", help="length of a turn (default: 8)"
        )

    def run(self, args: argparse.Namespace) -> BenchResult:
        """Measure both sides in turns.

        Raises:
            UsageError: An option is out of range.
            BrowserError: There is no Chromium, or no Xvfb.
        """
        check_positive(args, "browsers", "rounds", "seconds")
        return run_loop(_measure(args.browsers or default_browsers(), args.rounds, args.seconds))


async def _measure(browsers: int, rounds: int, seconds: float) -> BenchResult:
    async with AsyncExitStack() as stack:
        sides: dict[str, _Side] = {
            _OURS: await _open_ours(stack, browsers),
            _PLAYWRIGHT: await _open_playwright(stack, browsers),
        }
        tallies = {(name, page): Tally() for page in LOCAL_PAGES for name in sides}
        lost = dict.fromkeys(tallies, 0)
        for _ in range(rounds):
            for (name, page), tally in tallies.items():
                side = sides[name]
                await side.prepare(page)
                # Once outside of the measurement: fonts, scripts and caches are those of a page in use.
                for piece in side.work:
                    await piece()
                await take_turn(tally, side.work, seconds)
                lost[name, page] += await side.lost()
    return _result(tallies, lost, browsers)


def overall_rate(rates: Sequence[float]) -> float:
    """Interactions a second where each page gets as many clicks: the harmonic mean of the rates on each of them."""
    return len(rates) / sum(1 / rate for rate in rates) if all(rates) else 0.0


def _result(
    tallies: Mapping[tuple[str, str], Tally], lost: Mapping[tuple[str, str], int], browsers: int
) -> BenchResult:
    def of(side: str) -> list[Tally]:
        return [tallies[side, page] for page in LOCAL_PAGES]

    ours, theirs = (overall_rate([t.per_second for t in of(side)]) for side in (_OURS, _PLAYWRIGHT))
    latency = {
        side: [seconds for tally in of(side) for seconds in tally.seconds] for side in (_OURS, _PLAYWRIGHT)
    }
    ratios = {
        page: round(a.per_second / b.per_second, 2) if b.per_second else 0.0
        for page, a, b in zip(LOCAL_PAGES, of(_OURS), of(_PLAYWRIGHT), strict=True)
    }
    ratio = ours / theirs if theirs else 0.0
    rows = [
        {
            "way": f"{name}, {page}",
            "per_minute": round(tally.per_second * 60, 1),
            "median_ms": round(tally.median_ms, 2),
            "p95_ms": round(tally.p95_ms, 2),
            "interactions": len(tally.seconds),
            "lost": lost[name, page],
        }
        for (name, page), tally in tallies.items()
    ]
    return BenchResult(
        figures={
            "ratio": round(ratio, 2),
            "ratio_by_page": ratios,
            "interactions_per_minute": round(ours * 60, 1),
            "median_ms": round(Tally(latency[_OURS]).median_ms, 2),
            "p95_ms": round(Tally(latency[_OURS]).p95_ms, 2),
            "playwright_median_ms": round(Tally(latency[_PLAYWRIGHT]).median_ms, 2),
            "playwright_p95_ms": round(Tally(latency[_PLAYWRIGHT]).p95_ms, 2),
            "browsers": browsers,
        },
        runs=len(of(_OURS)[0].rates) * len(LOCAL_PAGES),
        rows=rows,
        columns=_COLUMNS,
        plotted="per_minute",
        notes=(
            f"{ratio:.1f} times the throughput where each page gets as many clicks; by page "
            f"{', '.join(f'{page} {value:.1f}' for page, value in ratios.items())}. {browsers} browsers on each side, "
            "which take turns on the same local pages. A click changes most of shop and table, a third of form, one "
            "popup of menu and a few words of cart.",
            "Ours: find the element, click, wait until the page is at rest, read its key nodes, and the frame of that "
            "moment as 224x224 RGB. Playwright: page.click, page.screenshot (1080p PNG, not decoded), page.content "
            "(not parsed); it does not wait for the page to come to rest.",
        ),
    )


class _Ours:
    """Our engine: the step of an environment, display and all."""

    def __init__(self, episodes: Callable[[int, str], Awaitable[Episode]], browsers: int) -> None:
        self._open = episodes
        self._browsers = browsers
        self._seen: list[int] = []
        self._done: list[int] = []
        self._work: list[Callable[[], Awaitable[None]]] = []

    @property
    def work(self) -> Sequence[Callable[[], Awaitable[None]]]:
        return self._work

    async def prepare(self, page: str) -> None:
        self._seen, self._done = [0] * self._browsers, [0] * self._browsers
        self._work = [self._stepping(i, await self._open(i, page)) for i in range(self._browsers)]

    def _stepping(self, index: int, episode: Episode) -> Callable[[], Awaitable[None]]:
        from webgym.schema import Action, ActionKind

        async def step() -> None:
            number = self._done[index]
            self._done[index] += 1
            row = _buttons(episode)[number % BUTTONS]
            done = await episode.step(Action(ActionKind.CLICK, row))
            if done.invalid is not None:
                raise RunError(f"a click of the bench was refused: {done.invalid}")
            # The page counts its clicks, and the observation says how many it has seen.
            self._seen[index] = int(done.reward)

        return step

    async def lost(self) -> int:
        return sum(self._done) - sum(self._seen)


def _buttons(episode: Episode) -> list[int]:
    """Rows of the page's buttons in the latest observation."""
    rows = [row for row, node in enumerate(episode.view.nodes) if node.tag == "button"]
    if len(rows) < BUTTONS:
        raise RunError(f"the bench's page shows {len(rows)} buttons instead of {BUTTONS}")
    return rows


async def _open_ours(stack: AsyncExitStack, browsers: int) -> _Ours:
    from webgym.schema import FRAME_SHAPE, Schema
    from webgym_workers.browser.options import BrowserOptions
    from webgym_workers.browser.pool import BrowserPool
    from webgym_workers.seat import Seat

    schema = Schema(frame=FRAME_SHAPE)
    options = BrowserOptions(width=WIDTH, height=HEIGHT, display="Require")
    pool = await stack.enter_async_context(BrowserPool(options, browsers))
    await pool.ready()
    seats = [Seat(pool, i, schema) for i in range(browsers)]
    held = [await stack.enter_async_context(AsyncExitStack()) for _ in range(browsers)]

    async def episode(index: int, page: str) -> Episode:
        # The seat is held for a whole turn, as an actor holds it for an episode.
        await held[index].aclose()
        found = await held[index].enter_async_context(seats[index].episode(_TASK, {"page": page}))
        await found.reset(0, _ENDLESS)
        return found

    return _Ours(episode, browsers)


class _Playwright:
    """Playwright's asynchronous API."""

    def __init__(self, pages: Sequence[Any]) -> None:
        self._pages = pages
        self._done = [0] * len(pages)
        self._work = [self._stepping(i) for i in range(len(pages))]

    @property
    def work(self) -> Sequence[Callable[[], Awaitable[None]]]:
        return self._work

    async def prepare(self, page: str) -> None:
        self._done = [0] * len(self._pages)
        for tab in self._pages:
            await tab.goto(page_url(page))

    def _stepping(self, index: int) -> Callable[[], Awaitable[None]]:
        page = self._pages[index]

        async def step() -> None:
            number = self._done[index]
            self._done[index] += 1
            await page.click(f"#act-{number % BUTTONS}")
            await page.screenshot()
            await page.content()

        return step

    async def lost(self) -> int:
        return sum(self._done) - sum([int(await page.evaluate("clicks")) for page in self._pages])


async def _open_playwright(stack: AsyncExitStack, browsers: int) -> _Playwright:
    from playwright.async_api import async_playwright

    from webgym_workers.browser.find import find_chromium

    playwright = await stack.enter_async_context(async_playwright())
    pages = []
    for _ in range(browsers):
        browser = await playwright.chromium.launch(executable_path=find_chromium())
        stack.push_async_callback(browser.close)
        pages.append(await browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}))
    return _Playwright(pages)
