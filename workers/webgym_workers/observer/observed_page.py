"""A page with eyes: what it shows as nodes and as a picture, and its elements to act on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from webgym.errors import ProtocolError
from webgym.schema import FRAME_SHAPE
from webgym_workers.browser.faults import ElementFault, JavaScriptError
from webgym_workers.browser.page import Page
from webgym_workers.frames.ring import CELLS_PER_BROWSER, FrameRing
from webgym_workers.frames.source import FrameSource, open_frames
from webgym_workers.observer.element import Element, node_with_text
from webgym_workers.observer.framed import read_page
from webgym_workers.observer.snapshot import Node, PageSnapshot, observe_expression, observer_script

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webgym_workers.browser.slot import Browser

__all__ = ["Look", "ObservedPage", "open_observed_page"]


@dataclass(frozen=True)
class Look:
    """A page at one moment.

    Attributes:
        snapshot: Its nodes.
        frame: Its picture, uint8 (height, width, 3), RGB.
        settled: Whether it had come to rest; False when it was still changing as the time ran out.
    """

    snapshot: PageSnapshot
    frame: NDArray[np.uint8]
    settled: bool


class ObservedPage(Page):
    """A page that can be looked at; ``BrowserPool.page`` makes it.

    Attributes:
        frames: Where its pictures come from.
    """

    frames: FrameSource

    async def observe(self, budget: float = 1.0) -> PageSnapshot:
        """What the page shows, as nodes, once it has come to rest.

        Args:
            budget: Seconds that it may take to do so.

        Raises:
            BrowserFault: The page or its browser failed.
        """
        snapshot, _, _ = await self._read("null", budget)
        return snapshot

    async def frame(self, budget: float = 1.0) -> NDArray[np.uint8]:
        """A picture of the page once it has come to rest: uint8 (height, width, 3), RGB.

        It lies in a ring of a few; hold on to copies where many are kept.

        Args:
            budget: Seconds that the page may take to come to rest.

        Raises:
            BrowserFault: The page, its browser or its display failed.
        """
        read = await self.evaluate_settled(self.frames.mark(), budget)
        return await self.frames.take(read.value)

    async def look(self, budget: float = 1.0) -> Look:
        """Nodes and picture of the same moment; as :meth:`observe` and :meth:`frame`."""
        snapshot, settled, mark = await self._read(self.frames.mark(), budget)
        return Look(snapshot, await self.frames.take(mark), settled)

    async def find(
        self, selector: str | None = None, *, text: str | None = None, budget: float = 1.0
    ) -> Element:
        """An element, by one of two ways, once the page has come to rest.

        Args:
            selector: A CSS selector; the first match counts, open shadow roots and frames of the same origin included.
            text: What a person calls it: its words, its label or its value; frames of other origins included.
            budget: Seconds that the page may take to come to rest.

        Raises:
            ElementFault: There is none (``not found``), or the selector is none.
            BrowserFault: The page or its browser failed.
        """
        if (selector is None) == (text is None):
            raise TypeError("find() takes either a CSS selector or text=")
        if text is not None:
            node = node_with_text(await self.observe(budget), text)
            if node is None:
                raise ElementFault(f"text {text!r}", "not found")
            return Element(self, node, budget)
        assert selector is not None
        found = await self.find_all(selector, budget=budget)
        if not found:
            raise ElementFault(selector, "not found")
        return found[0]

    async def find_all(self, selector: str, *, budget: float = 1.0) -> list[Element]:
        """The elements that a CSS selector matches, at most 1,000; as :meth:`find`."""
        try:
            read = await self.evaluate_settled(f"__webgym_observer.find({json.dumps(selector)})", budget)
        except JavaScriptError as error:
            if "not a valid selector" in error.text:
                raise ElementFault(selector, "not a CSS selector") from error
            raise
        try:
            return [Element(self, Node.parse(row), budget) for row in read.value]
        except (IndexError, TypeError, ValueError) as error:
            raise JavaScriptError(f"the page's observer script answered nonsense: {error!r}") from error

    async def _read(self, mark: str, budget: float) -> tuple[PageSnapshot, bool, Any]:
        read = await read_page(self, f"({{page: {observe_expression()}, mark: {mark}}})", budget)
        answer = read.value if isinstance(read.value, dict) else {}
        try:
            return PageSnapshot.parse(answer.get("page")), read.settled, answer.get("mark")
        except ProtocolError as error:
            raise JavaScriptError(str(error)) from error


async def open_observed_page(
    browser: Browser,
    *,
    width: int | None = None,
    height: int | None = None,
    scripts: Sequence[str] = (),
    frame_shape: tuple[int, int, int] = FRAME_SHAPE,
) -> ObservedPage:
    """A blank page that can be looked at, on a borrowed browser.

    Args:
        browser: The browser.
        width: Viewport width, CSS pixels; None is the options'.
        height: Viewport height, CSS pixels; None is the options'.
        scripts: Scripts to run at document start in each of its documents.
        frame_shape: Of its pictures: height, width, 3.

    Raises:
        BrowserFault: The browser failed meanwhile.
        BrowserError: The page does not fit on its display.
    """
    page = await browser.open_page(
        ObservedPage, width=width, height=height, scripts=(observer_script(), *scripts)
    )
    page.frames = await open_frames(browser, page, FrameRing(frame_shape, CELLS_PER_BROWSER))
    return page
