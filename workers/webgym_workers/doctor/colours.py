"""Do pictures of pages have the pages' colours, or are they black, by screenshot and from the screen's memory?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from webgym_workers.doctor.finding import Finding, Status
from webgym_workers.doctor.setting import Setting, page_url

__all__ = ["COLOURS", "check_screen", "check_screenshot", "judge_colours"]

COLOURS = (
    (255, 0, 0), (0, 255, 0), (0, 0, 255),
    (255, 255, 255), (18, 52, 86), (0, 0, 0),
    (255, 255, 0), (128, 128, 128), (200, 100, 50),
)  # fmt: skip
"""Of a page of three by three fields."""
SIDE = 3
EXACT = 2
"""Of 255: what pictures that are not compressed may be off by, in the middle of a field of one colour."""
COMPRESSED = 8
"""And those by JPEG."""


async def check_screenshot(setting: Setting) -> Finding:
    """The way that frames come by command."""
    from webgym.schema import FRAME_SHAPE
    from webgym_workers.frames.ring import FrameRing
    from webgym_workers.frames.screenshot import ScreenshotFrames

    async with setting.page() as page:
        await page.navigate(page_url("colours.html"))
        frames = ScreenshotFrames(page, FrameRing(FRAME_SHAPE, 1))
        read = await page.evaluate_settled(f"(paint({_list()}), {frames.mark()})", frames=2)
        return judge_colours(await frames.take(read.value), COMPRESSED, "by screenshot")


async def check_screen(setting: Setting) -> Finding:
    """The way that frames come from the memory of a virtual display."""
    from webgym.schema import FRAME_SHAPE
    from webgym_workers.browser.pool import BrowserPool
    from webgym_workers.frames.ring import FrameRing
    from webgym_workers.frames.source import open_frames

    async with BrowserPool(setting.options(display=True), 1) as pool, pool.browser(0) as browser:
        page = await browser.new_page()
        frames = await open_frames(browser, page, FrameRing(FRAME_SHAPE, 1))
        await page.navigate(page_url("colours.html"))
        read = await page.evaluate_settled(f"(paint({_list()}), {frames.mark()})")
        return judge_colours(await frames.take(read.value), EXACT, "from shared memory")


def _list() -> str:
    return str([list(colour) for colour in COLOURS])


def judge_colours(frame: NDArray[np.uint8], tolerance: int, way: str) -> Finding:
    """Whether a frame of the page of colours has these.

    Args:
        frame: uint8 (height, width, 3), RGB.
        tolerance: What a colour may be off by, of 255.
        way: How it was made, for the text.
    """
    height, width = frame.shape[:2]
    seen = [
        frame[height * (2 * row + 1) // (2 * SIDE), width * (2 * column + 1) // (2 * SIDE)].astype(int)
        for row in range(SIDE)
        for column in range(SIDE)
    ]
    off = [int(np.abs(a - np.array(b)).max()) for a, b in zip(seen, COLOURS, strict=True)]
    worst = max(range(len(off)), key=off.__getitem__)
    numbers = {"largest_difference": off[worst]}
    if not frame.any():
        return Finding(
            Status.FAILED,
            f"frames {way} are black",
            "set browser.frames to Screenshot" if "memory" in way else "try another release of Chromium",
            numbers,
        )
    if off[worst] > tolerance:
        shown = ", ".join(str(value) for value in seen[worst])
        wanted = ", ".join(str(value) for value in COLOURS[worst])
        return Finding(
            Status.FAILED,
            f"frames {way} show ({shown}) where the page is ({wanted})",
            "set browser.frames to Screenshot" if "memory" in way else "try another release of Chromium",
            numbers,
        )
    return Finding(
        Status.OK, f"frames {way} have the page's colours, to {off[worst]} of 255", numbers=numbers
    )
