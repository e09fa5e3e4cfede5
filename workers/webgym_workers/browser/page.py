"""A page: one tab in a browser context of its own.

Everything that can go wrong has a type (:mod:`~webgym_workers.browser.faults`) and a deadline. Dialogs are
answered and popups closed as they come, so that neither holds up a call; both are written down.
"""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

from webgym_workers.browser.activity import TabActivity
from webgym_workers.browser.cdp import CDPClient, CDPSession
from webgym_workers.browser.faults import (
    BrowserFault,
    CDPError,
    CDPTimeout,
    JavaScriptError,
    NavigationError,
    TargetClosed,
)
from webgym_workers.browser.interruptions import Dialog, Interruptions, Popup, guard_script
from webgym_workers.browser.keys import key_events, text_events
from webgym_workers.browser.navigation import LoadWatch, navigated_away
from webgym_workers.browser.settle import Evaluation, Settled, settle_expression, settle_script

__all__ = ["WINDOW_FRAME", "WINDOW_GAP", "Page"]

WINDOW_FRAME = 160
"""CSS pixels that a window has above its page: tabs and toolbar (87), and room for bars that warn of something."""
WINDOW_GAP = 16
"""CSS pixels that a display is wider than its widest window: one as wide as the display comes out a pixel short."""
_LEAST_WINDOW = 500
"""Chromium makes no window narrower."""


