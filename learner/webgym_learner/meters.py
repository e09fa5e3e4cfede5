"""What a training loop counts along the way: rates and rolling success."""

from __future__ import annotations

from typing import Any

from webgym.protocol import EpisodeSummary
from webgym_learner.window import RateMeter, SuccessWindow

__all__ = ["TrainingMeters"]


class TrainingMeters:
    """Figures of this learner's life alone."""

    def __init__(self) -> None:
        self._success = SuccessWindow(100)
        self._nearly_greedy = SuccessWindow(50)
        self._steps = RateMeter()
        self._episodes = RateMeter()
        self._updates = RateMeter()

    def trained(self, summary: EpisodeSummary) -> None:
        """A training episode ended, exploration and all."""
        self._steps.add(summary.steps)
        self._episodes.add()
        self._success.add(summary.success)
        if summary.epsilon < 0.1:
            self._nearly_greedy.add(summary.success)

    def validated(self, summary: EpisodeSummary) -> None:
        """A greedy episode ended."""
        self._steps.add(summary.steps)

    def updated(self) -> None:
        """The network was updated once."""
        self._updates.add()

    def figures(self) -> dict[str, Any]:
        """By the names that metrics have."""
        return {
            "steps_per_second": round(self._steps.rate(), 2),
            "episodes_per_second": round(self._episodes.rate(), 2),
            "updates_per_second": round(self._updates.rate(), 2),
            "success_train": self._success.rate,
            "success_nearly_greedy": self._nearly_greedy.rate,
        }
