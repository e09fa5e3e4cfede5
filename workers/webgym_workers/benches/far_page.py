"""A task on a page of a far-away server: press the named button; every step is answered late, by how much is seeded."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from webgym_workers.tasks.task import Outcome, Task, js

__all__ = ["FarPage", "latencies"]

WORDS = ("apple", "cherry", "grape", "lemon", "mango", "peach", "plum", "quince")
_BUTTONS = 4


def latencies(seed: int, steps: int, median_ms: float, sigma: float) -> list[int]:
    """Milliseconds that each step of an episode takes to be answered: lognormal, the same for the same seed."""
    rng = np.random.default_rng([seed, 0])
    return [round(float(ms)) for ms in rng.lognormal(math.log(median_ms), sigma, steps)]


class FarPage(Task):
    """One press of the right button of four.

    Args:
        server: address of a :mod:`~webgym_workers.benches.local_server`.
        median_ms: of the latencies.
        sigma: of their logarithms.
    """

    max_steps: ClassVar[int] = 4
    viewport = (500, 320)
    probe = "({paid: far.paid, right: far.right})"
    over = "probe.paid"
    resets_in_page = True

    def __init__(self, server: str, median_ms: float = 300.0, sigma: float = 1.0) -> None:
        self._server = server
        self._median_ms = median_ms
        self._sigma = sigma

    @property
    def allowed_sites(self) -> tuple[str, ...]:
        """The server alone."""
        return ("127.0.0.1",)

    def start_page(self, seed: int) -> str:
        """The only page there is."""
        return f"{self._server}/far"

    def goal(self, seed: int) -> str:
        """Which button."""
        return f'Press the "{self._words(seed)[1]}" button.'

    def setup(self, seed: int) -> str:
        """Buttons and latencies of the seed's episode."""
        words, word = self._words(seed)
        times: Any = latencies(seed, self.max_steps, self._median_ms, self._sigma)
        return f"deal({js(words)}, {js(word)}, {js(times)})"

    def judge(self, probe: Any) -> Outcome:
        """Pressed is over, right or wrong."""
        if not (isinstance(probe, dict) and probe.get("paid")):
            return Outcome()
        right = bool(probe.get("right"))
        return Outcome(reward=1.0 if right else -1.0, done=True, success=right)

    @staticmethod
    def _words(seed: int) -> tuple[list[str], str]:
        rng = np.random.default_rng([seed, 1])
        words = [str(word) for word in rng.permutation(WORDS)[:_BUTTONS]]
        return words, words[int(rng.integers(_BUTTONS))]
