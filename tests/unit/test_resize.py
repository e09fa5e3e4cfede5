"""From the screen to a frame: the right part of it, in the right colours, averaged."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from webgym_workers.frames.calibration import PageArea
from webgym_workers.frames.framebuffer import Layout
from webgym_workers.frames.resize import page_image, shrink


def shrunk(
    pixels: NDArray[np.uint8],
    area: PageArea,
    size: tuple[int, int],
    channels: tuple[int, int, int] = (2, 1, 0),
    patch: int = 0,
) -> NDArray[np.uint8]:
    height, width = pixels.shape[:2]
    layout = Layout(0, width, height, pixels.strides[0], channels)
    out = np.full((*size, 3), 123, np.uint8)
    shrink(page_image(pixels.reshape(-1), layout, area), channels, out, patch)
    return out


def test_only_the_page_is_taken_and_colours_are_sorted() -> None:
    pixels = np.zeros((60, 80, 4), np.uint8)
    pixels[...] = 255  # what is beside the page must not bleed into it
    pixels[10:50, 20:70] = (1, 2, 3, 77)
    assert (shrunk(pixels, PageArea(20, 10, 50, 40, 1.0), (8, 10)) == (3, 2, 1)).all()
    assert (shrunk(pixels, PageArea(20, 10, 50, 40, 1.0), (8, 10), (0, 1, 2)) == (1, 2, 3)).all()
    assert (shrunk(pixels, PageArea(20, 10, 50, 40, 1.0), (8, 10), (3, 0, 1)) == (77, 1, 2)).all()


def test_the_screen_is_read_in_place() -> None:
    pixels = np.zeros((40, 40, 4), np.uint8)
    image = page_image(pixels.reshape(-1), Layout(0, 40, 40, 160, (2, 1, 0)), PageArea(0, 0, 40, 40, 1.0))
    out = np.zeros((4, 4, 3), np.uint8)
    pixels[...] = 200
    shrink(image, (2, 1, 0), out)
    assert (out == 200).all()


def test_rows_may_be_padded() -> None:
    padded = np.full((20, 30 * 4 + 24), 255, np.uint8)
    padded[:, : 30 * 4] = np.tile(np.array([9, 8, 7, 0], np.uint8), 30)
    layout = Layout(0, 30, 20, padded.strides[0], (2, 1, 0))
    out = np.zeros((5, 5, 3), np.uint8)
    shrink(page_image(padded.reshape(-1), layout, PageArea(0, 0, 30, 20, 1.0)), (2, 1, 0), out)
    assert (out == (7, 8, 9)).all()


@pytest.mark.parametrize("size", [(1080, 1920), (720, 1280), (603, 801), (2160, 3840)])
def test_it_is_the_average_of_areas(size: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    height, width = size
    # A picture with structure at all scales; pure noise would only show where blocks end.
    pixels = np.zeros((height, width, 4), np.uint8)
    for step in (1, 8, 64, 256):
        coarse = rng.integers(0, 64, (-(-height // step), -(-width // step), 4), dtype=np.uint8)
        pixels += coarse.repeat(step, 0).repeat(step, 1)[:height, :width]
    frame = shrunk(pixels, PageArea(0, 0, width, height, 1.0), (224, 224)).astype(float)
    exact = _areas(_areas(pixels[..., 2::-1].astype(float), 224, 0), 224, 1)
    assert np.abs(frame - exact).mean() < 5
    assert np.abs(frame.mean() - exact.mean()) < 0.6


def _areas(values: NDArray[np.float64], cells: int, axis: int) -> NDArray[np.float64]:
    """Exact averages over equal parts of an axis, fractions of pixels counted."""
    length = values.shape[axis]
    sums = np.concatenate([np.zeros_like(values.take([0], axis)), values.cumsum(axis)], axis)
    edges = np.linspace(0, length, cells + 1)
    low = np.minimum(edges.astype(int), length - 1)
    shape = [-1 if i == axis else 1 for i in range(values.ndim)]
    at = sums.take(low, axis) + values.take(low, axis) * (edges - low).reshape(shape)
    averages: NDArray[np.float64] = np.diff(at, axis=axis) * cells / length
    return averages


@pytest.mark.parametrize("size", [(1080, 1920), (210, 160), (224, 224), (100, 3000)])
def test_the_mark_in_the_corner_does_not_show(size: tuple[int, int]) -> None:
    height, width = size
    pixels = np.full((height, width, 4), 50, np.uint8)
    pixels[-2:, -2:] = 255
    area = PageArea(0, 0, width, height, 1.0)
    assert shrunk(pixels, area, (224, 224)).max() > 50
    assert (shrunk(pixels, area, (224, 224), patch=2) == 50).all()
