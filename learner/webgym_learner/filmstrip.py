"""An episode as a strip of pictures: each frame with what the agent did there."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFont import FreeTypeFont

__all__ = ["Film", "Frame", "draw_strip", "load_film"]

logger = logging.getLogger(__name__)

_MOST_FRAMES = 12
_WIDTH = 320
"""Pixels of a frame in the strip."""
_MARK = (217, 84, 27)


@dataclass(frozen=True)
class Frame:
    """What the page looked like, and what was done next."""

    png: bytes
    caption: str

    @property
    def data_url(self) -> str:
        """The picture for an ``img`` tag."""
        return "data:image/png;base64," + base64.b64encode(self.png).decode()


@dataclass(frozen=True)
class Film:
    """One episode."""

    task: str
    goal: str
    success: bool
    seed: int
    frames: tuple[Frame, ...]
    left_out: int = 0
    """Frames in the middle that are not shown."""


def load_film(folder: Path, scale: float = 1.0) -> Film | None:
    """Read ``film.json`` and the pictures beside it; None when there is none or it is damaged.

    Args:
        folder: where they are: ``film.json`` with task, goal, success, seed and actions (caption, box), and
            one PNG per frame, in the order of their names.
        scale: pixels per CSS pixel, for the boxes of the nodes acted on.
    """
    from PIL import Image

    try:
        meta = json.loads((folder / "film.json").read_bytes())
        actions = list(meta.get("actions", []))
        pictures = []
        for path in sorted(folder.glob("*.png")):
            with Image.open(path) as image:
                pictures.append(image.convert("RGB"))
    except (OSError, ValueError, AttributeError, TypeError) as e:
        if folder.exists():
            logger.warning("no film strip: %s cannot be read: %s", folder, e)
        return None
    if not pictures:
        return None
    last = "success" if meta.get("success") else "no success"
    chosen = _choose(len(pictures))
    frames = []
    for index in chosen:
        action = actions[index] if index < len(actions) and isinstance(actions[index], dict) else None
        caption = str(action.get("caption", "")) if action else last
        frames.append(Frame(_encode(_marked(pictures[index], action, scale)), caption))
    return Film(
        task=str(meta.get("task", "")),
        goal=str(meta.get("goal", "")),
        success=bool(meta.get("success")),
        seed=int(meta.get("seed", 0)) if isinstance(meta.get("seed", 0), int) else 0,
        frames=tuple(frames),
        left_out=len(pictures) - len(chosen),
    )


def _choose(count: int) -> list[int]:
    """All frames, or the first ones and the last of a long episode."""
    if count <= _MOST_FRAMES:
        return list(range(count))
    return [*range(_MOST_FRAMES - 3), *range(count - 3, count)]


def _marked(picture: Image, action: dict[str, Any] | None, scale: float) -> Image:
    """The picture with a frame around the node that is about to be acted on."""
    from PIL import ImageDraw

    picture = picture.copy()
    box = action.get("box") if action else None
    if isinstance(box, list) and len(box) == 4 and all(isinstance(v, int | float) for v in box):
        x, y, width, height = (float(v) * scale for v in box)
        if width > 0 and height > 0:
            line = max(2, round(picture.width / 200))
            corners = (x - line, y - line, x + width + line, y + height + line)
            ImageDraw.Draw(picture).rectangle(corners, outline=_MARK, width=line)
    return picture


def _encode(picture: Image) -> bytes:
    buffer = BytesIO()
    picture.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def draw_strip(film: Film) -> bytes:
    """The film as one PNG: frames in rows of four, each over its caption, the goal on top."""
    from PIL import Image, ImageDraw

    margin, gap, caption_height, head = 28, 18, 46, 62
    title, small = _font(18), _font(14)
    pictures = []
    for frame in film.frames:
        with Image.open(BytesIO(frame.png)) as image:
            height = max(1, round(image.height * _WIDTH / image.width))
            pictures.append(image.convert("RGB").resize((_WIDTH, height), Image.Resampling.LANCZOS))
    columns = min(4, len(pictures))
    rows = -(-len(pictures) // columns)
    tallest = max(p.height for p in pictures)
    size = (
        2 * margin + columns * _WIDTH + (columns - 1) * gap,
        2 * margin + head + rows * (tallest + caption_height) + (rows - 1) * gap,
    )
    sheet = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(sheet)
    inside = size[0] - 2 * margin
    draw.text((margin, margin), _fit(draw, film.goal or film.task, title, inside), fill="#1c2330", font=title)
    verdict = "success" if film.success else "no success"
    below = f"{film.task}, seed {film.seed}: {verdict}"
    draw.text((margin, margin + 28), _fit(draw, below, small, inside), fill="#6b7485", font=small)
    for index, (picture, frame) in enumerate(zip(pictures, film.frames, strict=True)):
        row, column = divmod(index, columns)
        x = margin + column * (_WIDTH + gap)
        y = margin + head + row * (tallest + caption_height + gap)
        sheet.paste(picture, (x, y))
        draw.rectangle((x - 1, y - 1, x + picture.width, y + picture.height), outline="#d5dae3")
        last = index == len(pictures) - 1
        text = frame.caption if last else f"{index + 1}. {frame.caption}"
        colour = "#1b7f3b" if last and film.success else "#1c2330"
        draw.text((x, y + picture.height + 10), _fit(draw, text, small, _WIDTH), fill=colour, font=small)
    buffer = BytesIO()
    sheet.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _font(size: int) -> FreeTypeFont:
    """A font that comes with matplotlib: the same on every machine."""
    import matplotlib
    from PIL import ImageFont

    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf", size)


def _fit(draw: Any, text: str, font: FreeTypeFont, width: int) -> str:
    """The text, cut so that it fits in one line."""
    text = " ".join(text.split())
    if draw.textlength(text, font=font) <= width:
        return text
    shown: Sequence[str] = text
    while shown and draw.textlength(f"{shown}…", font=font) > width:
        shown = shown[:-1]
    return f"{shown}…"
