"""All checks, in the order of the page."""

from __future__ import annotations

from webgym_workers.doctor.browsers import check_browser, check_sandbox
from webgym_workers.doctor.clicks import check_display_clicks, check_headless_clicks
from webgym_workers.doctor.clocks import check_clocks
from webgym_workers.doctor.colours import check_screen, check_screenshot
from webgym_workers.doctor.display import check_display
from webgym_workers.doctor.examination import Check
from webgym_workers.doctor.finding import Finding
from webgym_workers.doctor.fonts import check_fonts
from webgym_workers.doctor.footprint import measure_footprint
from webgym_workers.doctor.limits import (
    judge_memory,
    judge_open_files,
    judge_processes,
    judge_shared_memory,
)
from webgym_workers.doctor.setting import Setting
from webgym_workers.doctor.software import check_packages, check_server, check_torch

__all__ = ["CHECKS"]


async def check_memory(setting: Setting) -> Finding:
    """Measure one browser; the checks of limits use what it takes, too."""
    setting.footprint = await measure_footprint(setting)
    return judge_memory(
        setting.footprint,
        setting.machine.memory_bytes,
        setting.limits.memory_free,
        setting.browsers,
        setting.host,
    )


async def check_shared_memory(setting: Setting) -> Finding:
    """Judge ``/dev/shm``."""
    screens = setting.wanted.has_display
    return judge_shared_memory(setting.limits, setting.footprint, setting.browsers, screens, setting.host)


async def check_open_files(setting: Setting) -> Finding:
    """Judge the number of open files."""
    per_process = setting.wanted.workers.browsers_per_process
    return judge_open_files(setting.limits, setting.footprint, setting.browsers, per_process, setting.host)


async def check_processes(setting: Setting) -> Finding:
    """Judge the number of processes."""
    return judge_processes(setting.limits, setting.footprint, setting.browsers, setting.host)


CHECKS = (
    Check("browser", check_browser, deadline=25.0),
    Check("sandbox", check_sandbox, needs=("browser",)),
    Check("display", check_display, deadline=25.0),
    Check("fonts", check_fonts, needs=("browser",)),
    Check("colours", check_screenshot, needs=("browser",)),
    Check("screen", check_screen, needs=("browser", "display")),
    Check("clicks", check_headless_clicks, needs=("browser",)),
    Check("display clicks", check_display_clicks, needs=("browser", "display"), deadline=25.0),
    Check("clocks", check_clocks, needs=("browser",), alone=True),
    Check("memory", check_memory, needs=("browser",), after=("display",)),
    Check("shared memory", check_shared_memory, after=("memory",)),
    Check("open files", check_open_files, after=("memory",)),
    Check("processes", check_processes, after=("memory",)),
    Check("packages", check_packages),
    Check("torch", check_torch, deadline=30.0),
    Check("server", check_server),
)
"""Each after those that it needs."""
