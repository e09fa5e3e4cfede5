"""Is there a virtual display, and can its screen be read from shared memory?"""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from pathlib import Path

from webgym.errors import BrowserError
from webgym_workers.doctor import mends
from webgym_workers.doctor.finding import Finding, Status
from webgym_workers.doctor.host import Host
from webgym_workers.doctor.setting import Setting

__all__ = ["check_display", "judge_no_display"]


async def check_display(setting: Setting) -> Finding:
    """Start an Xvfb as large as a run's, and map its screen."""
    if setting.host.system != "Linux":
        return judge_no_display(setting.host, "", required=setting.wanted.needs_display)
    from webgym_workers.browser.window import display_room
    from webgym_workers.frames.display import Display, display_obstacle

    obstacle = display_obstacle()
    if obstacle:
        return judge_no_display(setting.host, obstacle, required=setting.wanted.needs_display)
    options = setting.options()
    width, height = (math.ceil(side * options.device_scale_factor) for side in display_room(options))
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="webgym-doctor-") as folder:
        try:
            display = await Display.start(width, height, Path(folder) / "Xauthority")
        except BrowserError as error:
            mend = f"see shared memory, or {mends.install(setting.host, 'xvfb')}"
            return Finding(Status.FAILED, " ".join(str(error).split()), mend)
        try:
            await display.sync()
            layout = display.framebuffer.layout
            seconds = time.monotonic() - start
        finally:
            await display.stop()
    numbers = {"start_seconds": round(seconds, 3), "screen_bytes": layout.size}
    where = shutil.which("Xvfb")
    setting.displayed = True
    return Finding(
        Status.OK,
        f"Xvfb starts in {seconds:.1f} s and its screen of {width}x{height} can be read: {where}",
        numbers=numbers,
    )


def judge_no_display(host: Host, obstacle: str, *, required: bool) -> Finding:
    """What it means that there can be no virtual display.

    Args:
        host: The machine.
        obstacle: What stands in the way on Linux.
        required: Whether the manifest accepts no other way to frames.
    """
    if host.system != "Linux":
        found, mend = "frames come by screenshot here: displays in memory are for Linux", ""
        status = Status.SKIPPED
    else:
        found = f"{obstacle}: frames come by screenshot, which takes ten times as long"
        mend, status = mends.install(host, "xvfb"), Status.WARNING
    if required:
        mend = f"{mend + '; or ' if mend else ''}set browser.frames to Auto"
        return Finding(Status.FAILED, f"{found}; browser.frames is SharedMemory", mend)
    return Finding(status, found, mend, usable=False)
