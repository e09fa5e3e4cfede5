"""``webgym bench frames``: from a settled page to the picture in the policy's hands, ours and everybody else's way."""

from __future__ import annotations

import argparse
import asyncio
import base64
import io
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from webgym.bench import BenchResult, Column, check_counts

if TYPE_CHECKING:
    from torch import Tensor

    from webgym.schema import Schema
    from webgym_workers.browser.page import Page
    from webgym_workers.slots import ObservationSlots

__all__ = ["FramesBench"]

WIDTH, HEIGHT = 1920, 1080
WARM_UP = 3
_OURS = "shared memory"
_PLAYWRIGHT = "Playwright: PNG screenshot, decode, resize"
_COLUMNS = (
    Column("way", "way"),
    Column("median_ms", "median, ms"),
    Column("p95_ms", "95 of 100 below, ms"),
    Column("ratio", "times ours"),
    Column("change_ms", "from the change on, median, ms"),
)
_CDP: Mapping[str, dict[str, Any]] = {
    "CDP: PNG": {"format": "png"},
    "CDP: PNG, optimizeForSpeed": {"format": "png", "optimizeForSpeed": True},
    "CDP: JPEG": {"format": "jpeg", "quality": 80},
    "CDP: JPEG, optimizeForSpeed": {"format": "jpeg", "quality": 80, "optimizeForSpeed": True},
}
_SMALL = "CDP: JPEG made small by the browser (our fallback)"


@dataclass
class _Contender:
    """One way to a frame.

    ``turn`` changes the page and waits until it has settled, pixels and all; ``take`` is what is measured.
    """

    turn: Callable[[int], Awaitable[None]]
    take: Callable[[], Awaitable[Tensor]]
    seconds: list[float] = field(default_factory=list)
    with_change: list[float] = field(default_factory=list)
    last: NDArray[np.uint8] | None = None


class FramesBench:
    """Frames by shared memory against screenshots."""

    help = "settled 1080p page to 224x224 RGB in the policy's hands, against Playwright and CDP screenshots"
    title = "From a settled 1920x1080 page to a 224x224 RGB tensor"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.add_argument(
            "--runs", type=int, default=40, metavar="N", help="measurements of each way (default: 40)"
        )

    def run(self, args: argparse.Namespace) -> BenchResult:
        """Measure all ways in turn, so that whatever else the machine does hits all of them.

        Raises:
            BrowserError: There is no Chromium, or no Xvfb.
        """
        check_counts(args, "runs")
        return asyncio.run(_measure(args.runs))


async def _measure(runs: int) -> BenchResult:
    import torch

    from webgym.schema import FRAME_SHAPE, Schema
    from webgym_workers.slots import ObservationSlots

    torch.set_num_threads(1)
    schema = Schema(frame=FRAME_SHAPE)
    memory = ObservationSlots.create(schema, 1)
    async with AsyncExitStack() as stack:
        stack.callback(os.close, memory)
        page_file = stack.enter_context(as_file(files(__package__) / "frames.html"))
        url = page_file.absolute().as_uri()
        contenders: dict[str, _Contender] = {}
        # The inference process maps the same file; here both sides are in one process.
        contenders[_OURS] = await _ours(stack, url, schema, memory, ObservationSlots(schema, 1, memory))
        contenders[_PLAYWRIGHT] = await _playwright(stack, url)
        contenders.update(await _screenshots(stack, url))
        for number in range(WARM_UP + runs):
            for contender in contenders.values():
                start = time.perf_counter()
                await contender.turn(number)
                settled = time.perf_counter()
                tensor = await contender.take()
                end = time.perf_counter()
                contender.last = tensor.numpy().copy()
                del tensor
                if number >= WARM_UP:
                    contender.seconds.append(end - settled)
                    contender.with_change.append(end - start)
    return _result(contenders, runs)


def _result(contenders: Mapping[str, _Contender], runs: int) -> BenchResult:
    medians = {way: statistics.median(c.seconds) * 1e3 for way, c in contenders.items()}
    ours = medians[_OURS]
    rows = [
        {
            "way": way,
            "median_ms": round(medians[way], 3),
            "p95_ms": round(float(np.percentile(c.seconds, 95)) * 1e3, 3),
            "ratio": round(medians[way] / ours, 2),
            "change_ms": round(statistics.median(c.with_change) * 1e3, 3),
            "difference": _difference(c, contenders[_PLAYWRIGHT]),
        }
        for way, c in contenders.items()
    ]
    return BenchResult(
        figures={"ratio": round(medians[_PLAYWRIGHT] / ours, 2), "median_ms": round(ours, 3)},
        runs=runs,
        rows=rows,
        columns=_COLUMNS,
        plotted="median_ms",
        notes=(
            "Measured from the moment when the page has settled and its pixels are drawn; all of the page changes "
            "before each measurement, and the ways take turns. The last column also counts the script that changes the "
            "page, coming to rest, and waiting for the pixels.",
            "Each screenshot is decoded by Pillow and made small by OpenCV (by halves) as ours is. "
            f"Ours and Playwright's pictures differ by {rows[0]['difference']:.2f} of 255 on average.",
        ),
    )


