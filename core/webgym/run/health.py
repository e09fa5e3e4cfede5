"""Telling programs that hang from those that work: by their heartbeats, and by whether anything moves at all.

A gap between two looks counts for a few seconds only: after a machine, a container or the supervisor itself was
suspended nobody has had the time to speak yet.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from webgym.run.snapshot import Member, Snapshot

__all__ = ["Heartbeats", "Stillness", "movement"]

_LONGEST_GAP = 5.0
"""Seconds that the time between two looks counts at most."""


class _Patience:
    """How long something has stayed the same."""

    def __init__(self, what: Hashable) -> None:
        self.what = what
        self.seconds = 0.0

    def look(self, what: Hashable, gap: float) -> float:
        if what != self.what:
            self.what, self.seconds = what, 0.0
        else:
            self.seconds += gap
        return self.seconds


class _Gaps:
    def __init__(self) -> None:
        self._before: float | None = None

    def look(self, now: float) -> float:
        gap = 0.0 if self._before is None else min(_LONGEST_GAP, max(0.0, now - self._before))
        self._before = now
        return gap


class Heartbeats:
    """Which programs have fallen silent.

    Args:
        patience: seconds of silence that are borne.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._gaps = _Gaps()
        self._known: dict[tuple[str, int], _Patience] = {}

    def silent(self, members: Iterable[Member], now: float) -> list[Member]:
        """Those whose last word is too old; it is the caller's to know which of them still run.

        Args:
            members: as they last spoke.
            now: any one clock, seconds.
        """
        gap = self._gaps.look(now)
        found = []
        known: dict[tuple[str, int], _Patience] = {}
        for member in members:
            who = (member.id, member.pid)
            patience = known[who] = self._known.get(who) or _Patience(member.time)
            if patience.look(member.time, gap) > self._patience:
                found.append(member)
        self._known = known
        return found


class Stillness:
    """How long nothing of a run has moved."""

    def __init__(self) -> None:
        self._gaps = _Gaps()
        self._patience = _Patience(None)

    def seconds(self, moved: Hashable, now: float) -> float:
        """Seconds since ``moved`` was last another; ``now`` is of any one clock."""
        return self._patience.look(moved, self._gaps.look(now))


def movement(snapshot: Snapshot) -> Hashable:
    """Differs from an earlier one if anybody acted, learned or judged meanwhile."""
    learned = tuple(snapshot.number(name) for name in ("steps", "updates", "evaluated"))
    return snapshot.phase, snapshot.completed, sum(m.steps for m in snapshot.members), *learned
