"""Elements of a page to act on: each action at the right pixel, with real input, or a typed reason why not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from webgym_workers.browser.faults import ElementFault, JavaScriptError
from webgym_workers.observer import framed
from webgym_workers.observer.snapshot import Node, PageSnapshot

if TYPE_CHECKING:
    from webgym_workers.browser.page import Page

__all__ = ["Element", "node_with_text"]


class Element:
    """One element; it stays the same while its document is there, wherever it moves.

    Every action says what it raises by type: ``ElementFault`` when the element cannot be acted on (nothing was done
    then), another ``BrowserFault`` when the page or its browser failed.

    Args:
        page: Its page, with the observer's script.
        node: The element, as it was observed.
        budget: Seconds that the page may take to come to rest after the click into a field that is typed into.
    """

    def __init__(self, page: Page, node: Node, budget: float = 1.0) -> None:
        self.node = node
        self._page = page
        self._budget = budget

    def __repr__(self) -> str:
        return f"<Element {self._what}>"

    @property
    def _what(self) -> str:
        caption = self.node.caption[:40]
        return f"{self.node.tag} {caption!r}" if caption else self.node.tag

    async def locate(self) -> tuple[float, float]:
        """A point of the viewport, in CSS pixels, where a click reaches the element; scrolled into view if need be.

        Raises:
            ElementFault: It is ``gone``, or ``covered`` by something else.
        """
        point = await framed.locate(self._page, self.node)
        if "error" in point:
            raise ElementFault(self._what, str(point["error"]))
        try:
            return float(point["x"]), float(point["y"])
        except (KeyError, TypeError, ValueError):
            raise JavaScriptError(f"the page tampered with where its elements are: {point!r:.80}") from None

    async def click(self, count: int = 1) -> None:
        """Click it; ``count`` 2 is a double click. Never sent twice."""
        x, y = await self.locate()
        await self._page.click(x, y, count=count)

    async def hover(self) -> None:
        """Move the mouse over it."""
        x, y = await self.locate()
        await self._page.hover(x, y)

    async def type(self, text: str) -> None:
        """Click into the field and type, in place of what it held; date, time and colour fields are set.

        Raises:
            ElementFault: It takes no such text (``unfocusable``, ``not a value for this field``), after the click.
        """
        await self.click()
        # The click may make the page do something: many fields select all of their text a little later.
        prepare = f"__webgym_observer.prepareTyping({self.node.id}, {json.dumps(text)})"
        how = await framed.evaluate_settled(self._page, self.node, prepare, self._budget)
        if how == "type":
            await self._page.type_text(text)
        elif how != "set":
            raise ElementFault(self._what, str(how or "gone"))

    async def clear(self) -> None:
        """Empty the field."""
        cleared = await framed.evaluate(self._page, self.node, f"__webgym_observer.clear({self.node.id})")
        if not cleared:
            raise ElementFault(self._what, "field is gone")

    async def select(self, option: str) -> None:
        """Choose an option of a ``select`` by the words that people see.

        Raises:
            ElementFault: It has ``no such option any more``.
        """
        choose = f"__webgym_observer.choose({self.node.id}, {json.dumps(option)})"
        if not await framed.evaluate(self._page, self.node, choose):
            raise ElementFault(self._what, "no such option any more")


def node_with_text(snapshot: PageSnapshot, text: str) -> Node | None:
    """The node that a person means by ``text``, or None.

    Exact captions come before those equal but for case, these before those that contain it; of equals an interactive
    one, then the one with the shortest caption, then the first.
    """
    wanted = " ".join(text.split())
    folded = wanted.casefold()

    def rank(node: Node) -> int | None:
        for caption in (node.text, node.label, node.caption):
            if caption == wanted:
                return 0
        captions = [node.text.casefold(), node.label.casefold(), node.caption.casefold()]
        if folded in captions:
            return 1
        return 2 if any(folded in caption for caption in captions) else None

    # A snapshot has its interactive nodes first, and sorting keeps that order among equals.
    ranked = [
        (found, len(node.caption), node) for node in snapshot.nodes if (found := rank(node)) is not None
    ]
    if not wanted or not ranked:
        return None
    best = min(found for found, _, _ in ranked)
    same = [(length, node) for found, length, node in ranked if found == best]
    return same[0][1] if best < 2 else min(same, key=lambda each: each[0])[1]
