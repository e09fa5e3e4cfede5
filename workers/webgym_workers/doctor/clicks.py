"""Does a click go to what a picture of the page shows there?

Targets of one colour each are looked for in the picture, clicked in the middle of where they are seen, and the page
says where the click came. How far that is from the target's own middle holds all that may go wrong on the way: the
page's place on the screen, the scale of the picture, the way of the click through the browser.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from webgym_workers.doctor.finding import Finding, Number, Status
from webgym_workers.doctor.setting import Setting, page_url

if TYPE_CHECKING:
    from webgym_workers.browser.page import Page

__all__ = [
    "SCALES",
    "Target",
    "check_display_clicks",
    "check_headless_clicks",
    "colour_codes",
    "judge_clicks",
    "largest_offset",
    "seen_at",
    "targets",
]

SCALES = (1.0, 1.5, 2.0)
WIDTH, HEIGHT = 800, 600
COLUMNS, ROWS = 4, 3
SIZE = 14
MARGIN = 12
"""CSS pixels from the page's edge to the middle of the outer targets."""
TOLERANCE = 1.0
"""CSS pixels that a click may be off by: half a pixel of the picture, and half of the page's."""


class Target(NamedTuple):
    """A square to click: its middle in CSS pixels, and its colour, which no other has."""

    x: int
    y: int
    colour: tuple[int, int, int]


def targets() -> list[Target]:
    """Targets all over the page, up to its edges."""
    return [
        Target(
            MARGIN + column * (WIDTH - 2 * MARGIN) // (COLUMNS - 1),
            MARGIN + row * (HEIGHT - 2 * MARGIN) // (ROWS - 1),
            (20 + 60 * column, 30 + 80 * row, 140),
        )
        for row in range(ROWS)
        for column in range(COLUMNS)
    ]


async def check_headless_clicks(setting: Setting) -> Finding:
    """At each scale, by screenshots of a browser without a window."""
    from PIL import Image

    offsets: dict[float, float | None] = {}
    for scale in SCALES:
        async with setting.page(WIDTH, HEIGHT, scale) as page:
            await page.navigate(page_url("targets.html"))
            await _place(page)
            await page.evaluate_settled("0", frames=2)
            picture = np.asarray(Image.open(io.BytesIO(await page.screenshot())).convert("RGB"))
            offsets[scale] = await _click(page, picture, picture.shape[1] / WIDTH)
    return judge_clicks(offsets, "without a window")


async def check_display_clicks(setting: Setting) -> Finding:
    """At each scale, by the screen of a virtual display; its scale is Chromium's from the start."""
    from webgym_workers.browser.pool import BrowserPool
    from webgym_workers.frames.calibration import calibrate
    from webgym_workers.frames.ring import FrameRing
    from webgym_workers.frames.screen import ScreenFrames, fence_script

    offsets: dict[float, float | None] = {}
    for scale in SCALES:
        async with (
            BrowserPool(setting.options(scale=scale, display=True), 1) as pool,
            pool.browser(0) as browser,
        ):
            page = await browser.new_page(width=WIDTH, height=HEIGHT)
            display = browser.process.display
            assert display is not None
            area = await calibrate(page, display, WIDTH, HEIGHT)
            await page.add_script(fence_script())
            frames = ScreenFrames(page, display, area, FrameRing((1, 1, 3), 1))
            await page.navigate(page_url("targets.html"))
            await _place(page)
            read = await page.evaluate_settled(frames.mark())
            await frames.shown(marked=read.value is True)
            shown = display.framebuffer.pixels[area.y : area.y + area.height, area.x : area.x + area.width]
            picture = np.array(shown[..., list(display.framebuffer.layout.channels)])
            offsets[scale] = await _click(page, picture, area.scale)
    return judge_clicks(offsets, "on the virtual display")


async def _place(page: Page) -> None:
    placed = [{"x": t.x, "y": t.y, "colour": list(t.colour)} for t in targets()]
    await page.evaluate("(targets, size) => place(targets, size)", placed, SIZE)


async def _click(page: Page, picture: NDArray[np.uint8], scale: float) -> float | None:
    """Click all targets where the picture shows them; the largest offset in CSS pixels, None when one was missed."""
    codes = colour_codes(picture)
    for target in targets():
        where = seen_at(codes, target.colour, scale)
        if where is None:
            return None
        await page.click(*where)
    return largest_offset(await page.evaluate("hits"), targets())


def colour_codes(picture: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Each pixel of an RGB picture as one number, ``0xRRGGBB``."""
    channels = picture.astype(np.uint32)
    return np.asarray(channels[..., 0] << 16 | channels[..., 1] << 8 | channels[..., 2])


def seen_at(
    codes: NDArray[np.uint32], colour: tuple[int, int, int], scale: float
) -> tuple[float, float] | None:
    """The middle of what has a colour, in CSS pixels; None when nothing has.

    Args:
        codes: From :func:`colour_codes`, of the page alone.
        colour: RGB.
        scale: Pixels of the picture for one CSS pixel.
    """
    red, green, blue = colour
    hit = codes == np.uint32(red << 16 | green << 8 | blue)
    rows, columns = np.flatnonzero(hit.any(axis=1)), np.flatnonzero(hit.any(axis=0))
    if not len(rows):
        return None
    return (columns[0] + columns[-1] + 1) / 2 / scale, (rows[0] + rows[-1] + 1) / 2 / scale


def largest_offset(hits: Sequence[Sequence[float]], wanted: Sequence[Target]) -> float | None:
    """The largest distance, in CSS pixels, from a target's middle to where the page got the click meant for it.

    Args:
        hits: For each click the number of the target that it hit, or -1, and its place.
        wanted: The targets in the order in which they were clicked.

    Returns:
        None when a click did not arrive, or hit something else.
    """
    if len(hits) != len(wanted) or any(int(hit[0]) != index for index, hit in enumerate(hits)):
        return None
    return max(math.hypot(hit[1] - t.x, hit[2] - t.y) for hit, t in zip(hits, wanted, strict=True))


def judge_clicks(offsets: dict[float, float | None], way: str) -> Finding:
    """Whether clicks go where they should, at each scale.

    Args:
        offsets: The largest offset in CSS pixels by device scale factor; None is a target that was not hit.
        way: How the page is shown, for the text.
    """
    numbers: dict[str, Number] = {
        f"offset_pixels_at_{scale:g}": None if offset is None else round(offset, 3)
        for scale, offset in offsets.items()
    }
    wrong = [scale for scale, offset in offsets.items() if offset is None or offset > TOLERANCE]
    told = ", ".join(
        f"{'missed' if offset is None else f'{offset:.2f}'} at {scale:g}" for scale, offset in offsets.items()
    )
    found = f"{len(targets())} clicks {way}: off by at most, in pixels: {told}"
    if not wrong:
        return Finding(Status.OK, found, numbers=numbers)
    good: Any = [f"{scale:g}" for scale in offsets if scale not in wrong]
    mend = "use another release of Chromium"
    if good:
        mend = f"set browser.deviceScaleFactor to {' or '.join(good)}, or {mend}"
    return Finding(Status.FAILED, found, mend, numbers)
