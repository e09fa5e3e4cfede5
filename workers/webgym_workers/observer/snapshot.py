"""What the observer script read off a page: typed, with nothing but plain data."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from enum import IntEnum
from importlib.resources import files
from typing import Any

from webgym.errors import ProtocolError

__all__ = ["Node", "NodeFlag", "PageSnapshot", "observe_expression", "observer_script"]


class NodeFlag(IntEnum):
    """Bits of a node's state, as the observer script numbers them.

    Not an IntFlag: its operators make an object for each test of a bit, a tenth of the time that features take.
    """

    INTERACTIVE = 1
    CHECKED = 2
    FOCUSED = 4
    DISABLED = 8
    HIT = 16
    """A click at the node's middle would reach the node."""
    OFFSCREEN = 32
    """Outside the viewport or scrolled out of its container; an action scrolls it into view first."""
    DBLCLICK = 64
    HOVER = 128
    EDITABLE = 256
    MULTIPLE = 512
    READONLY = 1024


@dataclass(frozen=True, slots=True)
class Node:
    """One element of the page, geometry in CSS pixels of the viewport."""

    id: int
    tag: str
    type: str
    text: str
    label: str
    attributes: str
    context: str
    value: str | None
    options: tuple[str, ...] | None
    x: float
    y: float
    width: float
    height: float
    flags: int
    """Bits of :class:`NodeFlag`."""
    color: str
    frame: int = 0
    """The observer's number of the frame that a script of the page cannot look into and that holds the node; 0 none."""

    @classmethod
    def parse(cls, row: Any) -> Node:
        """Build a node from a row of the observer script's.

        Raises:
            IndexError, TypeError, ValueError: It is none.
        """
        return cls(
            int(row[0]), str(row[1]), str(row[2]), str(row[3]), str(row[4]), str(row[5]), str(row[6]),
            None if row[7] is None else str(row[7]),
            None if row[8] is None else tuple(map(str, row[8])),
            _finite(row[9]), _finite(row[10]), _finite(row[11]), _finite(row[12]), int(row[13]), str(row[14]),
            int(row[15]) if len(row) > 15 else 0,
        )  # fmt: skip

    @property
    def caption(self) -> str:
        """What a person would call the node: its text, else its label, else its value if that is no free text."""
        return self.text or self.label or ("" if self.flags & NodeFlag.EDITABLE else self.value or "")


@dataclass(frozen=True, slots=True)
class PageSnapshot:
    """The page at one moment: interactive nodes first, each group in document order."""

    url: str
    title: str
    width: int
    height: int
    can_scroll_up: bool
    can_scroll_down: bool
    scroll: float
    focus: int
    """0 nothing focused, 1 an element, 2 a text field."""
    truncated: bool
    nodes: tuple[Node, ...]

    @classmethod
    def parse(cls, raw: Any) -> PageSnapshot:
        """Build a snapshot from the observer script's JSON.

        Raises:
            ProtocolError: the value is not what the script returns (a page tampered with it).
        """
        try:
            nodes = tuple(map(Node.parse, raw["nodes"]))
            return cls(
                str(raw["url"]),
                str(raw["title"]),
                int(raw["width"]),
                int(raw["height"]),
                bool(raw["up"]),
                bool(raw["down"]),
                _finite(raw["scroll"]),
                int(raw["focused"]),
                bool(raw["truncated"]),
                nodes,
            )
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ProtocolError(f"the page's observer script answered nonsense: {error!r}") from error


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{number} is no length")
    return number


def observer_script() -> str:
    """The script to install at document start in every page."""
    return (files("webgym_workers.observer") / "observe.js").read_text(encoding="utf-8")


def observe_expression(exclude: str = "") -> str:
    """JavaScript that reads the page, without the elements that the CSS selector ``exclude`` matches.

    Its value is for :func:`~webgym_workers.observer.framed.read_page`, which unpacks it.
    """
    return f"__webgym_observer.packed({json.dumps(exclude)})"
