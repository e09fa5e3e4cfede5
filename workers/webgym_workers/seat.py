"""One actor's browser: started when needed, replaced when it breaks, showing the page of one task at a time."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from webgym.protocol import EpisodeTask
from webgym.schema import Schema
from webgym.spec import Browser
from webgym_workers.browser.chromium import BrowserOptions, ChromiumProcess
from webgym_workers.browser.faults import BrowserFault, BrowserGone
from webgym_workers.browser.page import Page
from webgym_workers.episode import Episode, init_scripts
from webgym_workers.tasks.registry import create_task

__all__ = ["BrowserSeat", "Launch", "browser_options"]

logger = logging.getLogger(__name__)

Launch = Callable[[BrowserOptions], Awaitable[ChromiumProcess]]

_MOST_EPISODES = 20_000
"""Episodes after which a browser is replaced although nothing is wrong: what leaks in it is gone then."""


class BrowserSeat:
    """A place for one browser.

    Args:
        options: how browsers are started.
        schema: of the observations.
        settle_budget: seconds that a page may take to come to rest.
        launch: starts a browser; for tests.
    """

    def __init__(
        self,
        options: BrowserOptions,
        schema: Schema,
        settle_budget: float,
        launch: Launch = ChromiumProcess.launch,
    ) -> None:
        self._options = options
        self._schema = schema
        self._settle_budget = settle_budget
        self._launch = launch
        self._browser: ChromiumProcess | None = None
        self._page: Page | None = None
        self._episode: Episode | None = None
        self._key = ""
        self._played = 0
        self.restarts = 0
        """Browsers replaced so far."""

    @property
    def alive(self) -> bool:
        """Whether there is a browser, and it lives."""
        return self._browser is not None and self._browser.alive

    @property
    def browser(self) -> ChromiumProcess | None:
        """The browser that sits here now."""
        return self._browser

    async def start(self) -> None:
        """Have a browser.

        Raises:
            BrowserError: none can be started.
        """
        if self.alive:
            return
        if self._browser is not None:
            self.restarts += 1
            await self._drop_browser()
        self._browser = await self._launch(self._options)

    async def episode(self, task: EpisodeTask) -> Episode:
        """The driver for a task, on a working page; the page stays while the task does.

        Raises:
            BrowserFault: the browser broke meanwhile.
            TaskError: there is no such task.
        """
        if self._played >= _MOST_EPISODES:
            await self._drop_browser()
        await self.start()
        key = f"{task.task} {sorted(task.params.items())}"
        if self._episode is None or self._key != key or self._page is None or self._page.closed:
            await self._open(task)
            self._key = key
        assert self._episode is not None
        self._played += 1
        return self._episode

    async def discard(self, fault: BaseException) -> None:
        """The page broke: drop it, and the browser too unless it closes the page in time."""
        page, self._page, self._episode = self._page, None, None
        broken = isinstance(fault, BrowserGone) or self._browser is None or not self._browser.alive
        if page is not None and not broken:
            broken = not await page.close()
        if broken:
            self.restarts += 1
            await self._drop_browser()

    async def close(self) -> None:
        """End the browser."""
        await self._drop_browser()

    async def _open(self, task: EpisodeTask) -> None:
        assert self._browser is not None
        page, self._page, self._episode = self._page, None, None
        if page is not None and not page.closed and not await page.close():
            raise BrowserGone("the browser did not close a page in time")
        made = create_task(task.task, dict(task.params))
        width, height = made.viewport
        self._page = await Page.open(
            self._browser.client,
            width=width,
            height=height,
            device_scale_factor=self._options.device_scale_factor,
            timeout=self._options.action_timeout,
            locale=self._options.locale,
            timezone=self._options.timezone,
        )
        for script in init_scripts(made):
            await self._page.add_script(script)
        self._episode = Episode(
            self._page,
            made,
            self._schema,
            settle_budget=self._settle_budget,
            navigation_timeout=self._options.navigation_timeout,
        )

    async def _drop_browser(self) -> None:
        browser, self._browser = self._browser, None
        self._page = self._episode = None
        self._played = 0
        if browser is not None:
            try:
                await browser.stop(graceful=False)
            except BrowserFault as fault:
                logger.debug("while stopping a browser: %s", fault)


def browser_options(spec: Browser) -> BrowserOptions:
    """The options of a manifest's ``browser`` part."""
    return BrowserOptions(
        executable=spec.executable,
        sandbox=spec.sandbox,
        headless=spec.headless,
        width=spec.width,
        height=spec.height,
        device_scale_factor=spec.device_scale_factor,
        locale=spec.locale,
        timezone=spec.timezone,
        action_timeout=spec.action_timeout_seconds,
        navigation_timeout=spec.navigation_timeout_seconds,
    )
