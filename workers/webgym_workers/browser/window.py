"""Geometry of a browser's windows on its display, CSS pixels."""

from __future__ import annotations

from typing import Any

from webgym_workers.browser.options import BrowserOptions

__all__ = ["DISPLAY_PIXELS", "WINDOW_FRAME", "WINDOW_GAP", "display_room", "window_bounds"]

WINDOW_FRAME = 160
"""What a window has above its page: tabs and toolbar (87), and room for bars that warn of something."""
WINDOW_GAP = 16
"""How much wider a display is than its widest window: one as wide as the display comes out a pixel short."""
LEAST_WINDOW = 500
"""Chromium makes no window narrower."""
DISPLAY_PIXELS = (1920, 1080)
"""A display shows pages of at least this size: tasks have pages smaller or larger than the options'."""


def display_room(options: BrowserOptions) -> tuple[int, int]:
    """Width and height of the largest page that a display with these options can show."""
    return max(options.width, DISPLAY_PIXELS[0]), max(options.height, DISPLAY_PIXELS[1])


def window_bounds(width: int, height: int, *, windowed: bool) -> dict[str, Any]:
    """Parameters of ``Target.createTarget`` for a page of this size.

    Args:
        width: Of the page.
        height: Of the page.
        windowed: The browser has windows: the page gets one of its own, in the display's upper left corner and large
            enough to show all of it.
    """
    if not windowed:
        # Without a screen nobody sees tabs and toolbar, but they are drawn all the same, sixty times a second while a
        # page loads: a page took 160 ms of CPU, and takes 130 where it fills the screen.
        return {"width": width, "height": height, "windowState": "fullscreen"}
    wide = max(LEAST_WINDOW, width)
    return {"width": wide, "height": height + WINDOW_FRAME, "left": 0, "top": 0, "newWindow": True}
