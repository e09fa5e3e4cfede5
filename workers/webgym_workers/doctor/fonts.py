"""Are letters, Chinese, Japanese and Korean characters and emoji drawn as what they are, or as boxes?

A character without a glyph is drawn as the font's box for that. Characters that nobody assigned show what the box looks
like. Fonts with boxes of another kind (the number of the character inside, a sign for its block) are found out by
characters whose looks are known: 一 is one flat stroke, 🔴 is red.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webgym_workers.doctor import mends
from webgym_workers.doctor.finding import Finding, Status
from webgym_workers.doctor.host import Host
from webgym_workers.doctor.setting import Setting, page_url

__all__ = ["CHARACTERS", "Glyph", "check_fonts", "judge_fonts", "missing_scripts"]

CELL = 64
COLUMNS = 8
UNASSIGNED = ("\ue83a", "\U0010fffd")
"""Of the areas for private use."""
SCRIPTS: Mapping[str, tuple[str, ...]] = {
    "Latin": ("A", "g", "W", "l", "_"),
    "Chinese": ("中", "国", "一"),
    "Japanese": ("あ", "ネ"),
    "Korean": ("한", "글"),
    "emoji": ("😀", "🚀", "🔴", "🔵"),
}
CHARACTERS = (*UNASSIGNED, *(character for script in SCRIPTS.values() for character in script))
_SAME = 0.1
"""Two glyphs that differ in a smaller part of their pixels are the same one."""


@dataclass(frozen=True)
class Glyph:
    """A character as it was drawn, black on white.

    Attributes:
        pixels: uint8 (height, width, 3), RGB.
    """

    pixels: NDArray[np.uint8]

    @property
    def ink(self) -> NDArray[np.bool_]:
        """bool (height, width): what is not background."""
        return np.asarray(self.pixels.min(axis=2) < 160)

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of what is drawn; (0, 0) when nothing is."""
        rows, columns = np.flatnonzero(self.ink.any(axis=1)), np.flatnonzero(self.ink.any(axis=0))
        if not len(rows):
            return 0, 0
        return int(rows[-1] - rows[0]) + 1, int(columns[-1] - columns[0]) + 1

    @property
    def colour(self) -> tuple[float, float, float]:
        """Mean colour of what is drawn, RGB; black when nothing is."""
        ink = self.ink
        if not ink.any():
            return 0.0, 0.0, 0.0
        red, green, blue = self.pixels[ink].mean(axis=0)
        return float(red), float(green), float(blue)

    def looks_like(self, other: Glyph) -> bool:
        """Whether both are the same to the eye, in the same place."""
        a, b = self.ink, other.ink
        either = int((a | b).sum())
        alike = either == 0 or int((a ^ b).sum()) < _SAME * either
        return alike and max(abs(x - y) for x, y in zip(self.colour, other.colour, strict=True)) < 40


async def check_fonts(setting: Setting) -> Finding:
    """Draw the characters in Chromium and look at them."""
    from PIL import Image

    rows = -(-len(CHARACTERS) // COLUMNS)
    async with setting.page(COLUMNS * CELL, rows * CELL) as page:
        await page.navigate(page_url("fonts.html"))
        await page.evaluate("(characters) => show(characters)", list(CHARACTERS))
        await page.evaluate_settled("document.fonts.ready.then(() => 0)", frames=2)
        picture = np.asarray(Image.open(io.BytesIO(await page.screenshot())).convert("RGB"))
    glyphs = {}
    for index, character in enumerate(CHARACTERS):
        y, x = index // COLUMNS * CELL, index % COLUMNS * CELL
        glyphs[character] = Glyph(picture[y : y + CELL, x : x + CELL])
    return judge_fonts(missing_scripts(glyphs), setting.host)


def missing_scripts(glyphs: Mapping[str, Glyph]) -> list[str]:
    """The scripts of which a character was not drawn as itself.

    Args:
        glyphs: Of all :data:`CHARACTERS`, cells of one size.
    """
    boxes = [glyphs[character] for character in UNASSIGNED]

    def drawn(character: str) -> bool:
        glyph = glyphs[character]
        return bool(glyph.ink.any()) and not any(glyph.looks_like(box) for box in boxes)

    missing = []
    for script, characters in SCRIPTS.items():
        different = all(
            not glyphs[a].looks_like(glyphs[b])
            for index, a in enumerate(characters)
            for b in characters[index + 1 :]
        )
        if not (different and all(map(drawn, characters)) and _recognised(script, glyphs)):
            missing.append(script)
    return missing


def _recognised(script: str, glyphs: Mapping[str, Glyph]) -> bool:
    if script == "Latin":
        (l_height, l_width), (low_height, low_width) = glyphs["l"].shape, glyphs["_"].shape
        return l_height > 1.5 * l_width and low_width > 3 * low_height
    if script == "Chinese":
        height, width = glyphs["一"].shape
        return width > 2 * height
    if script == "emoji":
        red, blue = glyphs["🔴"].colour, glyphs["🔵"].colour
        return red[0] > max(red[1:]) + 50 and blue[2] > blue[0] + 50
    return True


def judge_fonts(missing: list[str], host: Host) -> Finding:
    """What it means that some scripts are not drawn."""
    numbers: dict[str, Any] = {script.lower(): script not in missing for script in SCRIPTS}
    if not missing:
        return Finding(
            Status.OK, "Latin, Chinese, Japanese, Korean and coloured emoji are drawn", numbers=numbers
        )
    software: list[mends.Software] = []
    if "Latin" in missing:
        software.append("latin")
    if {"Chinese", "Japanese", "Korean"} & set(missing):
        software.append("cjk")
    if "emoji" in missing:
        software.append("emoji")
    # Most tasks are in Latin letters; a page of anything else shows the agent boxes.
    status = Status.FAILED if "Latin" in missing else Status.WARNING
    found = f"drawn as boxes, or without colour: {', '.join(missing)}"
    return Finding(status, found, mends.install(host, *software), numbers)
