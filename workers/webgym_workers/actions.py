"""The twelve actions, carried out on a page with real input events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webgym.schema import Action, ActionKind, Schema
from webgym_workers.browser.faults import ElementFault
from webgym_workers.observer import framed
from webgym_workers.observer.element import Element
from webgym_workers.observer.features import View

if TYPE_CHECKING:
    from webgym_workers.browser.page import Page

__all__ = ["is_valid", "perform"]


def is_valid(action: Action, view: View, schema: Schema) -> bool:
    """Whether the mask of the observation that the action answers allows it."""
    try:
        return bool(view.observation["action_mask"][schema.encode(action)])
    except ValueError:
        return False


async def perform(page: Page, action: Action, view: View, *, budget: float) -> str | None:
    """Carry out a valid action.

    Args:
        page: the page to act on.
        action: an action for which :func:`is_valid` holds.
        view: the observation that the action answers.
        budget: seconds that a wait may last when nothing changes, and the page after the click into a field that is
            typed into.

    Returns:
        None when it was done, else why nothing was done (the page moved on since it was observed).

    Raises:
        BrowserFault: the page, or its browser, broke.
    """
    kind, node_row, text_row = action
    page.follow_popups()
    if kind is ActionKind.PRESS_ENTER:
        await page.press("Enter")
        return None
    if kind is ActionKind.PRESS_TAB:
        await page.press("Tab")
        return None
    if kind in (ActionKind.SCROLL_UP, ActionKind.SCROLL_DOWN):
        direction = -1 if kind is ActionKind.SCROLL_UP else 1
        return None if await framed.scroll(page, direction) else "nothing to scroll"
    if kind is ActionKind.BACK:
        return None if await page.back() else "nothing to go back to"
    if kind is ActionKind.WAIT:
        await page.wait_for_change(budget)
        return None

    element = Element(page, view.nodes[node_row], budget)
    try:
        if kind is ActionKind.SELECT_OPTION:
            await element.select(view.texts[text_row])
        elif kind is ActionKind.CLEAR:
            await element.clear()
        elif kind is ActionKind.HOVER:
            await element.hover()
        elif kind is ActionKind.TYPE:
            await element.type(view.texts[text_row])
        else:
            await element.click(count=2 if kind is ActionKind.DOUBLE_CLICK else 1)
    except ElementFault as fault:
        return fault.reason
    return None
