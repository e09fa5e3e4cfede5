"""Work that ends processes: beside the event loop while there are threads to be had, on it when there are none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVarTuple

__all__ = ["finish_aside"]

Ts = TypeVarTuple("Ts")


async def finish_aside(work: Callable[[*Ts], None], *arguments: *Ts) -> None:
    """Do blocking work to its end, without holding up the loop; a caller that is cancelled does not end it."""
    try:
        working = asyncio.get_running_loop().run_in_executor(None, work, *arguments)
    except RuntimeError:
        # The interpreter is ending and starts no threads any more; nobody else needs the loop by then.
        work(*arguments)
    else:
        await asyncio.shield(working)
