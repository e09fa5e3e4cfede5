"""Which task is practised next: by its weight, and by how much is being learned on it just now.

Progress of a task is the absolute slope of its success over its last training episodes: the window algorithm of
teacher-student curriculum learning (Matiisen et al., 2017). What rises is being learned, and what falls is being
forgotten; what is mastered or hopeless has no slope, and leaves its episodes to the others. Part of the practice goes
by weight alone, so that every task goes on being tried.

Turns are dealt by smooth weighted round robin: a task with at least share s of n tasks waits for n/s turns at most,
however the shares move meanwhile. A turn is a stretch of episodes: a browser that goes from one task to another opens
another page, which costs as much as many short episodes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webgym.errors import CheckpointError
from webgym.spec import TaskSpec

__all__ = ["FLOOR", "WINDOW", "Curriculum", "practice_shares", "success_slope"]

WINDOW = 100
"""Training episodes of a task that its progress is told from. A change of the success rate that takes about as many
is seen; over fewer, chance alone makes slopes as steep."""
FLOOR = 0.5
"""Share of the practice that goes by weight alone."""


def success_slope(results: Sequence[bool]) -> float:
    """Least-squares slope of success over episodes, as the change of the rate from the first to the last."""
    count = len(results)
    if count < 2:
        return 0.0
    x = np.arange(count) - (count - 1) / 2
    return float(x @ np.asarray(results, dtype=np.float64) / (x @ x) * (count - 1))


def practice_shares(
    weights: Sequence[float], progress: Sequence[float | None], floor: float = FLOOR
) -> NDArray[np.float64]:
    """How the practice is shared out.

    Args:
        weights: of the tasks, positive.
        progress: absolute slopes; None for a task of which too little is known, which counts as the fastest.
        floor: what goes by weight alone, 0 to 1.

    Returns:
        One share a task, float64 (n,), summing to 1; each at least ``floor`` times its part of the weights.
    """
    by_weight = np.asarray(weights, dtype=np.float64)
    by_weight = by_weight / by_weight.sum()
    known = [abs(p) for p in progress if p is not None]
    fastest = max(known, default=0.0) or 1.0
    # In parts of the fastest: a slope so small that few of its digits are kept would lose them in the product.
    pace = np.array([1.0 if p is None else abs(p) / fastest for p in progress], dtype=np.float64) * by_weight
    if pace.sum() > 0.0:
        by_weight = floor * by_weight + (1.0 - floor) * pace / pace.sum()
    return np.asarray(by_weight, dtype=np.float64)


class Curriculum:
    """Deals turns to tasks.

    Args:
        tasks: of the run, with their weights. Tasks of one name (and other parameters) share their results.
        adaptive: whether progress counts; otherwise weights alone.
        window: episodes of a task that its progress is told from.
    """

    def __init__(self, tasks: Sequence[TaskSpec], *, adaptive: bool = True, window: int = WINDOW) -> None:
        self._names = [task.name for task in tasks]
        self._weights = [task.weight for task in tasks]
        self._adaptive = adaptive
        self._window = window
        self._results: dict[str, deque[bool]] = {name: deque(maxlen=window) for name in self._names}
        self._credits = np.zeros(len(tasks))
        self._current: int | None = None
        self._left = 0
        self._shares = practice_shares(self._weights, [0.0] * len(tasks))

    def add(self, task: str, success: bool) -> None:
        """Take note of a training episode; of tasks that are none of the run's nothing is noted."""
        if task in self._results:
            self._results[task].append(success)
            if self._adaptive:
                self._shares = practice_shares(self._weights, [self._progress(n) for n in self._names])

    @property
    def current(self) -> int | None:
        """Index of the task whose turn it is; None before the first turn."""
        return self._current

    def next(self, stretch: int = 1) -> int:
        """Index of the task of the next episode.

        Args:
            stretch: episodes of a turn that begins now.
        """
        if self._current is None or self._left <= 0:
            self._credits += self._shares
            # Credits sum to 0 and never fall below -1, so none rises above n - 1: whence the bound on waiting.
            self._current, self._left = int(np.argmax(self._credits)), stretch
            self._credits[self._current] -= 1.0
        self._left -= 1
        return self._current

    def share(self, index: int) -> float:
        """A task's share of the practice now, above 0 and at most 1."""
        return float(self._shares[index])

    def urgency(self, index: int) -> float:
        """What learning adds to the priority of a task's episodes: 0 to less than 1, so that it never outweighs a
        priority that the spec gives.
        """
        progress = self._progress(self._names[index]) if self._adaptive else None
        return 0.0 if progress is None else min(0.99, progress)

    def success(self) -> dict[str, dict[str, float | int | None]]:
        """By task: ``success`` over the window, ``progress`` (None while too little is known) and ``share``."""
        shares: dict[str, float] = dict.fromkeys(self._results, 0.0)
        for name, share in zip(self._names, self._shares, strict=True):
            shares[name] += float(share)
        return {
            name: {
                "success": round(sum(results) / len(results), 4) if results else None,
                "progress": None if (p := self._progress(name)) is None else round(p, 4),
                "share": round(shares[name], 4),
            }
            for name, results in self._results.items()
        }

    def _progress(self, name: str) -> float | None:
        results = self._results[name]
        return abs(success_slope(results)) if len(results) == self._window else None

    def state(self) -> dict[str, Any]:
        """For a checkpoint; JSON-able."""
        results = {name: [int(result) for result in results] for name, results in self._results.items()}
        return {
            "results": results,
            "credits": self._credits.tolist(),
            "current": self._current,
            "left": self._left,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on exactly where a checkpoint left off.

        Raises:
            CheckpointError: that is no state of a curriculum over these tasks.
        """
        try:
            results = {name: [bool(r) for r in state["results"][name]] for name in self._results}
            credits = np.array([float(c) for c in state["credits"]])
            current = None if state["current"] is None else int(state["current"])
            left = int(state["left"])
        except (KeyError, TypeError, ValueError):
            raise CheckpointError("the checkpoint's curriculum cannot be read") from None
        count = len(self._names)
        if len(credits) != count or not np.isfinite(credits).all() or not 0 <= (current or 0) < count:
            raise CheckpointError("the checkpoint's curriculum is one of other tasks")
        self._credits, self._current, self._left = credits, current, left
        for name, found in results.items():
            self._results[name].clear()
            self._results[name].extend(found)
        if self._adaptive:
            self._shares = practice_shares(self._weights, [self._progress(n) for n in self._names])
