"""The browser engine: Chromium processes over the DevTools pipe, pages that settle, faults with types.

It knows nothing of reinforcement learning and can be used on its own::

    async with BrowserPool(BrowserOptions(), 3) as pool, pool.page() as page:
        await page.navigate("https://example.org/")
        await (await page.find(text="Learn more")).click()
        look = await page.look()
        print(look.snapshot.title, look.frame.shape, page.dialogs, page.popups)

``docs/engine.md`` describes it. From the bottom up: ``find`` and ``flags`` (which program, started how), ``profile``
and ``starter`` (the operating system's side), ``transport``, ``pipe`` and ``websocket`` (how messages travel),
``command``, ``session`` and ``cdp`` (the protocol), ``journal`` and ``reconnect`` (a connection that comes back),
``chromium`` and ``remote`` (one browser, ours or elsewhere), ``page`` with ``tab``, ``popups``, ``settle``,
``activity``, ``navigation`` and ``interruptions``, ``pool`` and ``slot`` (browsers that are always there), ``faults``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from webgym_workers.browser import faults
    from webgym_workers.browser.options import BrowserOptions
    from webgym_workers.browser.page import Page
    from webgym_workers.browser.pool import BrowserPool
    from webgym_workers.browser.slot import Browser
    from webgym_workers.observer.element import Element
    from webgym_workers.observer.observed_page import Look, ObservedPage
    from webgym_workers.observer.snapshot import Node, NodeFlag, PageSnapshot

__all__ = [
    "Browser",
    "BrowserOptions",
    "BrowserPool",
    "Element",
    "Look",
    "Node",
    "NodeFlag",
    "ObservedPage",
    "Page",
    "PageSnapshot",
    "faults",
]

_PLACES = {
    "Browser": "webgym_workers.browser.slot",
    "BrowserOptions": "webgym_workers.browser.options",
    "BrowserPool": "webgym_workers.browser.pool",
    "Element": "webgym_workers.observer.element",
    "Look": "webgym_workers.observer.observed_page",
    "Node": "webgym_workers.observer.snapshot",
    "NodeFlag": "webgym_workers.observer.snapshot",
    "ObservedPage": "webgym_workers.observer.observed_page",
    "Page": "webgym_workers.browser.page",
    "PageSnapshot": "webgym_workers.observer.snapshot",
}


def __getattr__(name: str) -> Any:
    # On first use: the observer builds on this package, and whoever wants one of its modules needs not load them all.
    if name == "faults":
        return import_module("webgym_workers.browser.faults")
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
