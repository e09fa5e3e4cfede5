"""What one browser takes, measured with a page that it shows."""

from __future__ import annotations

import contextlib

import psutil

from webgym_workers.doctor.limits import TYPICAL, Footprint
from webgym_workers.doctor.setting import Setting, page_url

__all__ = ["measure_footprint"]


async def measure_footprint(setting: Setting) -> Footprint:
    """Start a browser as a run does, with a display where one works, and look at what it takes.

    Raises:
        BrowserError: it cannot be started.
    """
    from webgym_workers.browser.chromium import ChromiumProcess
    from webgym_workers.browser.page import Page

    display = setting.wanted.has_display and setting.displayed
    options = setting.options(display=display)
    process = await ChromiumProcess.launch(options)
    try:
        page = await Page.open(
            process.client, width=options.width, height=options.height, timeout=5.0, windowed=display
        )
        await page.navigate(page_url("fonts.html"))
        await page.settle(1.0)
        return Footprint(
            process.resident_bytes(),
            process.display.framebuffer.layout.size if process.display else TYPICAL.shared_bytes,
            *_counts([process.pid] if process.display is None else [process.pid, process.display.pid]),
        )
    finally:
        await process.stop()


def _counts(roots: list[int]) -> tuple[int, int, int, int]:
    """Open files of the process that has most, those of its driver, processes, and threads of all of them."""
    files = processes = threads = 0
    for root in roots:
        with contextlib.suppress(psutil.Error):
            for process in [psutil.Process(root), *psutil.Process(root).children(recursive=True)]:
                processes += 1
                with contextlib.suppress(psutil.Error):
                    threads += process.num_threads()
                    files = max(files, process.num_fds())
    # The driver's are typical ones: ours are busy with other checks, too.
    return files, TYPICAL.own_files, processes, threads
