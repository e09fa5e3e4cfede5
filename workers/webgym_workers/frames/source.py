"""Where an episode's frames come from: the screen in shared memory, or a screenshot where there is none."""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from webgym.errors import BrowserError
from webgym_workers.browser.window import display_room
from webgym_workers.frames.calibration import calibrate
from webgym_workers.frames.ring import FrameRing
from webgym_workers.frames.screen import ScreenFrames, fence_script
from webgym_workers.frames.screenshot import ScreenshotFrames

if TYPE_CHECKING:
    from webgym_workers.browser.page import Page
    from webgym_workers.browser.slot import Browser

__all__ = ["FrameSource", "FrameWay", "open_frames"]

log = logging.getLogger(__name__)

FrameWay = Literal["shared-memory", "screenshot"]


class FrameSource(Protocol):
    """Frames of one page."""

    @property
    def way(self) -> FrameWay:
        """How the latest was made, or the first will be."""
        ...

    def mark(self) -> str:
        """A JavaScript expression to evaluate right after the page was read; its value goes to :meth:`take`."""
        ...

    async def take(self, mark: Any) -> NDArray[np.uint8]:
        """The page as it was when ``mark`` was evaluated, or later; a cell of the ring, RGB.

        Raises:
            BrowserFault: The page, the browser or its display failed meanwhile.
        """
        ...


async def open_frames(browser: Browser, page: Page, ring: FrameRing) -> FrameSource:
    """Frames of a page that was just opened and is still blank.

    Args:
        browser: Its browser; one with a virtual display gives frames from shared memory.
        page: The page.
        ring: Where the frames go; its shape is theirs.

    Raises:
        BrowserFault: The browser failed, or the page does not show on its display.
        BrowserError: The page is larger than its display.
    """
    process = browser.process
    display = process.display
    if display is None:
        _say_once(process.display_obstacle or "the browser was started without a virtual display")
        return ScreenshotFrames(page, ring)
    _check_size(browser, page)
    area = await calibrate(page, display, *page.viewport)
    await page.add_script(fence_script())
    return ScreenFrames(page, display, area, ring)


def _check_size(browser: Browser, page: Page) -> None:
    room = display_room(browser.options)
    if page.viewport[0] > room[0] or page.viewport[1] > room[1]:
        raise BrowserError(
            f"a page of {page.viewport[0]}x{page.viewport[1]} does not fit on its display, which has room for "
            f"{room[0]}x{room[1]}: set browser.width and browser.height to the page's size"
        )


@cache
def _say_once(why: str) -> None:
    log.warning("frames are made by screenshot, which takes ten times as long: %s", why)
