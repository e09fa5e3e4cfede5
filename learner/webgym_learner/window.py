"""Rolling figures and intervals."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable

__all__ = ["RateMeter", "SuccessWindow", "wilson_interval"]


def wilson_interval(successes: int, trials: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's 95% score interval of a proportion (Wilson 1927); (0, 1) without trials."""
    if trials == 0:
        return 0.0, 1.0
    p = successes / trials
    denominator = 1.0 + z * z / trials
    centre = p + z * z / (2 * trials)
    spread = z * math.sqrt(p * (1 - p) / trials + z * z / (4 * trials * trials))
    return max(0.0, (centre - spread) / denominator), min(1.0, (centre + spread) / denominator)


class SuccessWindow:
    """Success rate over the last episodes.

    Args:
        size: how many episodes the window holds.
    """

    def __init__(self, size: int) -> None:
        self._results: deque[bool] = deque(maxlen=size)

    def __len__(self) -> int:
        return len(self._results)

    def add(self, success: bool) -> None:
        """Count one episode."""
        self._results.append(success)

    @property
    def full(self) -> bool:
        """Whether the window holds as many episodes as it can."""
        return len(self._results) == self._results.maxlen

    @property
    def rate(self) -> float | None:
        """Share of successes, or None without episodes."""
        return sum(self._results) / len(self._results) if self._results else None

    def clear(self) -> None:
        """Forget everything."""
        self._results.clear()

    def state(self) -> list[bool]:
        """The results it holds, oldest first."""
        return list(self._results)

    def load_state(self, results: Iterable[bool]) -> None:
        """Hold these results, the last as many as fit."""
        self._results.clear()
        self._results.extend(bool(result) for result in results)


class RateMeter:
    """Events per second over a sliding window of time.

    Args:
        seconds: length of the window.
    """

    def __init__(self, seconds: float = 10.0) -> None:
        self._seconds = seconds
        self._events: deque[tuple[float, float]] = deque()
        self._sum = 0.0
        self._started = time.monotonic()

    def add(self, count: float = 1.0, now: float | None = None) -> None:
        """Count events."""
        now = time.monotonic() if now is None else now
        self._events.append((now, count))
        self._sum += count
        self._trim(now)

    def rate(self, now: float | None = None) -> float:
        """Events per second lately."""
        now = time.monotonic() if now is None else now
        self._trim(now)
        span = min(self._seconds, max(1e-3, now - self._started))
        return self._sum / span

    def _trim(self, now: float) -> None:
        while self._events and now - self._events[0][0] > self._seconds:
            self._sum -= self._events.popleft()[1]
