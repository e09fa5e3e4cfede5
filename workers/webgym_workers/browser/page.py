"""A page: one tab in a browser context of its own, and the popups that it opens.

Everything that can go wrong has a type (:mod:`~webgym_workers.browser.faults`) and a deadline. Dialogs are
answered as they come, so that none holds up a call. A popup that an action opens becomes the tab in use until it is
closed or left by :meth:`Page.back`; others are closed as they come.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from dataclasses import replace
from itertools import groupby
from typing import Any, Self

from webgym_workers.browser.activity import TabActivity
from webgym_workers.browser.admission import Admission
from webgym_workers.browser.arrivals import Arrivals
from webgym_workers.browser.cdp import CDPClient, CDPSession
from webgym_workers.browser.faults import BrowserFault, CDPTimeout, TargetClosed
from webgym_workers.browser.interruptions import Dialog, Interruptions, guard_script
from webgym_workers.browser.keys import key_events, text_events
from webgym_workers.browser.popups import ARRIVAL_SECONDS, Popup, Tabs
from webgym_workers.browser.settings import TabSettings, let_go
from webgym_workers.browser.settle import Evaluation, Settled, settle_script
from webgym_workers.browser.subframes import Subframes
from webgym_workers.browser.tab import Tab
from webgym_workers.browser.window import window_bounds

__all__ = ["Page"]


class Page:
    """One page; made by :meth:`open`.

    Attributes:
        context: Id of its browser context.
        admission: Gives it its turns to load; None is at any time.
    """

    admission: Admission | None = None

    def __init__(
        self,
        client: CDPClient,
        context: str,
        settings: TabSettings,
        *,
        timeout: float = 2.0,
        navigation_timeout: float = 15.0,
        windowed: bool = False,
    ) -> None:
        self.context = context
        self._settings = settings
        self._client = client
        self._timeout = timeout
        self._navigation_timeout = navigation_timeout
        self._windowed = windowed
        self._frames_due = 0
        self._mouse = (0.0, 0.0)
        self._interruptions = Interruptions(client.browser)
        self._tabs = Tabs(client.browser, self._make_tab)
        self._depth = 0
        self._stop_arrivals = Arrivals.of(client).take(context, self._tabs.take)

    @classmethod
    async def open(
        cls,
        client: CDPClient,
        *,
        width: int = 800,
        height: int = 600,
        device_scale_factor: float = 1.0,
        timeout: float = 2.0,
        navigation_timeout: float = 15.0,
        locale: str | None = None,
        timezone: str | None = None,
        windowed: bool = False,
    ) -> Self:
        """A blank page in a fresh browser context.

        Args:
            client: The browser.
            width: Viewport width, CSS pixels.
            height: Viewport height, CSS pixels.
            device_scale_factor: Device pixels per CSS pixel.
            timeout: Deadline of a command, seconds.
            navigation_timeout: Seconds that a navigation which the page starts may go without an answer.
            locale: Language that pages see, or the browser's.
            timezone: Time zone that pages see, or the machine's.
            windowed: The browser has windows: the page gets one of its own, in the display's upper left corner and
                large enough to show all of it.

        Raises:
            BrowserFault: The browser failed meanwhile.
        """
        browser = client.browser
        # Making a tab is a launch in small; under load it takes longer than any command on a page.
        patience = max(10.0, timeout)
        await Arrivals.of(client).start(patience)
        # The tabs of a connection that comes back outlive it.
        made = await browser.call(
            "Target.createBrowserContext", {"disposeOnDetach": not client.recovers}, timeout=patience
        )
        context = str(made["browserContextId"])
        scripts = {"settle": settle_script(), "guard": guard_script()}
        settings = TabSettings((width, height), device_scale_factor, locale, timezone, scripts)
        page = cls(
            client,
            context,
            settings,
            timeout=timeout,
            navigation_timeout=navigation_timeout,
            windowed=windowed,
        )
        try:
            await browser.call(
                "Browser.setDownloadBehavior",
                {"behavior": "deny", "browserContextId": context},
                timeout=patience,
            )
            await browser.call(
                "Target.createTarget",
                {"url": "about:blank", "browserContextId": context}
                | window_bounds(width, height, windowed=windowed),
                timeout=patience,
            )
            tab = await page._tabs.open_first(patience)
            # Answered when all that it was given before is in place.
            await tab.session.call("Runtime.evaluate", {"expression": "1"}, timeout=patience)
        except BaseException:
            page._stop()
            browser.post("Target.disposeBrowserContext", {"browserContextId": context})
            raise
        return page

    def _make_tab(self, session: CDPSession, info: dict[str, Any]) -> Tab:
        """The tab of a session that waits: everything is in place before it goes on."""
        tab = Tab(
            session,
            str(info["targetId"]),
            self._prepare_frame,
            timeout=self._timeout,
            navigation_timeout=self._navigation_timeout,
        )
        if str(info.get("url", "")).startswith(("http", "file:", "data:", "blob:")):
            # A popup shows a blank document until the one it was opened for comes.
            tab.activity.expect_navigation()
        self._interruptions.watch(session, tab.target)
        self._tabs.watch(session)
        self._settings.prepare(session)
        session.post("Page.setLifecycleEventsEnabled", {"enabled": True})
        session.post("Inspector.enable")
        session.post("Emulation.setDeviceMetricsOverride", self._settings.metrics)
        Subframes.announce(session, self._timeout)
        let_go(session)
        return tab

    def _prepare_frame(self, session: CDPSession) -> None:
        """The session of a frame that has a process of its own."""
        self._interruptions.watch_frame(session)
        self._tabs.watch(session)
        self._settings.prepare(session)
        Subframes.announce(session, self._timeout)
        let_go(session)

    @property
    def viewport(self) -> tuple[int, int]:
        """Its width and height, CSS pixels."""
        return self._settings.viewport

    @property
    def tab(self) -> Tab:
        """The tab in use."""
        return self._tabs.current

    @property
    def session(self) -> CDPSession:
        """The DevTools session of the tab in use, for what this class does not offer."""
        return self._tabs.current.session

    @property
    def activity(self) -> TabActivity:
        """Requests and navigations in flight in the tab in use."""
        return self._tabs.current.activity

    @property
    def subframes(self) -> Subframes:
        """Frames of the tab in use that scripts of its document cannot look into."""
        return self._tabs.current.subframes

    @property
    def depth(self) -> int:
        """How many popups are open, the one in use included; 0 is the page's own tab."""
        return self._tabs.depth

    @property
    def dialogs(self) -> list[Dialog]:
        """The latest dialogs, oldest first; each was accepted, a prompt with its default."""
        return self._interruptions.dialogs

    @property
    def popups(self) -> list[Popup]:
        """The latest tabs and windows that the page opened, oldest first, and whether they were followed."""
        return self._tabs.popups

    @property
    def closed(self) -> bool:
        """Whether the page's own tab is gone: closed, crashed, or its browser ended."""
        return self._tabs.first.session.closed is not None

    @property
    def in_front(self) -> bool:
        """Whether the page's own tab is in use and no popup's window may lie over it any more."""
        return not self._tabs.depth and not self._tabs.closing

    async def set_viewport(self, width: int, height: int, device_scale_factor: float = 1.0) -> None:
        """Set the page's size in CSS pixels and how many device pixels make one."""
        self._settings.viewport, self._settings.scale = (width, height), device_scale_factor
        await self._call("Emulation.setDeviceMetricsOverride", self._settings.metrics)

    async def add_script(self, source: str) -> str:
        """Run ``source`` at document start in every document from now on, before the page's own scripts.

        It also runs at once in the document that is there. Frames and popups get it, too.

        Returns:
            An id for :meth:`remove_script`.
        """
        script = {"source": source, "runImmediately": True}
        for tab in self._tabs:
            for session in (tab.session, *tab.subframes.sessions):
                if session is not self.session:
                    session.post("Page.addScriptToEvaluateOnNewDocument", script)
        answer = await self._call("Page.addScriptToEvaluateOnNewDocument", script)
        self._settings.scripts[str(answer["identifier"])] = source
        return str(answer["identifier"])

    async def remove_script(self, id: str) -> None:
        """Install the script of this id no more."""
        self._settings.scripts.pop(id, None)
        await self._call("Page.removeScriptToEvaluateOnNewDocument", {"identifier": id})

    async def navigate(self, url: str, timeout: float | None = None) -> None:
        """Go to ``url`` and wait for its load event. Never tried twice.

        Among many pages of a pool it may have to wait for its turn first (:mod:`~webgym_workers.browser.admission`).

        Args:
            url: Where to.
            timeout: Seconds that it may take from its turn on; None is the page's own deadline of navigations.

        Raises:
            NavigationError: The page did not load (``reason`` is Chromium's, such as
                ``net::ERR_CONNECTION_REFUSED``) or not within ``timeout`` seconds (``timeout``).
            TargetCrashed: It crashed the tab.
            BrowserGone: The browser ended.
        """
        async with contextlib.nullcontext() if self.admission is None else self.admission.turn():
            await self.tab.navigate(url, self._navigation_timeout if timeout is None else timeout)

    async def back(self) -> bool:
        """Go back in the tab's history, which the next settled reading waits for.

        At the start of a popup's history the popup is closed, and what opened it is in use again.

        Returns:
            False where there is nothing to go back to.
        """
        return await self.tab.back() or await self._tabs.leave(self._timeout)

    def follow_popups(self) -> None:
        """Follow the popups that open from here until the next settled reading ends. Clicks and keys imply it."""
        self._tabs.expect()

    def close_popups(self) -> None:
        """Close all popups, so that the page's own tab is in use."""
        self._tabs.close_popups()

    async def evaluate(self, expression: str, *args: Any, timeout: float | None = None) -> Any:
        """The JSON value of an expression, or of a function applied to ``args``; promises are awaited.

        Raises:
            JavaScriptError: It threw, or its promise was rejected.
            CDPTimeout: No value in time: the page is in an endless loop, say.
            TargetCrashed, TargetClosed, BrowserGone: The tab or the browser is gone.
        """
        if args:
            expression = f"({expression})({','.join(json.dumps(a) for a in args)})"
        return await self.tab.evaluate(expression, self._timeout if timeout is None else timeout)

    async def evaluate_settled(self, expression: str, budget: float = 1.0, *, frames: int = 0) -> Evaluation:
        """Wait until the page is at rest, at most ``budget`` seconds, and evaluate in the same call.

        At rest: nothing loading or in flight on the network, two turns of the event loop without a mutation,
        no timer due shortly, no requested frame, no running finite animation. See ``settle.js`` for what is
        not waited for. A document that is replaced meanwhile is waited for and the new one read.

        Args:
            expression: A JavaScript expression (no statement); its JSON value is returned.
            budget: Seconds.
            frames: Animation frames to wait for in any case.

        Raises:
            JavaScriptError, CDPTimeout, TargetCrashed, TargetClosed, BrowserGone: As :meth:`evaluate`.
        """
        loop = asyncio.get_running_loop()
        start = loop.time()
        deadline = start + budget
        frames = max(frames, self._frames_due)
        self._frames_due = 0
        tabs = self._tabs
        while True:
            if tabs.arriving:
                await tabs.arrive(ARRIVAL_SECONDS)
            tab = tabs.current
            if tabs.depth != self._depth:
                self._depth = tabs.depth
                # Another page to load, in time of its own.
                deadline = loop.time() + budget
                if self._windowed:
                    tab.session.post("Page.bringToFront")
            try:
                read = await tab.evaluate_settled(expression, max(0.0, deadline - loop.time()), frames)
            except TargetClosed:
                # A popup that closed meanwhile; what opened it is what there is to see.
                if tabs.current is tab:
                    raise
                continue
            if tabs.current is tab and not tabs.arriving:
                tabs.settle_down()
                return replace(read, milliseconds=(loop.time() - start) * 1e3)

    async def settle(self, budget: float = 1.0) -> Settled:
        """Wait until the page is at rest, at most ``budget`` seconds; see :meth:`evaluate_settled`."""
        done = await self.evaluate_settled("null", budget)
        return Settled("quiet" if done.settled else "budget", done.milliseconds, done.background)

    async def wait_for_change(self, budget: float = 1.0) -> bool:
        """Wait until something on the page changes; False when ``budget`` seconds passed without."""
        return await self.tab.wait_for_change(budget)

    async def click(self, x: float, y: float, count: int = 1) -> None:
        """Click at a point of the viewport (CSS pixels); ``count`` 2 is a double click. Never sent twice."""
        where = {"x": x, "y": y, "button": "left"}
        self._mouse = (x, y)
        # The browser handles input in the order of arrival, and the press brings the move before it to the
        # page at once; so nothing is gained by waiting for each answer.
        events = [{"type": "mouseMoved", "x": x, "y": y}]
        for n in range(1, count + 1):
            events.append({**where, "type": "mousePressed", "clickCount": n, "buttons": 1})
            events.append({**where, "type": "mouseReleased", "clickCount": n, "buttons": 0})
        await self._input([("Input.dispatchMouseEvent", e) for e in events], self._timeout)

    async def hover(self, x: float, y: float) -> None:
        """Move the mouse to a point of the viewport (CSS pixels). The page sees it in its next frame."""
        self._mouse = (x, y)
        await self._call("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x, "y": y})

    async def scroll(self, dx: float, dy: float, x: float | None = None, y: float | None = None) -> None:
        """Turn the wheel by (dx, dy) CSS pixels over a point, by default where the mouse is."""
        x = self._mouse[0] if x is None else x
        y = self._mouse[1] if y is None else y
        await self._call(
            "Input.dispatchMouseEvent", {"type": "mouseWheel", "x": x, "y": y, "deltaX": dx, "deltaY": dy}
        )
        # Scroll events reach the page in the frame after the one that scrolled.
        self._frames_due = 2

    async def type_text(self, text: str) -> None:
        """Type into what has the focus: keys where a US keyboard has them, else inserted text."""
        commands = text_events(text)
        # One deadline for all of it: a long text takes longer than one key.
        timeout = self._timeout + 0.01 * len(commands)
        # Keys and insertions take different ways through the browser: one run at a time keeps order.
        for _, run in groupby(commands, key=lambda command: command[0]):
            await self._input(list(run), timeout)

    async def press(self, key: str) -> None:
        """Press and release a key: ``Enter``, ``Tab``, ``Backspace``, ``a``, ``Control+a``.

        Raises:
            ValueError: There is no such key.
        """
        await self._input([("Input.dispatchKeyEvent", e) for e in key_events(key)], self._timeout)

    async def _input(self, commands: list[tuple[str, dict[str, Any]]], timeout: float) -> None:
        self._tabs.expect()
        tab = self._tabs.current
        try:
            await asyncio.gather(*[tab.session.post(*command, timeout=timeout) for command in commands])
        except TargetClosed:
            # A popup that closes itself upon a click has taken the click.
            if self._tabs.current is tab:
                raise

    async def screenshot(self) -> bytes:
        """The viewport as PNG bytes."""
        answer = await self.session.call(
            "Page.captureScreenshot",
            {"format": "png", "optimizeForSpeed": True},
            timeout=max(10.0, self._timeout),
        )
        return base64.b64decode(answer["data"])

    async def close(self, timeout: float = 2.0) -> bool:
        """Close the tab and drop its context (cookies, storage), without asking the page.

        Returns:
            False when the browser did not do so in time: it hangs, and should be replaced.
        """
        self._stop()
        browser = self._client.browser
        try:
            await browser.call(
                "Target.disposeBrowserContext", {"browserContextId": self.context}, timeout=timeout
            )
        except CDPTimeout:
            return False
        except BrowserFault:
            pass
        for tab in self._tabs:
            tab.session.close(TargetClosed("the tab was closed"))
        return self._client.gone is None

    def _stop(self) -> None:
        self._interruptions.stop()
        self._tabs.stop()
        self._stop_arrivals()

    async def _call(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        return await self.session.call(method, params, timeout=self._timeout)
