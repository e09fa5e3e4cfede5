"""``webgym bench episodes``: MiniWoB click-test episodes a second, ours against BrowserGym's."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from webgym.bench import BenchResult, Column
from webgym_workers.benches.contest import Tally, check_positive, default_browsers, run_loop, take_turn

if TYPE_CHECKING:
    from webgym_workers.benches.browsergym import Played

__all__ = ["EpisodesBench"]

_TASK = "miniwob.click-test"
_COLUMNS = (
    Column("way", "way"),
    Column("per_second", "episodes a second", 2),
    Column("median_ms", "one episode, median, ms", 0),
    Column("episodes", "episodes"),
    Column("success", "success", 3),
)


@dataclass
class _Peers:
    """What BrowserGym has done."""

    tally: Tally = field(default_factory=Tally)
    successes: int = 0


class EpisodesBench:
    """Whole episodes against BrowserGym."""

    help = "MiniWoB click-test episodes a second, against BrowserGym (installed once into a cache folder)"
    title = "MiniWoB click-test, episodes a second"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.add_argument("--browsers", type=int, metavar="N", help="our browsers (default: 1.5 per core)")
        parser.add_argument(
            "--processes",
            type=int,
            default=1,
            metavar="N",
            help="BrowserGym environments, each in a process of its own (default: 1)",
        )
        parser.add_argument(
            "--rounds", type=int, default=4, metavar="N", help="turns of each side (default: 4)"
        )
        parser.add_argument(
            "--seconds", type=float, default=10.0, metavar="S", help="length of our turns (default: 10)"
        )
        parser.add_argument(
            "--episodes",
            type=int,
            default=4,
            metavar="N",
            help="episodes that each BrowserGym environment plays in a turn (default: 4)",
        )

    def run(self, args: argparse.Namespace) -> BenchResult:
        """Measure both sides in turns.

        Raises:
            UsageError: An option is out of range.
            RunError: BrowserGym cannot be installed or breaks.
            BrowserError: There is no Chromium.
        """
        from webgym_workers.benches.browsergym import browsergym_environment

        check_positive(args, "browsers", "processes", "rounds", "seconds", "episodes")
        python = browsergym_environment()
        return run_loop(_measure(args, python))


async def _measure(args: argparse.Namespace, python: Path) -> BenchResult:
    browsers = args.browsers or default_browsers()
    ours, successes, theirs = Tally(), [0] * browsers, _Peers()
    async with AsyncExitStack() as stack:
        play = await _open_peers(stack, python, args.processes)
        work = await _open_ours(stack, browsers, successes)
        # Once outside of the measurement: pages are loaded and browsers have started.
        await asyncio.gather(*[piece() for piece in work])
        await play(1)
        successes[:] = [0] * browsers
        for _ in range(args.rounds):
            await take_turn(ours, work, args.seconds)
            start = time.perf_counter()
            played = [one for group in await play(args.episodes) for one in group]
            elapsed = time.perf_counter() - start
            theirs.tally.elapsed += elapsed
            theirs.tally.rates.append(len(played) / elapsed)
            theirs.tally.seconds += [one.reset_seconds + one.step_seconds for one in played]
            theirs.successes += sum(one.success for one in played)
    return _result(ours, sum(successes), browsers, theirs, args.processes)


def _result(ours: Tally, successes: int, browsers: int, theirs: _Peers, processes: int) -> BenchResult:
    ratio = ours.per_second / theirs.tally.per_second
    ratios = [a / b for a, b in zip(ours.rates, theirs.tally.rates, strict=True)]
    rows = [
        {
            "way": way,
            "per_second": round(tally.per_second, 3),
            "median_ms": round(statistics.median(tally.seconds) * 1e3, 1),
            "episodes": len(tally.seconds),
            "success": round(good / len(tally.seconds), 4),
        }
        for way, tally, good in (
            (f"WebGym, {browsers} browsers", ours, successes),
            (
                f"BrowserGym, {processes} environment{'s' if processes > 1 else ''}",
                theirs.tally,
                theirs.successes,
            ),
        )
    ]
    return BenchResult(
        figures={
            "ratio": round(ratio, 1),
            "per_second": round(ours.per_second, 2),
            "browsergym_per_second": round(theirs.tally.per_second, 3),
            "browsers": browsers,
            "browsergym_environments": processes,
        },
        runs=len(ours.rates),
        rows=rows,
        columns=_COLUMNS,
        plotted="per_second",
        notes=(
            f"{ratio:.0f} times as many episodes; in single turns {min(ratios):.0f} to {max(ratios):.0f} times. The "
            "sides take turns and use the same Chromium and the same pages.",
            "An episode is a reset, an observation, a click on the page's button and the observation after it. "
            "BrowserGym runs as its documentation shows it, with its default observation (DOM, accessibility tree, "
            "screenshot) and its default waits; ours with its default observation, without a frame.",
        ),
    )


async def _open_ours(
    stack: AsyncExitStack, browsers: int, successes: list[int]
) -> Sequence[Callable[[], Awaitable[None]]]:
    """One episode on each of our browsers, by the way that actors go."""
    from webgym.schema import Action, ActionKind, Schema
    from webgym_workers.browser.options import BrowserOptions
    from webgym_workers.browser.pool import BrowserPool
    from webgym_workers.seat import Seat

    schema = Schema()
    pool = await stack.enter_async_context(BrowserPool(BrowserOptions(), browsers))
    await pool.ready()

    def playing(index: int) -> Callable[[], Awaitable[None]]:
        seat = Seat(pool, index, schema)
        seed = index

        async def play() -> None:
            nonlocal seed
            seed += browsers
            async with seat.episode(_TASK, {}) as episode:
                view = await episode.reset(seed)
                button = next(row for row, node in enumerate(view.nodes) if node.tag == "button")
                step = await episode.step(Action(ActionKind.CLICK, button))
                successes[index] += step.success and step.terminated

        return play

    return [playing(index) for index in range(browsers)]


async def _open_peers(
    stack: AsyncExitStack, python: Path, processes: int
) -> Callable[[int], Awaitable[list[list[Played]]]]:
    from importlib.resources import files

    from webgym_workers.benches.browsergym import BrowserGym
    from webgym_workers.browser.find import find_chromium

    pages = Path(str(files("miniwob"))) / "html" / "miniwob"
    program = find_chromium()
    peers = [
        await stack.enter_async_context(BrowserGym.open(python, program, pages, seed=1000 * number))
        for number in range(processes)
    ]

    async def play(episodes: int) -> list[list[Played]]:
        return list(await asyncio.gather(*[peer.play(episodes) for peer in peers]))

    return play
