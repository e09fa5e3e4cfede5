"""When starting a program again has become pointless: it keeps ending, and the run does not get on in between.

Limits of several levels multiply where each starts anew: a worker restarts its browser process up to a limit, the
supervisor restarts the worker, and with it that limit. So one rule stands above them: what counts is how often
something ended since the run last got on, however long that takes and whoever started it again.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

__all__ = ["FutileEnds"]


@dataclass
class _Streak:
    mark: Hashable
    ends: int = 0


class FutileEnds:
    """Counts, for each program, its ends without progress in between.

    Args:
        limit: so many are borne; the next one is too many.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._streaks: dict[str, _Streak] = {}

    def ended(self, program: str, mark: Hashable, times: int = 1, *, alike: int = 1) -> bool:
        """Note that a program ended; whether that was too often.

        Args:
            program: its name.
            mark: how far the run has come by what this program is for. Another mark than at its last end is progress,
                and forgives all ends before.
            times: how often it ended since the last call.
            alike: how many processes share the name; each may end up to the limit.
        """
        streak = self._streaks.get(program)
        if streak is None or streak.mark != mark:
            streak = self._streaks[program] = _Streak(mark)
        streak.ends += times
        return streak.ends > self.limit * max(1, alike)

    def count(self, program: str) -> int:
        """Ends of a program since the run last got on."""
        streak = self._streaks.get(program)
        return 0 if streak is None else streak.ends
