"""What a training loop counts along the way: rates, rolling success, staleness."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from webgym.protocol import EpisodeSummary
from webgym_learner.window import RateMeter, SuccessWindow

__all__ = ["TrainingMeters", "fresh_enough"]


def fresh_enough(versions: NDArray[np.integer], newest: int, limit: int) -> NDArray[np.bool_]:
    """Which transitions were acted with parameters that are not too old.

    Args:
        versions: (n,) of the parameters that each was acted with.
        newest: the version of now.
        limit: how many versions old they may be; 0 for any age.

    Returns:
        bool (n,).
    """
    if not limit:
        return np.ones(len(versions), dtype=np.bool_)
    return np.asarray(newest - versions <= limit)


class TrainingMeters:
    """Figures of this learner's life alone."""

    def __init__(self) -> None:
        self._success = SuccessWindow(100)
        self._nearly_greedy = SuccessWindow(50)
        self._steps = RateMeter()
        self._episodes = RateMeter()
        self._updates = RateMeter()
        self._staleness = 0.0

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

    def arrived(self, age: int) -> None:
        """Transitions arrived whose oldest was acted with parameters so many versions old."""
        self._staleness += 0.05 * (age - self._staleness)

    def figures(self) -> dict[str, Any]:
        """By the names that metrics have."""
        return {
            "steps_per_second": round(self._steps.rate(), 2),
            "episodes_per_second": round(self._episodes.rate(), 2),
            "updates_per_second": round(self._updates.rate(), 2),
            "success_train": self._success.rate,
            "success_nearly_greedy": self._nearly_greedy.rate,
            "staleness": round(self._staleness, 2),
        }
