"""A task on a page of a far-away server: press the named buttons; each step is answered late, by how much is seeded."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from webgym_workers.tasks.task import Outcome, Task, js

__all__ = ["FarPage", "latencies"]

WORDS = ("apple", "cherry", "grape", "lemon", "mango", "peach", "plum", "quince")


def latencies(seed: int, steps: int, median_ms: float, sigma: float) -> list[int]:
    """Milliseconds that each step of an episode takes to be answered: lognormal, the same for the same seed."""
    rng = np.random.default_rng([seed, 0])
    return [round(float(ms)) for ms in rng.lognormal(math.log(median_ms), sigma, steps)]


class FarPage(Task):
    """Press buttons in the order in which they are named; a pressed one can be pressed no more.

    Args:
        server: address of a :mod:`~webgym_workers.benches.local_server`.
        median_ms: of the latencies.
        sigma: of their logarithms.
        buttons: how many there are, at most eight.
        presses: how many of them are named.
    """

    max_steps: ClassVar[int] = 4
    viewport = (500, 320)
    probe = "({paid: far.paid, right: far.right})"
    over = "probe.paid"
    resets_in_page = True

    def __init__(
        self, server: str, median_ms: float = 300.0, sigma: float = 1.0, *, buttons: int = 4, presses: int = 1
    ) -> None:
        self._server = server
        self._buttons = buttons
        self._presses = presses
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
        """Which buttons."""
        named = ", then ".join(f'"{word}"' for word in self._words(seed)[1])
        return f"Press {named}."

    def setup(self, seed: int) -> str:
        """Buttons and latencies of the seed's episode."""
        words, named = self._words(seed)
        times: Any = latencies(seed, self.max_steps, self._median_ms, self._sigma)
        return f"deal({js(words)}, {js(named)}, {js(times)})"

    def judge(self, probe: Any) -> Outcome:
        """Over with a wrong press, or when all are pressed."""
        if not (isinstance(probe, dict) and probe.get("paid")):
            return Outcome()
        right = bool(probe.get("right"))
        return Outcome(reward=1.0 if right else -1.0, done=True, success=right)

    def _words(self, seed: int) -> tuple[list[str], list[str]]:
        rng = np.random.default_rng([seed, 1])
        words = [str(word) for word in rng.permutation(WORDS)[: self._buttons]]
        return words, [words[int(i)] for i in rng.permutation(self._buttons)[: self._presses]]
