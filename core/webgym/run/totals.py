"""What the ledger of episodes adds up to: the numbers of a run that no death of a learner takes back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["EpisodeTotals", "total_episodes"]


@dataclass
class EpisodeTotals:
    """Sums over episodes that counted."""

    episodes: int = 0
    """Training episodes."""
    steps: int = 0
    """Environment steps of training episodes."""
    validation_steps: int = 0
    """Environment steps of validation episodes."""
    faults: int = 0
    """Episodes of both that were given up after all their attempts."""

    def add(self, purpose: str, steps: int, outcome: str) -> None:
        """Count one episode; each may be given once only."""
        if purpose not in ("train", "validate"):
            return
        self.faults += outcome == "fault"
        if purpose == "train":
            self.episodes += 1
            self.steps += steps
        else:
            self.validation_steps += steps


def total_episodes(entries: Iterable[Mapping[str, Any]]) -> EpisodeTotals:
    """Sums over the lines of a ledger; an episode that is there twice counts once, a line without one not at all."""
    totals = EpisodeTotals()
    seen: set[str] = set()
    for entry in entries:
        try:
            episode, purpose = str(entry["episode"]), str(entry["purpose"])
            steps, outcome = int(entry.get("steps") or 0), str(entry.get("outcome") or "")
        except (KeyError, TypeError, ValueError):
            continue
        if episode not in seen:
            seen.add(episode)
            totals.add(purpose, steps, outcome)
    return totals
