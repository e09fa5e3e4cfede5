"""From the screen to the policy's frame in one pass over the pixels.

Pillow reads the framebuffer in place, first by whole blocks, then by what is left of the ratio, and lets go of Python's
lock meanwhile. 1920x1080 takes it 2.4 ms on an idle core; a full box filter 6, OpenCV's area filter 9.7. PyTorch's
antialiased filter takes 1.5, at the price of 200 MB in every process that drives browsers, which need no PyTorch.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from webgym_workers.frames.calibration import PageArea
from webgym_workers.frames.framebuffer import Layout

__all__ = ["screen_image", "shrink"]


def screen_image(memory: NDArray[np.uint8], layout: Layout) -> Image.Image:
    """The screen as an image that shares its memory: it shows what is drawn later, too.

    Args:
        memory: uint8 (height * stride,), the screen's pixels; read in place.
        layout: How they lie; their colours are taken as they come, so red may be blue.
    """
    return Image.frombuffer("RGBX", (layout.width, layout.height), memory, "raw", "RGBX", layout.stride, 1)


def shrink(
    image: Image.Image, channels: tuple[int, int, int], area: PageArea, out: NDArray[np.uint8], patch: int = 0
) -> None:
    """Squeeze the page into a frame by averaging areas.

    Args:
        image: From :func:`screen_image`.
        channels: Which byte of a pixel is red, green and blue.
        area: The page on the screen.
        out: uint8 (height, width, 3), RGB, written to.
        patch: Side, in pixels of the screen, of the square in the lower right corner that is not the page's; what it
            touched is covered with the column beside it.
    """
    height, width = out.shape[:2]
    box = (area.x, area.y, area.x + area.width, area.y + area.height)
    small = np.asarray(image.resize((width, height), Image.Resampling.BOX, box=box, reducing_gap=1.0))
    for to, channel in enumerate(channels):
        out[..., to] = small[..., channel]
    if patch:
        columns = _touched(patch, area.width, width)
        rows = _touched(patch, area.height, height)
        if columns < width:
            out[-rows:, -columns:] = out[-rows:, -columns - 1, None]


def _touched(patch: int, pixels: int, cells: int) -> int:
    """How many cells, of those that ``pixels`` are averaged into, the last ``patch`` pixels have a part in.

    One more than what they cover, for blocks of whole pixels may reach over a cell's border.
    """
    return min(cells, -(-patch * cells // pixels) + 1)
