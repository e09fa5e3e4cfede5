"""One actor's place at a browser of the pool: the page of one task at a time, kept from episode to episode."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from webgym.schema import Schema
from webgym.spec import Browser as BrowserSpec
from webgym_workers.browser.options import BrowserOptions, DisplayMode
from webgym_workers.browser.pool import BrowserPool
from webgym_workers.browser.slot import Browser
from webgym_workers.episode import Episode, init_scripts
from webgym_workers.frames.ring import CELLS_PER_BROWSER, FrameRing
from webgym_workers.frames.source import open_frames
from webgym_workers.reach import admit_task
from webgym_workers.tasks.registry import create_task
from webgym_workers.tasks.task import Task

__all__ = ["Seat", "browser_options"]


class Seat:
    """Episodes on one browser of a pool.

    Args:
        pool: the browsers.
        index: which of them.
        schema: of the observations.
        settle_budget: seconds that a page may take to come to rest after an action.
        ring: where frames are made when the schema has them; None for memory of this seat's own.
        read_end: as for :class:`~webgym_workers.episode.Episode`.
    """

    def __init__(
        self,
        pool: BrowserPool,
        index: int,
        schema: Schema,
        settle_budget: float = 1.0,
        ring: FrameRing | None = None,
        *,
        read_end: bool = True,
    ) -> None:
        self._pool = pool
        self._index = index
        self._schema = schema
        self._settle_budget = settle_budget
        if ring is None and schema.frame is not None:
            ring = FrameRing(schema.frame, CELLS_PER_BROWSER)
        self._ring = ring
        self._read_end = read_end
        self._key = ""
        self._episode: Episode | None = None

    @asynccontextmanager
    async def episode(self, task: str, params: Mapping[str, Any]) -> AsyncIterator[Episode]:
        """Borrow the browser for an episode; the page of the episode before is used again if the task is the same.

        A fault that leaves the block makes the pool replace what broke; the next episode gets a fresh page.

        Raises:
            BrowserError: the browser cannot be started.
            TaskError: there is no such task.
        """
        key = json.dumps([task, dict(params)], sort_keys=True)
        async with self._pool.browser(self._index) as browser:
            try:
                if self._episode is None or self._episode.page not in browser.pages or key != self._key:
                    self._episode = await self._open(browser, create_task(task, dict(params)))
                    self._key = key
                yield self._episode
            except BaseException:
                self._episode = None
                raise

    async def _open(self, browser: Browser, task: Task) -> Episode:
        for page in browser.pages:
            await browser.close_page(page)
        if self._pool.egress is not None:
            await admit_task(self._pool.egress, task)
        width, height = task.viewport
        page = await browser.new_page(width=width, height=height, scripts=init_scripts(task))
        frames = None if self._ring is None else await open_frames(browser, page, self._ring)
        return Episode(
            page,
            task,
            self._schema,
            frames=frames,
            settle_budget=self._settle_budget,
            navigation_timeout=browser.options.navigation_timeout,
            egress=self._pool.egress,
            read_end=self._read_end,
        )


def browser_options(spec: BrowserSpec, *, frame: bool = False) -> BrowserOptions:
    """The options of a manifest's ``browser`` part.

    Args:
        spec: the part.
        frame: whether observations have a frame.
    """
    display: DisplayMode = "None"
    if frame and spec.frames == "SharedMemory":
        display = "Require"
    elif frame and spec.frames == "Auto" and spec.headless and spec.endpoint is None:
        display = "Prefer"
    return BrowserOptions(
        display=display,
        executable=spec.executable,
        endpoint=spec.endpoint,
        sandbox=spec.sandbox,
        headless=spec.headless,
        width=spec.width,
        height=spec.height,
        device_scale_factor=spec.device_scale_factor,
        locale=spec.locale,
        timezone=spec.timezone,
        egress=spec.egress,
        allowed_sites=tuple(spec.allowed_sites),
        action_timeout=spec.action_timeout_seconds,
        navigation_timeout=spec.navigation_timeout_seconds,
    )
