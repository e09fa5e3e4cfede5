"""The picture of the page that the policy sees, by way of a screenshot: the slow but portable way."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

__all__ = ["frame_of"]


def frame_of(screenshot: bytes, shape: tuple[int, int, int]) -> NDArray[np.uint8]:
    """A screenshot as the policy's frame.

    Args:
        screenshot: an encoded image, such as PNG.
        shape: (height, width, 3) of the frame; the page is squeezed into it by averaging areas.

    Returns:
        uint8, RGB.
    """
    height, width, _ = shape
    image = Image.open(io.BytesIO(screenshot)).convert("RGB").resize((width, height), Image.Resampling.BOX)
    return np.asarray(image, dtype=np.uint8)
