"""From the screen to a frame: the right part of it, in the right colours, averaged."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from webgym_workers.frames.resize import shrink


def shrunk(
    page: NDArray[np.uint8],
    size: tuple[int, int],
    channels: tuple[int, int, int] = (2, 1, 0),
    patch: int = 0,
) -> NDArray[np.uint8]:
    page.setflags(write=False)  # as the screen's memory is
    out = np.full((*size, 3), 123, np.uint8)
    shrink(page, channels, out, patch)
    return out


def test_only_the_page_is_taken_and_colours_are_sorted() -> None:
    pixels = np.zeros((60, 80, 4), np.uint8)
    pixels[...] = 255  # what is beside the page must not bleed into it
    pixels[10:50, 20:70] = (1, 2, 3, 77)
    page = pixels[10:50, 20:70]
    assert (shrunk(page, (8, 10)) == (3, 2, 1)).all()
    assert (shrunk(page, (8, 10), (0, 1, 2)) == (1, 2, 3)).all()
    assert (shrunk(page, (8, 10), (3, 0, 1)) == (77, 1, 2)).all()


def test_rows_may_be_padded() -> None:
    padded = np.full((20, 30 * 4 + 24), 255, np.uint8)
    padded[:, : 30 * 4] = np.tile(np.array([9, 8, 7, 0], np.uint8), 30)
    page = np.ndarray((20, 30, 4), np.uint8, padded.tobytes(), 0, (padded.strides[0], 4, 1))
    assert (shrunk(page, (5, 5)) == (7, 8, 9)).all()


@pytest.mark.parametrize(
    ("size", "bias"),
    [
        *[(size, 0.6) for size in ((1080, 1920), (720, 1280), (603, 801), (2160, 3840), (400, 400))],
        # Each halving rounds to whole numbers, halves upwards.
        ((100, 3000), 0.7),
    ],
)
def test_it_is_the_average_of_areas(size: tuple[int, int], bias: float) -> None:
    rng = np.random.default_rng(0)
    height, width = size
    # A picture with structure at all scales.
    pixels = np.zeros((height, width, 4), np.uint8)
    for step in (1, 8, 64, 256):
        coarse = rng.integers(0, 64, (-(-height // step), -(-width // step), 4), dtype=np.uint8)
        pixels += coarse.repeat(step, 0).repeat(step, 1)[:height, :width]
    frame = shrunk(pixels, (224, 224)).astype(float)
    exact = _areas(_areas(pixels[..., 2::-1].astype(float), 224, 0), 224, 1)
    assert np.abs(frame - exact).mean() < 2.5
    assert np.abs(frame.mean() - exact.mean()) < bias


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
    assert shrunk(pixels, (224, 224)).max() > 50
    assert (shrunk(pixels, (224, 224), patch=2) == 50).all()
