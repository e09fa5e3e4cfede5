"""Names of colours, so that "the red box" can be told from the others."""

from __future__ import annotations

import re
from functools import lru_cache

from PIL import ImageColor

__all__ = ["color_name"]

_RGB = re.compile(r"rgba?\((\d+), (\d+), (\d+)(?:, ([\d.]+))?\)")
_FARTHEST = 40
"""Largest distance in RGB at which a colour still goes by a name's."""

_NAMED = {
    name: ImageColor.getrgb(name)[:3]
    for name in (
        "black white gray silver red maroon yellow olive lime green aqua cyan teal blue navy fuchsia magenta purple "
        "orange pink brown violet gold indigo turquoise beige"
    ).split()
}


@lru_cache(maxsize=1024)
def color_name(css: str) -> str:
    """Names of a computed CSS colour, space-separated (equal colours have several); empty when it has none."""
    match = _RGB.fullmatch(css)
    if not match or match[4] == "0":
        return ""
    rgb = tuple(int(match[i]) for i in (1, 2, 3))

    def distance(name: str) -> int:
        return sum((a - b) ** 2 for a, b in zip(rgb, _NAMED[name], strict=True))

    nearest = min(distance(name) for name in _NAMED)
    if nearest > _FARTHEST**2:
        return ""
    return " ".join(name for name in _NAMED if distance(name) == nearest)
