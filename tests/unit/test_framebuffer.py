"""The screen's file is read as its header says, and refused where it says nonsense."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webgym_workers.browser.faults import DisplayGone
from webgym_workers.frames.calibration import find_area
from webgym_workers.frames.framebuffer import Framebuffer, parse_header

NAMES = (
    "header_size file_version pixmap_format pixmap_depth width height xoffset byte_order bitmap_unit"
    " bitmap_bit_order bitmap_pad bits_per_pixel bytes_per_line visual_class red green blue bits_per_rgb"
    " colormap_entries ncolors window_width window_height window_x window_y border"
).split()


def header(**changes: int) -> bytes:
    """As Xvfb writes it for a screen of 6x4 pixels, with a name of 60 bytes behind."""
    fields = dict.fromkeys(NAMES, 0) | {
        "header_size": 160, "file_version": 7, "pixmap_format": 2, "pixmap_depth": 24, "width": 6, "height": 4,
        "bitmap_unit": 32, "bitmap_pad": 32, "bits_per_pixel": 32, "bytes_per_line": 24, "visual_class": 4,
        "red": 0xFF0000, "green": 0xFF00, "blue": 0xFF, "colormap_entries": 256, "ncolors": 256,
    }  # fmt: skip
    fields |= changes
    return struct.pack(">25I", *[fields[name] for name in NAMES])


def screen(path: Path, pixels: bytes, **changes: int) -> Path:
    fields = {"header_size": 160, "ncolors": 256} | changes
    path.write_bytes(header(**changes) + bytes(fields["header_size"] - 100 + 12 * fields["ncolors"]) + pixels)
    return path


def test_an_ordinary_header() -> None:
    layout = parse_header(header() + b"more")
    assert layout.offset == 160 + 256 * 12
    assert (layout.width, layout.height, layout.stride) == (6, 4, 24)
    assert layout.channels == (2, 1, 0)
    assert layout.size == layout.offset + 96


@pytest.mark.parametrize(
    ("changes", "channels"),
    [
        ({}, (2, 1, 0)),
        ({"byte_order": 1}, (1, 2, 3)),
        ({"red": 0xFF, "blue": 0xFF0000}, (0, 1, 2)),
        ({"red": 0xFF000000, "green": 0xFF0000, "blue": 0xFF00}, (3, 2, 1)),
    ],
)
def test_colours_are_where_masks_and_byte_order_say(
    changes: dict[str, int], channels: tuple[int, ...]
) -> None:
    assert parse_header(header(**changes)).channels == channels


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"file_version": 6}, "version 6"),
        ({"pixmap_format": 1}, "format 1"),
        ({"bits_per_pixel": 16}, "16 bits per pixel"),
        ({"red": 0xF800}, "not bytes"),
        ({"red": 0}, "not bytes"),
        ({"bytes_per_line": 20}, "contradicts itself"),
        ({"width": 0}, "contradicts itself"),
        ({"header_size": 8}, "contradicts itself"),
    ],
)
def test_what_cannot_be_read_is_said(changes: dict[str, int], word: str) -> None:
    with pytest.raises(DisplayGone, match=word):
        parse_header(header(**changes))


@given(st.binary(max_size=200))
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    try:
        layout = parse_header(data)
    except DisplayGone:
        return
    assert layout.stride >= layout.width * 4


def test_rows_may_be_padded_and_the_colour_table_of_any_length(tmp_path: Path) -> None:
    rows = [
        bytes([b, g, r, 0] * 6) + b"\xee" * 8 for b, g, r in ((1, 2, 3), (4, 5, 6), (7, 8, 9), (10, 11, 12))
    ]
    path = screen(tmp_path / "screen", b"".join(rows), bytes_per_line=32, ncolors=3, header_size=104)
    framebuffer = Framebuffer(path)
    assert framebuffer.pixels.shape == (4, 6, 4)
    assert framebuffer.rgb(5, 0) == (3, 2, 1)
    assert framebuffer.rgb(0, 3) == (12, 11, 10)
    assert framebuffer.pixels.strides == (32, 4, 1)
    found = framebuffer.mask((6, 5, 4))
    assert found.shape == (4, 6)
    assert found[1].all()
    assert found.sum() == 6


def test_it_is_a_view_of_what_is_drawn_later_also_without_a_name(tmp_path: Path) -> None:
    path = screen(tmp_path / "screen", bytes(96))
    framebuffer = Framebuffer(path)
    with path.open("r+b") as file:
        file.seek(framebuffer.layout.offset + 24 + 4)
        file.write(bytes([30, 20, 10, 99]))
    path.unlink()
    assert framebuffer.rgb(1, 1) == (10, 20, 30)
    # The fourth byte is no colour.
    assert framebuffer.mask((10, 20, 30)).sum() == 1
    with pytest.raises(ValueError, match="read-only"):
        framebuffer.pixels[0, 0] = 1
    pixels = framebuffer.pixels
    del framebuffer
    assert np.array_equal(pixels[1, 1], (30, 20, 10, 99))


def test_a_short_or_missing_file_is_refused_and_never_mapped(tmp_path: Path) -> None:
    path = screen(tmp_path / "screen", bytes(95))
    with pytest.raises(DisplayGone, match="ends after"):
        Framebuffer(path)
    with pytest.raises(DisplayGone, match="cannot map"):
        Framebuffer(tmp_path / "nothing")


@pytest.mark.parametrize(("rows", "found"), [(6, 6), (5, 5), (4, None), (7, 7), (8, None)])
def test_a_page_that_begins_between_two_rows_may_show_one_less(
    tmp_path: Path, rows: int, found: int | None
) -> None:
    """Four CSS pixels at 1.5 device pixels each; the toolbar above ends in the midst of a row."""
    pixels = np.zeros((12, 10, 4), np.uint8)
    pixels[2 : 2 + rows, :9, :3] = 61, 7, 173
    framebuffer = Framebuffer(
        screen(tmp_path / "fb", pixels.tobytes(), width=10, height=12, bytes_per_line=40)
    )
    area = find_area(framebuffer, (173, 7, 61), 6, 4, 1.5)
    assert (area and (area.y, area.height, area.scale)) == (found and (2, found, 1.5))
