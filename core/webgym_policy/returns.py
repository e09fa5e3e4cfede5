"""n-step returns, assembled while an episode runs, with the first priority of each transition.

Windows never cross the end of an episode: near it they are shorter. Termination has no future (discount 0);
truncation has one, valued at the final observation; a crash has no known end, so its unfinished tail is
dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["NStepAssembler", "Transition", "TransitionColumns", "columns"]


class Transition(NamedTuple):
    """One n-step transition; the indices point into the episode's observations."""

    obs_index: int
    next_index: int
    """Observation that the rest of the return is valued at; without meaning where ``discount`` is 0."""
    action: int
    reward: float
    """Discounted sum of the window's rewards."""
    discount: float
    """What the value at ``next_index`` counts: gamma to the window's length, 0 after termination."""
    priority: float
    """|reward + discount * max Q(next) - Q(taken)|, by the values the actor had."""


class _Step(NamedTuple):
    obs_index: int
    action: int
    reward: float
    q_taken: float


class NStepAssembler:
    """Turns the steps of one episode after another into n-step transitions, one for each step, in order.

    Args:
        n: longest window, in steps.
        discount: gamma, for one step.
    """

    def __init__(self, n: int, discount: float) -> None:
        if n < 1:
            raise ValueError(f"n is {n}; a window has at least one step")
        if not 0.0 <= discount <= 1.0:
            raise ValueError(f"the discount is {discount}, not in [0, 1]")
        self._n = n
        self._discount = discount
        self._window: deque[_Step] = deque()

    def __len__(self) -> int:
        """Steps that wait for the end of their window."""
        return len(self._window)

    def add(
        self, obs_index: int, action: int, reward: float, q_taken: float, q_max: float
    ) -> list[Transition]:
        """Takes one finished step.

        Args:
            obs_index: observation acted on.
            action: flat action taken.
            reward: what it brought.
            q_taken: Q(observation, action) by the actor.
            q_max: largest valid Q of that same observation; it values the windows that end here.

        Returns:
            The transition whose window ends at ``obs_index``: none or one.
        """
        done = []
        if len(self._window) == self._n:
            done.append(self._oldest(obs_index, self._discount**self._n, q_max))
        self._window.append(_Step(obs_index, action, float(reward), float(q_taken)))
        return done

    def end(
        self,
        *,
        terminated: bool,
        truncated: bool,
        final_obs_index: int | None = None,
        final_q_max: float = 0.0,
    ) -> list[Transition]:
        """Ends the episode, and makes the assembler ready for the next.

        Args:
            terminated: the task itself ended; counts also when ``truncated`` is set.
            truncated: it was cut short, so the final observation has a value.
            final_obs_index: observation after the last step; may be left out after termination.
            final_q_max: its largest valid Q.

        Returns:
            The transitions of the tail, oldest first.

        Raises:
            ValueError: neither flag is set, or a truncation comes without its final observation.
        """
        if not (terminated or truncated):
            raise ValueError("an episode ends terminated or truncated; one that broke off is abort()ed")
        if not terminated and final_obs_index is None:
            raise ValueError("truncation bootstraps from the final observation, which is missing")
        tail = []
        while self._window:
            discount = 0.0 if terminated else self._discount ** len(self._window)
            final = self._window[-1].obs_index if final_obs_index is None else final_obs_index
            tail.append(self._oldest(final, discount, final_q_max))
        return tail

    def abort(self) -> int:
        """Drops the unfinished tail after a crash, and says how many steps that were."""
        dropped = len(self._window)
        self._window.clear()
        return dropped

    def _oldest(self, next_index: int, discount: float, q_max: float) -> Transition:
        total = 0.0
        for step in reversed(self._window):
            total = step.reward + self._discount * total
        step = self._window.popleft()
        # A discount of 0 has to win even over a value that is not finite.
        future = discount * q_max if discount else 0.0
        priority = abs(total + future - step.q_taken)
        return Transition(step.obs_index, next_index, step.action, total, discount, priority)


class TransitionColumns(NamedTuple):
    """Transitions as arrays (n,), the way messages and the replay hold them."""

    obs_index: NDArray[np.int32]
    next_index: NDArray[np.int32]
    action: NDArray[np.int32]
    reward: NDArray[np.float32]
    discount: NDArray[np.float32]
    priority: NDArray[np.float32]


def columns(transitions: Sequence[Transition]) -> TransitionColumns:
    """Transitions as columns; empty arrays for none."""
    return TransitionColumns(
        obs_index=np.array([t.obs_index for t in transitions], np.int32),
        next_index=np.array([t.next_index for t in transitions], np.int32),
        action=np.array([t.action for t in transitions], np.int32),
        reward=np.array([t.reward for t in transitions], np.float32),
        discount=np.array([t.discount for t in transitions], np.float32),
        priority=np.array([t.priority for t in transitions], np.float32),
    )
