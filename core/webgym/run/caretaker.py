"""Ends programs of a run that hang, so that whoever started them starts them again."""

from __future__ import annotations

from collections.abc import Callable

from webgym.run.health import Heartbeats, Stillness, movement
from webgym.run.plan import Limits
from webgym.run.snapshot import Snapshot
from webgym.run.tree import kill_descendant

__all__ = ["Caretaker"]


class Caretaker:
    """Looks at a run again and again.

    Args:
        limits: how long silence and stillness are borne.
        say: called with a line for each program that it killed.
    """

    def __init__(self, limits: Limits, say: Callable[[str], None]) -> None:
        self._limits = limits
        self._say = say
        self._heartbeats = Heartbeats(limits.silent)
        self._stillness = Stillness()
        self._renewed = False
        self.still = 0.0
        """Seconds for which nothing has moved, as of the last look."""

    def look(self, snapshot: Snapshot, now: float, *, act: bool) -> None:
        """Take note of how the run is, and kill what hangs.

        Args:
            snapshot: the run now.
            now: any one clock, seconds.
            act: false while programs are ending anyway.
        """
        silent = self._heartbeats.silent(snapshot.members, now)
        self.still = self._stillness.seconds(movement(snapshot), now)
        if not act:
            return
        for member in silent:
            if kill_descendant(member.pid):
                self._say(f"{member.id} has not been heard of for {self._limits.silent:.0f} s: killed")
        patience = self._limits.still
        if patience is None or self.still < patience / 2:
            self._renewed = False
        elif not self._renewed:
            self._renewed = True
            self._renew_inference(snapshot)

    def _renew_inference(self, snapshot: Snapshot) -> None:
        """For inference whose loop turns and answers nothing: one that stands still its worker has ended long before.

        What it had to answer waits in the socket for its successor.
        """
        killed = [m.id for m in snapshot.members if any(map(kill_descendant, m.processes("inference")))]
        if killed:
            self._say(f"nothing has moved for {self.still:.0f} s: inference of {', '.join(killed)} killed")
