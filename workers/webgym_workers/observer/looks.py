"""What nodes look like in words: colour, shape and size, so that "the small red circle" can be told from the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from webgym_workers.observer.colors import COLOR_WORDS, color_name, hue_name
from webgym_workers.observer.snapshot import Node

__all__ = ["LOOK_WORDS", "Looks", "looks_of"]

_SHAPES = {
    "circle": ("circle", "shape"),
    "ellipse": ("ellipse", "oval", "shape"),
    "rect": ("rectangle", "square", "box", "shape"),
    "triangle": ("triangle", "shape"),
    "polygon": ("polygon", "shape"),
    "path": ("shape",),
}
"""By tag, or by what the observer calls the type of a polygon."""
_SMALL, _LARGE = ("small", "little", "tiny"), ("large", "big", "huge")
_ALIKE = 1.4
"""Sizes that differ by less than this are one size."""

LOOK_WORDS = COLOR_WORDS.union(
    *(_SMALL, _LARGE, *_SHAPES.values()),
    ("letter", "digit", "shapes", "letters", "digits", "circles", "rectangles", "squares", "triangles"),
) - {"box"}
"""Words of an instruction that say how something looks."""


@dataclass(frozen=True, slots=True)
class Looks:
    """What can be said of one node."""

    words: frozenset[str]
    form: frozenset[str] = frozenset()
    """Those that say what figure it is; empty for what is none."""
    hue: str = ""
    """The family that its colour belongs to."""
    named: bool = False
    """Whether the colour has a name of its own."""

    def fit(self, wanted: frozenset[str], *, shades: bool = False) -> float:
        """The share of ``wanted`` words that are true of it, in [0, 1].

        Args:
            wanted: Words for looks.
            shades: Whether a colour's family counts as much as its name; else it counts half, where there is no name.
        """
        if not wanted:
            return 0.0
        family = 1.0 if shades else 0.0 if self.named else 0.5
        return sum(1.0 if word in self.words else family * (word == self.hue) for word in wanted) / len(
            wanted
        )


_PLAIN = Looks(frozenset())


def looks_of(nodes: Sequence[Node]) -> list[Looks]:
    """The looks of each node, its size in comparison with the other figures among them."""
    heights = [n.height for n in nodes if _figure(n) and n.height > 0]
    middle = (min(heights) * max(heights)) ** 0.5 if heights else 0.0
    one_size = not heights or max(heights) < _ALIKE * min(heights)
    return [_looks(node, middle, one_size=one_size) for node in nodes]


def _figure(node: Node) -> tuple[str, ...]:
    """Words for its form; empty for what is no figure."""
    if node.tag in ("text", "tspan"):
        text = node.text.strip()
        if len(text) != 1:
            return ()
        return ("digit", "number") if text.isdigit() else ("letter",) if text.isalpha() else ("character",)
    return _SHAPES.get(node.type if node.tag == "polygon" and node.type else node.tag, ())


def _looks(node: Node, middle: float, *, one_size: bool) -> Looks:
    form = _figure(node)
    colors = color_name(node.color).split()
    if not form and not node.color:
        return _PLAIN
    size: tuple[str, ...] = ()
    if form:
        size = (*_SMALL, *_LARGE) if one_size else _LARGE if node.height > middle else _SMALL
    plural = tuple(f"{word}s" for word in form)
    return Looks(
        frozenset((*form, *plural, *colors, *size)),
        frozenset(form) - {"shape"},
        hue_name(node.color),
        bool(colors),
    )
