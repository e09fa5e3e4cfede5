"""What one browser takes, measured with a page that it shows."""

from __future__ import annotations

import contextlib

import psutil

from webgym_workers.doctor.limits import TYPICAL, Footprint
from webgym_workers.doctor.setting import Setting, page_url

__all__ = ["measure_footprint"]


async def measure_footprint(setting: Setting) -> Footprint:
    """Start a browser as a run does, with a display where there can be one, and look at what it takes.

    Raises:
        BrowserError: it cannot be started.
    """
    from webgym_workers.browser.pool import BrowserPool
    from webgym_workers.frames.display import display_obstacle

    display = setting.wanted.has_display and display_obstacle() is None and setting.host.system == "Linux"
    async with BrowserPool(setting.options(display=display), 1) as pool, pool.browser(0) as browser:
        page = await browser.new_page()
        await page.navigate(page_url("fonts.html"))
        await page.settle(1.0)
        process = browser.process
        tree = [process.pid] if process.display is None else [process.pid, process.display.pid]
        resident, screen = process.resident_bytes(), 0
        if process.display is not None:
            resident += psutil.Process(process.display.pid).memory_info().rss
            screen = process.display.framebuffer.layout.size
        processes = threads = files = 0
        for root in tree:
            with contextlib.suppress(psutil.Error):
                for part in [psutil.Process(root), *psutil.Process(root).children(recursive=True)]:
                    processes += 1
                    with contextlib.suppress(psutil.Error):
                        threads += part.num_threads()
                        files = max(files, part.num_fds())
        return Footprint(
            resident_bytes=resident,
            shared_bytes=screen or TYPICAL.shared_bytes,
            files=files or TYPICAL.files,
            own_files=TYPICAL.own_files,  # ours are busy with other checks, too
            processes=processes or TYPICAL.processes,
            threads=threads or TYPICAL.threads,
        )