def _difference(one: _Contender, other: _Contender) -> float:
    assert one.last is not None
    assert other.last is not None
    return round(float(np.abs(one.last.astype(int) - other.last.astype(int)).mean()), 3)


async def _ours(
    stack: AsyncExitStack, url: str, schema: Schema, memory: int, reader: ObservationSlots
) -> _Contender:
    import torch

    from webgym_workers.browser.options import BrowserOptions
    from webgym_workers.browser.pool import BrowserPool
    from webgym_workers.frames.screen import ScreenFrames
    from webgym_workers.frames.source import open_frames
    from webgym_workers.slots import ObservationSlots

    options = BrowserOptions(width=WIDTH, height=HEIGHT, display="Require")
    pool = await stack.enter_async_context(BrowserPool(options, 1))
    browser = await stack.enter_async_context(pool.browser(0))
    page = await browser.new_page()
    writer = ObservationSlots(schema, 1, memory)
    ring = writer.frames(0, 1)
    assert ring is not None
    frames = await open_frames(browser, page, ring)
    assert isinstance(frames, ScreenFrames)
    await page.navigate(url)
    observation = schema.empty()

    async def turn(number: int) -> None:
        read = await page.evaluate_settled(f"(turn({number}), {frames.mark()})")
        await frames.shown(marked=read.value is True)

    async def take() -> Tensor:
        frame = await ring.acquire()
        await frames.shoot(frame)
        observation["frame"] = frame
        writer.write(0, observation)
        return torch.from_numpy(reader.read([0])["frame"])[0]

    return _Contender(turn, take)


async def _playwright(stack: AsyncExitStack, url: str) -> _Contender:
    from playwright.async_api import async_playwright

    from webgym_workers.browser.find import find_chromium

    playwright = await stack.enter_async_context(async_playwright())
    browser = await playwright.chromium.launch(executable_path=find_chromium())
    stack.push_async_callback(browser.close)
    page = await browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
    await page.goto(url)

    async def turn(number: int) -> None:
        await page.evaluate(f"turn({number})")
        await page.evaluate(_TWO_FRAMES)

    async def take() -> Tensor:
        return _decoded(await page.screenshot())

    return _Contender(turn, take)


_TWO_FRAMES = "new Promise((f) => requestAnimationFrame(() => requestAnimationFrame(() => f(0))))"


async def _screenshots(stack: AsyncExitStack, url: str) -> dict[str, _Contender]:
    from webgym.schema import FRAME_SHAPE
    from webgym_workers.browser.options import BrowserOptions
    from webgym_workers.browser.pool import BrowserPool
    from webgym_workers.frames.screenshot import small_screenshot

    pool = await stack.enter_async_context(BrowserPool(BrowserOptions(width=WIDTH, height=HEIGHT), 1))
    browser = await stack.enter_async_context(pool.browser(0))
    page: Page = await browser.new_page()
    await page.navigate(url)

    async def turn(number: int) -> None:
        await page.evaluate_settled(f"turn({number})", frames=2)

    def way(parameters: dict[str, Any]) -> Callable[[], Awaitable[Tensor]]:
        async def take() -> Tensor:
            answer = await page.session.call("Page.captureScreenshot", parameters, timeout=10.0)
            return _decoded(base64.b64decode(answer["data"]))

        return take

    async def small() -> Tensor:
        return _decoded(await small_screenshot(page, FRAME_SHAPE))

    made = {name: _Contender(turn, way(parameters)) for name, parameters in _CDP.items()}
    return {**made, _SMALL: _Contender(turn, small)}


def _decoded(picture: bytes) -> Tensor:
    import torch
    from PIL import Image

    from webgym.schema import FRAME_SHAPE
    from webgym_workers.frames.resize import squeeze

    image = Image.open(io.BytesIO(picture)).convert("RGB")
    return torch.from_numpy(squeeze(np.asarray(image), (FRAME_SHAPE[1], FRAME_SHAPE[0])))
