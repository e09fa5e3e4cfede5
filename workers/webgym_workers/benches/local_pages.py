"""The pages that benches click on, as tasks without an end: each has eight buttons and counts its clicks."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import ClassVar

from webgym.errors import TaskError
from webgym_workers.tasks.task import Json, Outcome, Task

__all__ = ["BUTTONS", "LOCAL_PAGES", "LocalPageTask", "page_url"]

LOCAL_PAGES = ("shop", "table", "form", "cart", "menu")
"""A click changes most of the first two, a third of the form, and a few words or one popup of the last two."""
BUTTONS = 8
"""Buttons of each page; number ``n`` has the id ``act-n``, and all come before any other control."""


def page_url(page: str) -> str:
    """Address of one of :data:`LOCAL_PAGES`, a file."""
    return (Path(str(files(__package__))) / "pages" / f"{page}.html").absolute().as_uri()


class LocalPageTask(Task):
    """One of :data:`LOCAL_PAGES` at 1920x1080; an episode ends at its limit only.

    Args:
        page: Which.

    Raises:
        TaskError: There is no such page.
    """

    viewport: ClassVar[tuple[int, int]] = (1920, 1080)
    probe: ClassVar[str] = "clicks"

    def __init__(self, page: str) -> None:
        if page not in LOCAL_PAGES:
            raise TaskError(f"there is no page {page!r}, only {', '.join(LOCAL_PAGES)}")
        self._url = page_url(page)

    def start_page(self, seed: int) -> str:
        """The page, the same for every seed."""
        return self._url

    def judge(self, probe: Json) -> Outcome:
        """Never an end; the reward is the number of clicks the page has counted."""
        return Outcome(reward=float(probe) if isinstance(probe, int) else 0.0)
