"""Frames from the screen: of the page as it was read, whole, and made from the framebuffer in place.

Two questions are answered by what the display says, not by waiting a while.

*Is it there yet?* A page that has come to rest is on the screen some milliseconds later. After the page is read, a mark
in its corner gets another colour (``fence.js``); Chromium draws both in one frame or the mark in a later one, so the
page is there as soon as the mark is. What the display reports as drawn wakes us to look.

*Is it whole?* The framebuffer has no lock. A frame made between two equal damage serials is of one picture: Chromium
hands over a picture in one request, which the server carries out in one go. A page that repaints all the time may spoil
every try; then the server is held for the millisecond that a copy of the page takes.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from webgym_workers.browser.faults import DisplayGone
from webgym_workers.frames.calibration import PageArea
from webgym_workers.frames.display import Display
from webgym_workers.frames.resize import shrink
from webgym_workers.frames.ring import FrameRing
from webgym_workers.frames.screenshot import ScreenshotFrames

if TYPE_CHECKING:
    from webgym_workers.browser.page import Page
    from webgym_workers.frames.source import FrameWay

__all__ = ["FrameCounters", "ScreenFrames", "fence_script"]

log = logging.getLogger(__name__)

FENCE_SECONDS = 0.5
"""How long the mark may take to show up; 0.015 s is usual. A page that covers it, or is busy with a long script after
it was read, is taken as it is then; each miss in a row halves the patience for the next."""
LEAST_FENCE_SECONDS = 0.05
BLACK_SECONDS = 2.0
"""How long a page may be all black beyond that; on a busy machine the first picture of a page takes its time."""
QUIET_SECONDS = 0.034
"""Two frames: a page without a mark counts as drawn once nothing was drawn for so long."""
TRIES = 3
MARK_CSS_PIXELS = 2

_COLORS = ((255, 0, 0), (0, 255, 0), (255, 255, 0), (0, 0, 255), (255, 0, 255), (0, 255, 255))
"""Of the mark, one after the other. Each channel is all or nothing, so that the veil behind a dialog, drawn over the
mark, leaves it recognisable."""


@cache
def fence_script() -> str:
    """The script to install at document start."""
    return files(__package__).joinpath("fence.js").read_text("utf-8")


@dataclass
class FrameCounters:
    """How frames came about."""

    frames: int = 0
    retries: int = 0
    """Tries that the page spoilt by drawing meanwhile."""
    copies: int = 0
    """Frames made from a copy, under a grab."""
    misses: int = 0
    """Marks that did not show up in time."""


class ScreenFrames:
    """Frames of one page on a display.

    Args:
        page: The page, with :func:`fence_script` installed.
        display: Its browser's.
        area: Where the page is on it.
        ring: Where frames go.

    Attributes:
        way: How the latest frame was made: by screenshot while a popup is open.
    """

    def __init__(self, page: Page, display: Display, area: PageArea, ring: FrameRing) -> None:
        self.way: FrameWay = "shared-memory"
        self.display = display
        self.area = area
        self.counters = FrameCounters()
        self._page = page
        self._ring = ring
        self._turn = 0
        self._patience = FENCE_SECONDS
        self._restless = False
        self._screenshots = ScreenshotFrames(page, ring)
        self._away = False
        self._patch = max(1, round(MARK_CSS_PIXELS * area.scale))
        width, height = page.viewport
        # The middle of the mark.
        self._mark = area.at(width - MARK_CSS_PIXELS / 2, height - MARK_CSS_PIXELS / 2)
        # A view: it shows what is drawn later, too.
        self._pixels = display.framebuffer.pixels[area.y : area.y + area.height, area.x : area.x + area.width]

    def mark(self) -> str:
        """A JavaScript expression that paints the mark in its next colour; true when it could."""
        self._turn = (self._turn + 1) % len(_COLORS)
        red, green, blue = _COLORS[self._turn]
        return f"(typeof __webgym_fence==='function'&&__webgym_fence('rgb({red} {green} {blue})'))"

    async def take(self, mark: Any) -> NDArray[np.uint8]:
        """The page as it was when the mark was painted, or later: a cell of the ring, uint8 RGB.

        Args:
            mark: The value of the latest :meth:`mark`.

        Raises:
            DisplayGone: The display ended, hangs or is black.
        """
        # The windows of popups may lie anywhere on the screen, and take a moment to go.
        away, self._away = self._away, not self._page.in_front
        self.way = self._screenshots.way if away or self._away else "shared-memory"
        if away or self._away:
            return await self._screenshots.take(mark)
        await self.shown(marked=mark is True)
        frame = await self._ring.acquire()
        await self.shoot(frame)
        return frame

    async def shown(self, *, marked: bool) -> bool:
        """Wait until the latest mark is on the screen; False if it did not show up and the page is taken as it is.

        Raises:
            DisplayGone: The display ended, hangs or is black.
        """
        if not marked:
            # No page of HTML, such as an image or a feed: there is nothing to tell it by but that it is quiet.
            await self._quiet(FENCE_SECONDS)
            return False
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience
        while not self._mark_shows():
            # Watched and only then looked at: what is drawn after the look wakes us.
            self._watch()
            await self.display.sync()
            # A page may draw all the time and show no mark: what was drawn does not move the deadline.
            left = deadline - loop.time()
            if self._mark_shows() or left <= 0 or not await self.display.drawn(left):
                break
        if self._mark_shows():
            self._patience = FENCE_SECONDS
            return True
        self.counters.misses += 1
        self._patience = max(LEAST_FENCE_SECONDS, self._patience / 2)
        await self._colour()
        log.debug("the page's mark did not show up on its display")
        return False

    async def shoot(self, frame: NDArray[np.uint8]) -> None:
        """What the page's part of the screen shows now, into a frame (height, width, 3).

        Raises:
            DisplayGone: The display ended or hangs.
        """
        display = self.display
        self.counters.frames += 1
        self._watch()
        # A page that spoilt all tries last time is likely to do so again.
        for _ in range(1 if self._restless else TRIES):
            before = await display.still()
            if before is not None:
                await self._shrink(self._pixels, frame)
                await display.sync()
                if display.serial == before:
                    self._restless = False
                    return
            self.counters.retries += 1
        self._restless = True
        self.counters.copies += 1
        async with display.held():
            copied = self._pixels.copy()
        await self._shrink(copied, frame)

    def black(self) -> bool:
        """Whether the page's part of the screen is all black: what a display shows that nobody draws on.

        A black page is, too; its mark is not.
        """
        # The fourth byte is no colour.
        return not any(
            self._pixels[..., channel].any() for channel in self.display.framebuffer.layout.channels
        )

    async def _colour(self) -> None:
        """Wait a while for a page that is all black: a new one may not have been drawn at all yet.

        Raises:
            DisplayGone: It stays black.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + BLACK_SECONDS
        while self.black():
            self._watch()
            await self.display.sync()
            left = deadline - loop.time()
            if self.black() and (left <= 0 or not await self.display.drawn(left)):
                raise DisplayGone("the page is black on its display")

    def _watch(self) -> None:
        area = self.area
        self.display.watch(area.x, area.y, area.width, area.height)

    def _mark_shows(self) -> bool:
        seen = self.display.framebuffer.rgb(*self._mark)
        return all(
            (value > 127) == (wanted > 127) for value, wanted in zip(seen, _COLORS[self._turn], strict=True)
        )

    async def _quiet(self, budget: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + budget
        while loop.time() < deadline:
            self._watch()
            await self.display.sync()
            if not await self.display.drawn(QUIET_SECONDS):
                return

    async def _shrink(self, pixels: NDArray[np.uint8], frame: NDArray[np.uint8]) -> None:
        """In a thread: OpenCV lets go of Python's lock, so the loop goes on meanwhile.

        A caller that is cancelled leaves the thread at work; what it writes to is held by its arguments until it is
        done.
        """
        channels = self.display.framebuffer.layout.channels
        await asyncio.get_running_loop().run_in_executor(None, shrink, pixels, channels, frame, self._patch)
