"""How fine the browser's clocks and timers are, and how many frames a second it draws."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise

from webgym_workers.doctor.finding import Finding, Status
from webgym_workers.doctor.setting import Setting, page_url

__all__ = ["check_clocks", "judge_clocks"]

FRAMES_MS = 700
TIMER_MS = 10
LEAST_RATE = 30.0
"""Frames a second below which steps become slow: each waits for a frame or two."""
LATE_MS = 10.0


async def check_clocks(setting: Setting) -> Finding:
    """Measure in a page that changes in each frame."""
    async with setting.page() as page:
        await page.navigate(page_url("clocks.html"))
        frames = await page.evaluate(f"frames({FRAMES_MS})")
        timers = await page.evaluate(f"timers({TIMER_MS}, 15)")
        steps = await page.evaluate("[step(() => performance.now()), step(() => Date.now())]")
    return judge_clocks(frames, timers, steps[0], steps[1])


def judge_clocks(
    frames: Sequence[float], timers: Sequence[float], clock_ms: float | None, date_ms: float | None
) -> Finding:
    """What the measurements mean.

    Args:
        frames: When frames were drawn, ms.
        timers: How long timers of :data:`TIMER_MS` took, ms.
        clock_ms: The smallest step of ``performance.now()``; None when it stood still.
        date_ms: The smallest step of ``Date.now()``; None when it stood still.
    """
    gaps = [b - a for a, b in pairwise(frames)]
    rate = 1000 * len(gaps) / sum(gaps) if gaps and sum(gaps) > 0 else 0.0
    late = statistics.median(timers) - TIMER_MS
    numbers = {
        "frames_per_second": round(rate, 1),
        "timer_late_ms": round(late, 2),
        "clock_step_ms": clock_ms,
        "date_step_ms": date_ms,
    }
    if not rate or clock_ms is None or date_ms is None:
        what = "no frames are drawn" if not rate else "the page's clock stands still"
        return Finding(Status.FAILED, what, "use another release of Chromium", numbers)
    found = (
        f"{rate:.0f} frames a second; timers of {TIMER_MS} ms are {max(0.0, late):.1f} ms late; "
        f"the clock goes in steps of {clock_ms:.2g} ms, Date of {date_ms:.2g}"
    )
    if rate < LEAST_RATE or late > LATE_MS:
        return Finding(
            Status.WARNING,
            found,
            "the machine is busy or slow: stop what else runs, or run fewer browsers (workers.browsersPerCore)",
            numbers,
        )
    return Finding(Status.OK, found, numbers=numbers)
