"""The X server's screen as an array: a view of the file that ``Xvfb -fbdir`` keeps it in (XWD format, version 7).

Nothing is assumed that the header says: where the pixels begin, how long a row is, in which byte each colour lies.
"""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from webgym_workers.browser.faults import DisplayGone

__all__ = ["Framebuffer", "Layout", "parse_header"]

_HEADER = struct.Struct(">25I")
_VERSION, _Z_PIXMAP = 7, 2
_COLOR_BYTES = 12
"""Of one entry of the colour table, which stands between header and pixels even where colours are direct."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the pixels are.

    Attributes:
        offset: Bytes before the first pixel.
        width: Pixels.
        height: Pixels.
        stride: Bytes from one row to the next.
        channels: Which byte of a pixel's four is red, green and blue.
    """

    offset: int
    width: int
    height: int
    stride: int
    channels: tuple[int, int, int]

    @property
    def size(self) -> int:
        """Bytes up to the end of the last row."""
        return self.offset + self.height * self.stride


def parse_header(data: bytes) -> Layout:
    """The layout that an XWD header describes.

    Args:
        data: The beginning of the file, at least 100 bytes.

    Raises:
        DisplayGone: It is no such header, or its pixels are not 32 bits with a byte for each colour.
    """
    if len(data) < _HEADER.size:
        raise DisplayGone(f"the framebuffer's header has {len(data)} bytes instead of {_HEADER.size}")
    fields = _HEADER.unpack_from(data)
    header_size, version, pixmap_format, _depth, width, height = fields[:6]
    byte_order, bits_per_pixel, stride = fields[7], fields[11], fields[12]
    masks, colors = fields[14:17], fields[19]
    if version != _VERSION or pixmap_format != _Z_PIXMAP or bits_per_pixel != 32:
        raise DisplayGone(
            f"the framebuffer has an unknown form: version {version}, format {pixmap_format}, "
            f"{bits_per_pixel} bits per pixel"
        )
    if header_size < _HEADER.size or stride < width * 4 or not width or not height:
        raise DisplayGone(
            f"the framebuffer's header contradicts itself: {width}x{height}, rows of {stride} bytes"
        )
    red, green, blue = (_byte_of(mask, little=byte_order == 0) for mask in masks)
    return Layout(header_size + colors * _COLOR_BYTES, width, height, stride, (red, green, blue))


def _byte_of(mask: int, *, little: bool) -> int:
    for byte in range(4):
        if mask == 0xFF << (8 * byte):
            return byte if little else 3 - byte
    raise DisplayGone(f"the framebuffer's colours are not bytes: mask {mask:#010x}")


class Framebuffer:
    """A screen that can be looked at.

    The mapping lives as long as an array of it: the file may be unlinked and the server may end.

    Attributes:
        layout: Where the pixels are.
        pixels: uint8 (height, width, 4), read-only; changes as the server draws.

    Args:
        path: The file.

    Raises:
        DisplayGone: It cannot be mapped, or is not what it should be.
    """

    def __init__(self, path: Path) -> None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                self.layout = parse_header(os.read(fd, _HEADER.size))
                # A file shorter than its header says would kill with SIGBUS whoever reads on.
                if os.fstat(fd).st_size < self.layout.size:
                    raise DisplayGone(
                        f"the framebuffer ends after {os.fstat(fd).st_size} of {self.layout.size} bytes"
                    )
                mapped = mmap.mmap(fd, self.layout.size, mmap.MAP_SHARED, mmap.PROT_READ)
            finally:
                os.close(fd)
        except OSError as error:
            raise DisplayGone(f"cannot map the framebuffer {path}: {error.strerror}") from error
        layout = self.layout
        self.pixels: NDArray[np.uint8] = np.ndarray(
            (layout.height, layout.width, 4), np.uint8, mapped, layout.offset, (layout.stride, 4, 1)
        )

    def rgb(self, x: int, y: int) -> tuple[int, int, int]:
        """The colour of one pixel now."""
        pixel = self.pixels[y, x]
        red, green, blue = self.layout.channels
        return int(pixel[red]), int(pixel[green]), int(pixel[blue])

    def mask(self, color: tuple[int, int, int]) -> NDArray[np.bool_]:
        """bool (height, width): which pixels have a colour now."""
        wanted = np.zeros(4, np.uint8)
        wanted[list(self.layout.channels)] = color
        care = np.zeros(4, np.uint8)
        care[list(self.layout.channels)] = 0xFF
        words = self.pixels.view(np.uint32)[..., 0]
        return np.asarray((words & care.view(np.uint32)) == wanted.view(np.uint32))
