"""Frames by screenshot: where there is no Xvfb, and for browsers that are elsewhere.

The browser makes the picture small itself and encodes the little that is left, which is the fastest way over the
DevTools protocol (``webgym bench frames`` measures the others beside it).
"""

from __future__ import annotations

import asyncio
import base64
import io
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from webgym_workers.frames.resize import squeeze
from webgym_workers.frames.ring import FrameRing

if TYPE_CHECKING:
    from webgym_workers.browser.page import Page
    from webgym_workers.frames.source import FrameWay

__all__ = ["ScreenshotFrames", "frame_of", "small_screenshot"]

CAPTURE_SECONDS = 10.0


class ScreenshotFrames:
    """Frames of one page, by screenshots.

    Args:
        page: The page.
        ring: Where frames go.
    """

    way: FrameWay = "screenshot"

    def __init__(self, page: Page, ring: FrameRing) -> None:
        self._page = page
        self._ring = ring

    def mark(self) -> str:
        """Nothing needs to be marked: a screenshot draws the page first."""
        return "null"

    async def take(self, mark: Any) -> NDArray[np.uint8]:
        """The page as it is now: a cell of the ring, uint8 RGB.

        Raises:
            BrowserFault: The page or its browser failed meanwhile.
        """
        image = await small_screenshot(self._page, self._ring.shape)
        frame = await self._ring.acquire()
        await asyncio.get_running_loop().run_in_executor(None, frame_of, image, frame)
        return frame


async def small_screenshot(page: Page, shape: tuple[int, int, int]) -> bytes:
    """A JPEG of the viewport, no smaller than a frame of ``shape`` but not much larger either."""
    width, height = page.viewport
    scale = min(1.0, max(shape[0] / height, shape[1] / width))
    answer = await page.session.call(
        "Page.captureScreenshot",
        {
            "format": "jpeg",
            "quality": 90,
            "optimizeForSpeed": True,
            "clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": scale},
        },
        timeout=CAPTURE_SECONDS,
    )
    return base64.b64decode(answer["data"])


def frame_of(screenshot: bytes, out: NDArray[np.uint8]) -> None:
    """An encoded picture, squeezed into a frame as the screen is.

    Args:
        screenshot: Such as JPEG or PNG.
        out: uint8 (height, width, 3), RGB, written to.
    """
    height, width = out.shape[:2]
    image = Image.open(io.BytesIO(screenshot)).convert("RGB")
    out[...] = squeeze(np.asarray(image), (width, height))