class Page:
    """One tab; made by :meth:`open`.

    Attributes:
        session: The DevTools session of the tab, for what this class does not offer.
        activity: Requests and navigations in flight.
        viewport: Its width and height, CSS pixels.
    """

    def __init__(
        self,
        client: CDPClient,
        session: CDPSession,
        target: str,
        context: str,
        *,
        timeout: float = 2.0,
        navigation_timeout: float = 15.0,
    ) -> None:
        self.session = session
        self.target = target
        self.context = context
        self.activity = TabActivity(session, target)
        self.viewport = (0, 0)
        self._client = client
        self._timeout = timeout
        self._navigation_timeout = navigation_timeout
        self._frames_due = 0
        self._mouse = (0.0, 0.0)
        self._interruptions = Interruptions(client.browser, session, target, context)

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
    ) -> Page:
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
        made = await browser.call("Target.createBrowserContext", {"disposeOnDetach": True}, timeout=patience)
        context = str(made["browserContextId"])
        try:
            await browser.call(
                "Browser.setDownloadBehavior",
                {"behavior": "deny", "browserContextId": context},
                timeout=patience,
            )
            window = {"width": width, "height": height}
            if windowed:
                window = {"width": max(_LEAST_WINDOW, width), "height": height + WINDOW_FRAME}
                window |= {"left": 0, "top": 0, "newWindow": True}
            created = await browser.call(
                "Target.createTarget",
                {"url": "about:blank", "browserContextId": context, **window},
                timeout=patience,
            )
            target = str(created["targetId"])
            attached = await browser.call(
                "Target.attachToTarget", {"targetId": target, "flatten": True}, timeout=patience
            )
            session = client.session(str(attached["sessionId"]))
            page = cls(
                client, session, target, context, timeout=timeout, navigation_timeout=navigation_timeout
            )
            post = page.session.post
            answers = [
                post("Page.enable", timeout=patience),
                post("Network.enable", timeout=patience),
                post("Page.setLifecycleEventsEnabled", {"enabled": True}, timeout=patience),
                post("Inspector.enable", timeout=patience),
                post("Emulation.setFocusEmulationEnabled", {"enabled": True}, timeout=patience),
            ]
            if locale:
                answers.append(post("Emulation.setLocaleOverride", {"locale": locale}, timeout=patience))
            if timezone:
                answers.append(
                    post("Emulation.setTimezoneOverride", {"timezoneId": timezone}, timeout=patience)
                )
            await asyncio.gather(*answers)
            await page.set_viewport(width, height, device_scale_factor)
            await page.add_script(settle_script())
            await page.add_script(guard_script())
        except BaseException:
            browser.post("Target.disposeBrowserContext", {"browserContextId": context})
            raise
        return page

    @property
    def dialogs(self) -> list[Dialog]:
        """The latest dialogs, oldest first; each was accepted, a prompt with its default."""
        return self._interruptions.dialogs

    @property
    def popups(self) -> list[Popup]:
        """The latest tabs and windows that the page opened and we closed, oldest first."""
        return self._interruptions.popups

    @property
    def closed(self) -> bool:
        """Whether the tab is gone: closed, crashed, or its browser ended."""
        return self.session.closed is not None

    async def set_viewport(self, width: int, height: int, device_scale_factor: float = 1.0) -> None:
        """Set the page's size in CSS pixels and how many device pixels make one."""
        await self._call(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": device_scale_factor, "mobile": False},
        )
        self.viewport = (width, height)

    async def add_script(self, source: str) -> str:
        """Run ``source`` at document start in every document from now on, before the page's own scripts.

        It also runs at once in the document that is there.

        Returns:
            An id for :meth:`remove_script`.
        """
        answer = await self._call(
            "Page.addScriptToEvaluateOnNewDocument", {"source": source, "runImmediately": True}
        )
        return str(answer["identifier"])

    async def remove_script(self, id: str) -> None:
        """Install the script of this id no more."""
        await self._call("Page.removeScriptToEvaluateOnNewDocument", {"identifier": id})

    async def navigate(self, url: str, timeout: float = 15.0) -> None:
        """Go to ``url`` and wait for its load event. Never tried twice.

        Raises:
            NavigationError: The page did not load (``reason`` is Chromium's, such as
                ``net::ERR_CONNECTION_REFUSED``) or not within ``timeout`` seconds (``timeout``).
            TargetCrashed: It crashed the tab.
            BrowserGone: The browser ended.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        loads = LoadWatch(self.session, self.activity.frame)
        try:
            try:
                answer = await self.session.call("Page.navigate", {"url": url}, timeout=timeout)
            except CDPTimeout:
                self.session.post("Page.stopLoading")
                raise NavigationError(url, "timeout") from None
            except CDPError as error:
                raise NavigationError(url, error.message) from None
            if answer.get("errorText"):
                # Chromium now shows an error page of its own; nothing of the site is there.
                raise NavigationError(url, str(answer["errorText"]))
            loader = answer.get("loaderId")
            # Without a loader it was a jump inside the document, which is done.
            if loader and not await loads.wait(str(loader), deadline - loop.time()):
                self.session.post("Page.stopLoading")
                raise NavigationError(url, "timeout")
        finally:
            loads.stop()

    async def back(self) -> bool:
        """Go back in the tab's history and wait for the page; False where there is nothing to go back to."""
        history = await self._call("Page.getNavigationHistory")
        index = int(history["currentIndex"])
        # The first entry is the blank page that every tab starts with.
        if index <= 0 or history["entries"][index - 1]["url"] == "about:blank":
            return False
        self.activity.expect_navigation()
        await self._call("Page.navigateToHistoryEntry", {"entryId": history["entries"][index - 1]["id"]})
        return True

    async def evaluate(self, expression: str, *args: Any, timeout: float | None = None) -> Any:
        """The JSON value of an expression, or of a function applied to ``args``; promises are awaited.

        Raises:
            JavaScriptError: It threw, or its promise was rejected.
            CDPTimeout: No value in time: the page is in an endless loop, say.
            TargetCrashed, TargetClosed, BrowserGone: The tab or the browser is gone.
        """
        if args:
            expression = f"({expression})({','.join(json.dumps(a) for a in args)})"
        limit = self._timeout if timeout is None else timeout
        return await self._evaluate(expression, limit)

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
        activity = self.activity
        in_time = True
        while True:
            if not activity.idle:
                in_time = await activity.wait_idle(deadline - loop.time())
                if not in_time and not activity.committed:
                    await self._end_navigation(start + self._navigation_timeout - loop.time())
            left = max(0.0, deadline - loop.time()) if in_time else 0.0
            try:
                quiet, _, background, value = await self._evaluate(
                    settle_expression(expression, left, frames), left + self._timeout
                )
            except CDPTimeout:
                if activity.committed:
                    raise
                # It waits behind a navigation that began just before it.
                in_time = False
                await self._end_navigation(start + self._navigation_timeout - loop.time())
                continue
            except CDPError as error:
                if not navigated_away(error) or loop.time() > deadline + self._timeout:
                    raise
                # The document was replaced while we read it; the one that comes is what there is to see.
                if activity.idle:
                    activity.expect_navigation()
                    await activity.wait_idle(min(0.25, max(0.01, deadline - loop.time())))
                continue
            if activity.idle or not in_time:
                break
            if loop.time() >= deadline:
                in_time = False
                break
            frames = 0
        background += len(activity.background)
        if not in_time:
            activity.let_go()
        return Evaluation(value, bool(quiet) and in_time, (loop.time() - start) * 1e3, background)

    async def _end_navigation(self, timeout: float) -> None:
        """Wait for a navigation that has no answer yet, or call it off: until then nothing can be read."""
        if not await self.activity.wait_committed(timeout):
            self.session.post("Page.stopLoading")
            await self.activity.wait_committed(self._timeout)

    async def settle(self, budget: float = 1.0) -> Settled:
        """Wait until the page is at rest, at most ``budget`` seconds; see :meth:`evaluate_settled`."""
        done = await self.evaluate_settled("null", budget)
        return Settled("quiet" if done.settled else "budget", done.milliseconds, done.background)

    async def wait_for_change(self, budget: float = 1.0) -> bool:
        """Wait until something on the page changes; False when ``budget`` seconds passed without."""
        expression = f"typeof __webgym_settle==='object'&&__webgym_settle.change({budget * 1000:.0f})"
        try:
            return bool(await self._evaluate(expression, budget + self._timeout))
        except CDPError as error:
            if navigated_away(error):
                return True
            raise

    async def click(self, x: float, y: float, count: int = 1) -> None:
        """Click at a point of the viewport (CSS pixels); ``count`` 2 is a double click. Never sent twice."""
        where = {"x": x, "y": y, "button": "left"}
        self._mouse = (x, y)
        post = self.session.post
        # The browser handles input in the order of arrival, and the press brings the move before it to the
        # page at once; so nothing is gained by waiting for each answer.
        events = [{"type": "mouseMoved", "x": x, "y": y}]
        for n in range(1, count + 1):
            events.append({**where, "type": "mousePressed", "clickCount": n, "buttons": 1})
            events.append({**where, "type": "mouseReleased", "clickCount": n, "buttons": 0})
        await asyncio.gather(*[post("Input.dispatchMouseEvent", e, timeout=self._timeout) for e in events])

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
        start = 0
        while start < len(commands):
            method = commands[start][0]
            end = start
            while end < len(commands) and commands[end][0] == method:
                end += 1
            # Keys and insertions take different ways through the browser: one run at a time keeps order.
            await asyncio.gather(
                *[self.session.post(method, params, timeout=timeout) for _, params in commands[start:end]]
            )
            start = end

    async def press(self, key: str) -> None:
        """Press and release a key: ``Enter``, ``Tab``, ``Backspace``, ``a``, ``Control+a``.

        Raises:
            ValueError: There is no such key.
        """
        post = self.session.post
        events = key_events(key)
        await asyncio.gather(*[post("Input.dispatchKeyEvent", e, timeout=self._timeout) for e in events])

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
        self._interruptions.stop()
        browser = self._client.browser
        try:
            await browser.call(
                "Target.disposeBrowserContext", {"browserContextId": self.context}, timeout=timeout
            )
        except CDPTimeout:
            return False
        except BrowserFault:
            pass
        self.session.close(TargetClosed("the tab was closed"))
        return self._client.gone is None

    async def _call(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        return await self.session.call(method, params, timeout=self._timeout)

    async def _evaluate(self, expression: str, timeout: float) -> Any:
        answer = await self.session.call(
            "Runtime.evaluate",
            {"expression": expression, "returnByValue": True, "awaitPromise": True, "userGesture": True},
            timeout=timeout,
        )
        thrown = answer.get("exceptionDetails")
        if thrown is not None:
            exception = thrown.get("exception") or {}
            raise JavaScriptError(
                str(exception.get("description") or exception.get("value") or thrown.get("text"))
            )
        return answer["result"].get("value")
