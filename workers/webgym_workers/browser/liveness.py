"""Whether a browser hangs, or only waits for its turn on a machine that has nothing left."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from webgym_workers.browser.faults import CDPTimeout

__all__ = ["CROWDED", "FULL", "answers"]

CROWDED = 4
"""How many times longer a browser may be silent while the cores are full."""
FULL = 0.02
"""The idle part of the cores below which they are full."""


async def answers(
    ask: Callable[[float], Awaitable[object]], seconds: float, idle: Callable[[], float | None]
) -> bool:
    """Whether a browser answers within ``seconds``, or within :data:`CROWDED` times that while the cores are full.

    Args:
        ask: Asks it something, with a deadline in seconds.
        seconds: How long a browser that can run may be silent.
        idle: Tells the idle part of the cores since it was last asked, 0 to 1, None where it cannot be told.

    Raises:
        BrowserGone, ConnectionLost: It has ended, or is being reached again.
    """
    # Most answer in the first half, without a look at the cores.
    for half in range(2 * CROWDED):
        if half:
            idle()
        try:
            await ask(seconds / 2)
        except CDPTimeout:
            part = idle() if half else 0.0
            if part is None or part > FULL:
                return False
        else:
            return True
    return False
