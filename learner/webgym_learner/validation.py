"""Deciding when the agent is good enough: greedy episodes on held-out seeds, with one parameter version a round.

A trickle of greedy episodes with the newest parameters draws the learning curve and tells when a verdict is worth
having. The verdict itself is a round: ``window`` episodes, all with one pinned version, so that it judges one set of
weights and not a moving target. A round that cannot pass any more is given up at once. Without a target rounds still
find the best weights of the run, ever more seldom, and never end it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from webgym_learner.window import SuccessWindow, wilson_interval

__all__ = ["Round", "Validation", "Verdict"]

_TRICKLE = 20
"""Episodes of the trickle that are looked at before a round is started."""

_SLACK = 0.05
"""How far below the target the trickle may lie: it holds episodes of older, worse parameters."""


@dataclass
class Round:
    """One set of weights under judgement."""

    version: int
    size: int
    episodes: set[str] = field(default_factory=set)
    """Episodes whose results are still to come."""
    successes: int = 0
    trials: int = 0

    @property
    def failures(self) -> int:
        """Episodes that did not succeed."""
        return self.trials - self.successes


@dataclass(frozen=True)
class Verdict:
    """What a finished or given-up round says of its version."""

    version: int
    successes: int
    trials: int
    passed: bool

    @property
    def lower(self) -> float:
        """Lower end of the 95% interval of the success rate: what versions are compared by."""
        return wilson_interval(self.successes, self.trials)[0]

    def state(self) -> dict[str, Any]:
        """All of it, for the note beside the checkpoint that was judged."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Verdict | None:
        """What :meth:`state` gave; None if that is no verdict."""
        try:
            found = cls(
                int(state["version"]), int(state["successes"]), int(state["trials"]), bool(state["passed"])
            )
        except (KeyError, TypeError, ValueError):
            return None
        return found if 0 <= found.successes <= found.trials > 0 else None


class Validation:
    """Collects greedy results and says when to start a round, and how it ended.

    Args:
        target: success rate to reach; None judges by all episodes succeeding.
        window: episodes of a round.
        pause: updates between two rounds; doubled after each round that passed.
    """

    def __init__(self, target: float | None, window: int, pause: int = 100) -> None:
        self._target = 1.0 if target is None else target
        self._window = window
        self._pause = pause
        self._trickle = SuccessWindow(min(_TRICKLE, window))
        self.curve = SuccessWindow(100)
        """The last greedy episodes, of whatever version: what the learning curve shows."""
        self.round: Round | None = None
        self.best: Verdict | None = None
        self._next_at = 0

    def wants_round(self, updates: int) -> bool:
        """Whether a verdict on the present weights is worth its episodes."""
        if self.round is not None or updates < self._next_at:
            return False
        rate = self._trickle.rate
        return self._trickle.full and rate is not None and rate >= self._target - _SLACK

    def start(self, version: int, episodes: list[str]) -> None:
        """A round was dealt."""
        self.round = Round(version, len(episodes), set(episodes))

    def add(self, episode: str, success: bool, updates: int) -> Verdict | None:
        """Count a greedy result; returns the verdict when it ends the round."""
        self.curve.add(success)
        current = self.round
        if current is None or episode not in current.episodes:
            self._trickle.add(success)
            return None
        current.episodes.discard(episode)
        current.trials += 1
        current.successes += success
        failed = current.failures > self._allowed(current.size)
        if not failed and current.episodes:
            return None
        verdict = Verdict(current.version, current.successes, current.trials, not failed)
        self.round = None
        if failed:
            self._trickle.clear()
        else:
            self._pause *= 2
        self._next_at = updates + self._pause
        if self.best is None or verdict.lower >= self.best.lower:
            self.best = verdict
        return verdict

    def _allowed(self, size: int) -> int:
        """Failures that a round of so many episodes may have."""
        return int((1.0 - self._target) * size + 1e-9)

    def satisfied(self) -> bool:
        """Whether the best verdict reaches the target over a whole round: also one of an earlier life, which may
        have had another target.
        """
        best = self.best
        if best is None or best.trials < self._window:
            return False
        return best.trials - best.successes <= self._allowed(best.trials)

    def latest_is_better(self) -> bool:
        """Whether the last greedy episodes did at least as well as the best verdict, enough of them to tell."""
        rate = self.curve.rate
        if self.best is None:
            return True
        return (
            rate is not None
            and len(self.curve) >= _TRICKLE
            and rate >= self.best.successes / self.best.trials
        )

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps; a round in progress is not part of it, nor is the best verdict, which lies beside
        the checkpoint it judges.
        """
        return {
            "curve": self.curve.state(),
            "trickle": self._trickle.state(),
            "pause": self._pause,
            "next_at": self._next_at,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on where a checkpoint left off.

        Raises:
            KeyError, TypeError, ValueError: that is no state of a validation.
        """
        self.curve.load_state(state["curve"])
        self._trickle.load_state(state["trickle"])
        self._pause = int(state["pause"])
        self._next_at = int(state["next_at"])
