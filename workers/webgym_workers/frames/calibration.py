"""Where on the screen the page is: painted in a known colour and looked for, not assumed.

There is no window manager, and what stands above the page (toolbar, bars that warn of a flag) depends on version,
flags and scale.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from webgym_workers.browser.faults import DisplayGone
from webgym_workers.frames.display import Display
from webgym_workers.frames.framebuffer import Framebuffer

if TYPE_CHECKING:
    from webgym_workers.browser.page import Page

__all__ = ["PageArea", "calibrate", "find_area"]

CALIBRATION_SECONDS = 5.0
"""Until the page must have shown up on its display; 0.05 s is usual, but fifty browsers on two cores start slowly."""

_PAINT = """color => {
  const cover = document.createElement('div');
  cover.style.cssText = `all: initial; position: fixed; inset: 0; z-index: 2147483647; background: ${color}`;
  document.documentElement.append(cover);
  globalThis.__webgym_cover = cover;
  return devicePixelRatio;
}"""
_UNPAINT = "(__webgym_cover.remove(), delete globalThis.__webgym_cover)"

_turns = count()


@dataclass(frozen=True, slots=True)
class PageArea:
    """The page's rectangle on the screen, in its pixels.

    Attributes:
        x: Left edge.
        y: Upper edge.
        width: Pixels.
        height: Pixels.
        scale: Pixels of the screen for one CSS pixel.
    """

    x: int
    y: int
    width: int
    height: int
    scale: float

    def at(self, x: float, y: float) -> tuple[int, int]:
        """The screen's pixel under a point of the viewport, given in CSS pixels."""
        return (
            self.x + min(self.width - 1, max(0, int(x * self.scale))),
            self.y + min(self.height - 1, max(0, int(y * self.scale))),
        )


async def calibrate(page: Page, display: Display, width: int, height: int) -> PageArea:
    """Find a page on its display. The page must be a blank one of ours: it is painted over for a moment.

    Args:
        page: The page, in front.
        display: Its browser's.
        width: Of the viewport, CSS pixels.
        height: Of the viewport, CSS pixels.

    Raises:
        DisplayGone: It does not show up, or not all of it.
        BrowserFault: The page failed meanwhile.
    """
    # Another colour each time, for the page before may still be on the screen.
    turn = next(_turns) % 97
    color = (173, 2 * turn + 1, 61)
    screen = display.framebuffer.layout
    ratio = await page.evaluate(_PAINT, f"rgb({color[0]} {color[1]} {color[2]})")
    loop = asyncio.get_running_loop()
    deadline = loop.time() + CALIBRATION_SECONDS
    area: PageArea | None = None
    while area is None:
        # Watched before it is looked at: what is drawn after the look wakes us.
        display.watch(0, 0, screen.width, screen.height)
        await display.sync()
        area = find_area(display.framebuffer, color, width, height, float(ratio))
        left = deadline - loop.time()
        if area is None and (left <= 0 or not await display.drawn(left)):
            raise DisplayGone(
                f"a page of {width}x{height} does not show up on its display of {screen.width}x{screen.height} pixels"
            )
    await page.evaluate(_UNPAINT)
    return area


def find_area(
    framebuffer: Framebuffer, color: tuple[int, int, int], width: int, height: int, ratio: float
) -> PageArea | None:
    """The rectangle of one colour on the screen, if it can be a viewport of ``width`` x ``height`` CSS pixels.

    None when there is none, or it has holes, or is not as large as the page thinks with its ``ratio`` of pixels to CSS
    pixels: the page is still being drawn, or does not fit on the screen.
    """
    hit = framebuffer.mask(color)
    rows, columns = np.flatnonzero(hit.any(axis=1)), np.flatnonzero(hit.any(axis=0))
    if not len(rows):
        return None
    x, y = int(columns[0]), int(rows[0])
    wide, high = int(columns[-1]) + 1 - x, int(rows[-1]) + 1 - y
    whole = np.count_nonzero(hit[y : y + high, x : x + wide]) == wide * high
    # Chromium may round either way where the product is no whole number, and cuts off a row where the page begins
    # between two: the toolbar above it is as high as the machine's fonts make it.
    if not whole or abs(wide - width * ratio) > 1 or abs(high - height * ratio) > 1:
        return None
    return PageArea(x, y, wide, high, wide / width)
