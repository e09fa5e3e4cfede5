"""From the screen to the policy's frame: halved by and by, with one step in between for what is left of the ratio.

OpenCV reads the framebuffer in place, with vector instructions, and lets go of Python's lock meanwhile. 1920x1080 takes
it 1.5 ms, and differs from exact averages of areas by 1.1 of 255 on a picture with structure at all scales; Pillow
(whole blocks, then a triangle filter) takes 2.8 and differs by 1.7, OpenCV's own filter over areas takes 9.7.
PyTorch's antialiased filter takes 1.5, at the price of 200 MB in every process that drives browsers, which need no
PyTorch; OpenCV takes 16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

__all__ = ["shrink", "squeeze"]


def squeeze(pixels: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """A picture in another size.

    Args:
        pixels: uint8 (height, width, channels); rows may be apart, what is in a row may not.
        size: (width, height).

    Returns:
        uint8 (height, width, channels) of that size.
    """
    # Here and not above: a process without frames saves the memory.
    import cv2

    # Each browser's frame is made in a thread of its own; they do not share one among threads of OpenCV's, too.
    cv2.setNumThreads(1)
    small = pixels
    for width, height in _sizes((pixels.shape[1], pixels.shape[0]), size):
        # Halfway between two pixels, where this filter looks when a side is halved, it is the mean of both.
        small = np.asarray(cv2.resize(small, (width, height), interpolation=cv2.INTER_LINEAR), np.uint8)
    return small


def _sizes(size: tuple[int, int], wanted: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """The sizes that a picture goes through.

    Each side is halved while it is at least four times what is wanted, then interpolated to twice that, and halved once
    more, which evens out what the interpolation missed. One that is no longer than wanted is only interpolated.
    """
    at = size
    while at != (halved := _each(at, wanted, lambda n, m: n // 2 if n >= 4 * m else n)):
        yield (at := halved)
    double = _each(at, wanted, lambda n, m: 2 * m if n > m else m)
    if double != at:
        yield double
    if wanted != double:
        yield wanted


def _each(size: tuple[int, int], wanted: tuple[int, int], side: Callable[[int, int], int]) -> tuple[int, int]:
    return side(size[0], wanted[0]), side(size[1], wanted[1])


def shrink(
    page: NDArray[np.uint8], channels: tuple[int, int, int], out: NDArray[np.uint8], patch: int = 0
) -> None:
    """Squeeze the page into a frame.

    Args:
        page: uint8 (height, width, 4), the page's part of the screen.
        channels: Which byte of a pixel is red, green and blue.
        out: uint8 (height, width, 3), RGB, written to.
        patch: Side, in pixels of the screen, of the square in the lower right corner that is not the page's; what it
            touched is covered with the column beside it.
    """
    height, width = out.shape[:2]
    small = squeeze(page, (width, height))
    for to, channel in enumerate(channels):
        out[..., to] = small[..., channel]
    if patch:
        columns = _touched(patch, page.shape[1], width)
        rows = _touched(patch, page.shape[0], height)
        if columns < width:
            out[-rows:, -columns:] = out[-rows:, -columns - 1, None]


def _touched(patch: int, pixels: int, cells: int) -> int:
    """How many cells, of those that ``pixels`` are averaged into, the last ``patch`` pixels have a part in.

    Two more than what they cover: halves reach over a cell's border, and what is between two has a part of both.
    """
    return min(cells, -(-patch * cells // pixels) + 2)
