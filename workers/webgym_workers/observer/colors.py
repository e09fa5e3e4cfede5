"""Names of colours, so that "the red box" can be told from the others."""

from __future__ import annotations

import colorsys
import re
from functools import lru_cache

from PIL import ImageColor

__all__ = ["COLOR_WORDS", "color_name", "hue_name"]

_RGB = re.compile(r"rgba?\((\d+), (\d+), (\d+)(?:, ([\d.]+))?\)")
_FARTHEST = 40
"""Largest distance in RGB at which a colour still goes by a name's."""

_NAMED = {
    name: ImageColor.getrgb(name)[:3]
    for name in (
        "black white gray grey silver red maroon yellow olive lime green aqua cyan teal blue navy fuchsia magenta "
        "purple orange pink brown violet gold indigo turquoise beige"
    ).split()
}

COLOR_WORDS = frozenset(_NAMED)
"""The names."""

_HUES = (
    (15, "red"),
    (45, "orange"),
    (70, "yellow"),
    (165, "green"),
    (195, "cyan"),
    (255, "blue"),
    (290, "purple"),
)
"""Families of hues with the degree that each goes up to; what is above is pink, and red again from 345."""


def _rgb(css: str) -> tuple[int, int, int] | None:
    match = _RGB.fullmatch(css)
    return None if not match or match[4] == "0" else (int(match[1]), int(match[2]), int(match[3]))


@lru_cache(maxsize=1024)
def hue_name(css: str) -> str:
    """The family of a computed CSS colour, of which it may be a shade; empty for grey and for no colour."""
    rgb = _rgb(css)
    if rgb is None:
        return ""
    hue, _, saturation = colorsys.rgb_to_hls(*(c / 255 for c in rgb))
    if saturation < 0.15:
        return ""
    degree = hue * 360
    if degree >= 345:
        return "red"
    return next((name for limit, name in _HUES if degree < limit), "pink")


@lru_cache(maxsize=1024)
def color_name(css: str) -> str:
    """Names of a computed CSS colour, space-separated (equal colours have several); empty when it has none."""
    rgb = _rgb(css)
    if rgb is None:
        return ""

    def distance(name: str) -> int:
        return sum((a - b) ** 2 for a, b in zip(rgb, _NAMED[name], strict=True))

    nearest = min(distance(name) for name in _NAMED)
    if nearest > _FARTHEST**2:
        return ""
    return " ".join(name for name in _NAMED if distance(name) == nearest)
