"""A fixed number of browsers that are always there: started staggered, watched, replaced when they fail.

Each slot of a :class:`BrowserPool` is a :class:`Browser`, the same object for the pool's life whatever
becomes of the process behind it. Whoever uses a browser borrows it (``async with pool.browser(i) as
browser``) for as long as it likes, an episode say; faults that leave the block tell the pool what to
replace. Nobody waits for another slot.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from webgym.errors import BrowserError
from webgym.schema import FRAME_SHAPE
from webgym_workers.browser.admission import Admission
from webgym_workers.browser.faults import BrowserFault
from webgym_workers.browser.options import BrowserOptions
from webgym_workers.browser.page import Page
from webgym_workers.browser.proxy import EgressProxy
from webgym_workers.browser.slot import Browser, BrowserState, age_limit_of

__all__ = ["BrowserPool"]

if TYPE_CHECKING:
    from webgym_workers.observer.observed_page import ObservedPage

log = logging.getLogger(__name__)

AnyPage = TypeVar("AnyPage", bound=Page)


class BrowserPool:
    """Browsers that are kept alive.

    Use it as an asynchronous context manager; leaving it ends every browser, also on errors and cancellation.

    Args:
        options: How browsers are started.
        count: How many.
        parallel_launches: How many may start at the same time; by default one per core.
        memory_limit: Bytes above which a browser is replaced when nobody uses it.
        age_limit: Seconds after which a browser is replaced when nobody uses it.
        affinity: Cores that each browser may use, by slot; empty is what the options say.
        egress: A proxy that is opened before the browsers, used by all of them, and closed after them; None leaves
            them what the options say.
    """

    def __init__(
        self,
        options: BrowserOptions,
        count: int,
        *,
        parallel_launches: int | None = None,
        memory_limit: int | None = None,
        age_limit: float | None = None,
        affinity: Sequence[tuple[int, ...]] = (),
        egress: EgressProxy | None = None,
    ) -> None:
        self.options = options
        self.count = count
        self.egress = egress
        self._age_limit = age_limit
        self._affinity = affinity
        self._parallel = parallel_launches or os.cpu_count() or 1
        self._memory_limit = memory_limit
        self._browsers: list[Browser] = []
        self._returned = asyncio.Event()

    async def __aenter__(self) -> BrowserPool:
        """Begin to start the browsers; :meth:`browser` waits for the one it needs.

        Raises:
            BrowserError: There is no port for the browsers' proxy.
        """
        if self.egress is not None:
            try:
                await self.egress.open()
            except OSError as error:
                raise BrowserError(f"cannot open the browsers' proxy: {error.strerror}") from error
            self.options = replace(
                self.options, proxy=self.egress.address, proxy_bypass=self.egress.policy.bypass()
            )
        launching = asyncio.Semaphore(self._parallel)
        # Pages of a browser elsewhere load elsewhere.
        admission = Admission() if self.options.endpoint is None else None
        self._browsers = [
            Browser(
                index,
                replace(self.options, cpu_affinity=self._affinity[index]) if self._affinity else self.options,
                launching,
                self._memory_limit,
                age_limit_of(index, self._age_limit),
                admission,
            )
            for index in range(self.count)
        ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all browsers."""
        await self.close()

    async def close(self) -> None:
        """End all browsers and wait for the last; goes through even when the caller is cancelled meanwhile."""
        closing = asyncio.gather(*[browser.close() for browser in self._browsers], return_exceptions=True)
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await closing
            raise
        finally:
            for index, ended in enumerate(
                closing.result() if closing.done() and not closing.cancelled() else ()
            ):
                if isinstance(ended, Exception):
                    # The others ended all the same; this one's process is killed when we end.
                    log.error("browser %d could not be ended", index, exc_info=ended)
            # Last: a browser without its proxy reaches nothing, and calls that a fault of the network.
            if self.egress is not None:
                await self.egress.close()

    def __getitem__(self, index: int) -> Browser:
        """The browser of a slot, borrowed or not."""
        return self._browsers[index]

    async def ready(self) -> None:
        """Wait until every browser answers.

        Raises:
            BrowserError: One could not be started.
        """
        await asyncio.gather(*[browser.ready() for browser in self._browsers])

    @asynccontextmanager
    async def browser(self, index: int) -> AsyncIterator[Browser]:
        """Borrow the browser of a slot; waits while another borrower has it or it is being replaced.

        A :class:`~webgym_workers.browser.faults.BrowserFault` (or a cancellation) that leaves the block makes
        the pool drop what it broke before the next borrower comes.

        Raises:
            BrowserError: The browser cannot be started.
        """
        browser = self._browsers[index]
        async with browser._borrowed:
            await browser.ready()
            try:
                yield browser
            except (BrowserFault, asyncio.CancelledError) as error:
                with contextlib.suppress(BrowserFault):
                    await browser.after_fault(error)
                raise
            finally:
                browser.released()
                self._returned.set()

    @asynccontextmanager
    async def page(
        self,
        *,
        width: int | None = None,
        height: int | None = None,
        scripts: Sequence[str] = (),
        frame_shape: tuple[int, int, int] = FRAME_SHAPE,
    ) -> AsyncIterator[ObservedPage]:
        """A blank page on a browser that nobody has borrowed; waits for one. It is closed in the end.

        Args:
            width: Viewport width, CSS pixels; None is the options'.
            height: Viewport height, CSS pixels; None is the options'.
            scripts: Scripts to run at document start in each of its documents.
            frame_shape: Of its pictures: height, width, 3.

        Raises:
            BrowserError: The browser cannot be started, or the page does not fit on its display.
        """
        # Here, because it builds on this package.
        from webgym_workers.observer.observed_page import open_observed_page

        async with self.browser(await self._free()) as browser:
            page = await open_observed_page(
                browser, width=width, height=height, scripts=scripts, frame_shape=frame_shape
            )
            try:
                yield page
            finally:
                await browser.close_page(page)

    async def _free(self) -> int:
        """A browser that can be borrowed now, one that answers first; nothing may be awaited before it is borrowed."""
        while True:
            free = [browser for browser in self._browsers if not browser._borrowed.locked()]
            if free:
                order = [BrowserState.READY, BrowserState.STARTING, BrowserState.FAILED, BrowserState.CLOSED]
                return min(free, key=lambda browser: order.index(browser.state)).index
            self._returned.clear()
            await self._returned.wait()

    @property
    def alive(self) -> int:
        """Browsers that answer now."""
        return sum(browser.state is BrowserState.READY for browser in self._browsers)

    @property
    def sandbox_obstacle(self) -> str | None:
        """Why a browser runs without Chromium's sandbox, empty where all run in it; None where nobody can tell yet."""
        running = [browser.process for browser in self._browsers if browser.state is BrowserState.READY]
        if not running or self.options.endpoint is not None:
            return None
        return next((process.sandbox_obstacle for process in running if process.sandbox_obstacle), "")

    @property
    def restarts(self) -> Counter[str]:
        """Replacements of all slots, by reason."""
        return sum((browser.restarts for browser in self._browsers), Counter())

    def resident_bytes(self) -> list[int]:
        """Memory of each browser's processes, by slot."""
        return [browser.resident_bytes() for browser in self._browsers]
