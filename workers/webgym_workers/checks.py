"""What must hold on the machine that runs browsers, before a run writes or starts anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webgym.errors import BrowserError
from webgym_workers.browser.find import chromium_version, find_chromium
from webgym_workers.capacity import core_groups, machine
from webgym_workers.frames.display import display_obstacle

if TYPE_CHECKING:
    from webgym.spec import RunManifest

__all__ = ["check_chromium"]


def check_chromium(manifest: RunManifest) -> None:
    """Check that there is a Chromium that can be run, cores for it, and a display where one is required.

    Of a browser that is elsewhere: that it can be reached.

    Raises:
        BrowserError: none can be found or reached, or it is none.
        RunError: none of the cores asked for is here.
    """
    spec = manifest.spec
    core_groups(spec.workers.cpu_affinity, machine().cpus)
    if spec.browser.endpoint is not None:
        import asyncio

        from webgym_workers.browser.remote import RemoteBrowser
        from webgym_workers.seat import browser_options

        async def reach() -> None:
            browser = await RemoteBrowser.connect(browser_options(spec.browser, frame=spec.observation.frame))
            await browser.stop()

        asyncio.run(reach())
        return
    chromium_version(find_chromium(spec.browser.executable))
    if spec.observation.frame and spec.browser.frames == "SharedMemory":
        obstacle = display_obstacle()
        if obstacle:
            raise BrowserError(
                f"browser.frames is SharedMemory, but {obstacle}: apt-get install xvfb, or set it to Auto"
            )
