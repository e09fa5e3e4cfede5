"""Episodes that fail one after the other, and when to give up: nothing is learned from pages that never work."""

from __future__ import annotations

from collections import Counter

__all__ = ["FaultStreak"]

LEAST_FAULTS = 6
"""Failures in a row before anything is made of them, and at least two for each browser."""
PATIENCE_SECONDS = 60.0
"""A site that is down comes back: failures that were not there from the start have to last for so long."""


class FaultStreak:
    """The failures since the last episode that was played to its end; owns no clock.

    Args:
        browsers: how many play at the same time.
    """

    def __init__(self, browsers: int) -> None:
        self._least = max(LEAST_FAULTS, 2 * browsers)
        self._since = 0.0
        self._faults: Counter[str] = Counter()
        self._last = ""

    @property
    def count(self) -> int:
        """Failures since the last success."""
        return self._faults.total()

    def success(self) -> None:
        """An episode was played to its end."""
        self._faults.clear()

    def fault(self, what: str, now: float) -> None:
        """An episode failed.

        Args:
            what: why, one line.
            now: the clock.
        """
        if not self._faults:
            self._since = now
        self._faults[what] += 1
        self._last = what

    def worth_asking(self) -> bool:
        """Whether there are enough of them to ask whether any episode of the run was ever played."""
        return self.count >= self._least

    def verdict(self, now: float, *, ever_played: bool) -> str | None:
        """Why to give up, one line with the most frequent failure and its count; None to go on.

        Args:
            now: the clock.
            ever_played: whether any episode of the run was ever played to its end, here or elsewhere.
        """
        if not self.worth_asking() or (ever_played and now - self._since < PATIENCE_SECONDS):
            return None
        what, times = self._faults.most_common(1)[0]
        others = self.count - times
        more = f"; {others} otherwise, the last: {self._last}" if others else ""
        when = f"in the last {now - self._since:.0f} s" if ever_played else "so far"
        return f"no episode could be played {when}: {times} of {self.count} attempts failed, {what}{more}"
