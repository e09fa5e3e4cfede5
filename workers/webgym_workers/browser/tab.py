"""A tab: one document at a time, read when it has come to rest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from webgym_workers.browser.activity import TabActivity
from webgym_workers.browser.cdp import CDPSession
from webgym_workers.browser.faults import CDPError, CDPTimeout, JavaScriptError, NavigationError
from webgym_workers.browser.navigation import LoadWatch, navigated_away
from webgym_workers.browser.settle import Evaluation, settle_expression
from webgym_workers.browser.subframes import Subframes

__all__ = ["Tab"]


class Tab:
    """One tab of a page.

    Args:
        session: Its DevTools session.
        target: Its target's id, which is its main frame's, too.
        prepare: Makes the session of a frame that has a process of its own ready, before the frame runs anything.
        timeout: Deadline of a command, seconds.
        navigation_timeout: Seconds that a navigation which the page starts may go without an answer.

    Attributes:
        activity: Requests and navigations in flight.
        subframes: Its frames that scripts of its own cannot look into.
    """

    def __init__(
        self,
        session: CDPSession,
        target: str,
        prepare: Callable[[CDPSession], None],
        *,
        timeout: float,
        navigation_timeout: float,
    ) -> None:
        self.session = session
        self.target = target
        self.activity = TabActivity(session, target)
        self.subframes = Subframes(session, prepare, timeout)
        self._timeout = timeout
        self._navigation_timeout = navigation_timeout

    async def navigate(self, url: str, timeout: float) -> None:
        """See :meth:`webgym_workers.browser.page.Page.navigate`."""
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
        """Go back in the history; False where there is nothing to go back to."""
        history = await self.session.call("Page.getNavigationHistory", timeout=self._timeout)
        index = int(history["currentIndex"])
        # The first entry is the blank page that every tab starts with.
        if index <= 0 or history["entries"][index - 1]["url"] == "about:blank":
            return False
        self.activity.expect_navigation()
        entry = {"entryId": history["entries"][index - 1]["id"]}
        await self.session.call("Page.navigateToHistoryEntry", entry, timeout=self._timeout)
        return True

    async def evaluate(self, expression: str, timeout: float) -> Any:
        """The JSON value of an expression; see :meth:`webgym_workers.browser.page.Page.evaluate`."""
        answer = await self.session.call(
            "Runtime.evaluate",
            {"expression": expression, "returnByValue": True, "awaitPromise": True, "userGesture": True},
            timeout=timeout,
        )
        thrown = answer.get("exceptionDetails")
        if thrown is not None:
            raise JavaScriptError.of(thrown)
        return answer["result"].get("value")

    async def evaluate_settled(self, expression: str, budget: float, frames: int) -> Evaluation:
        """See :meth:`webgym_workers.browser.page.Page.evaluate_settled`."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        deadline = start + budget
        activity = self.activity
        in_time = True
        while True:
            if not activity.idle:
                in_time = await activity.wait_idle(deadline - loop.time())
                if not in_time and not activity.committed:
                    await self._end_navigation(start + self._navigation_timeout - loop.time())
            left = max(0.0, deadline - loop.time()) if in_time else 0.0
            try:
                quiet, _, background, value = await self.evaluate(
                    settle_expression(expression, left, frames), left + self._timeout
                )
            except CDPTimeout:
                if activity.committed:
                    raise
                # It waits behind a navigation that began just before it.
                in_time = False
                await self._end_navigation(start + self._navigation_timeout - loop.time())
                continue
            except (CDPError, JavaScriptError) as error:
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

    async def wait_for_change(self, budget: float) -> bool:
        """See :meth:`webgym_workers.browser.page.Page.wait_for_change`."""
        expression = f"typeof __webgym_settle==='object'&&__webgym_settle.change({budget * 1000:.0f})"
        try:
            return bool(await self.evaluate(expression, budget + self._timeout))
        except CDPError as error:
            if navigated_away(error):
                return True
            raise
