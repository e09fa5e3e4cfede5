"""What each learner of a run does alike, leading or not: take in experience, and make its part of an update."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import torch

from webgym.protocol import TransitionBatch
from webgym.spec import RunSpec
from webgym_learner.dqn import DQN, UpdateResult
from webgym_learner.meters import fresh_enough
from webgym_learner.replay import PrioritizedReplay
from webgym_learner.transfer import MovedBatch

__all__ = ["Share", "Taken", "anneal", "updates_allowed"]


def anneal(start: float, updates: int, over: int) -> float:
    """Importance exponent: from ``start`` to 1 over so many updates (Schaul et al. 2016, section 3.4)."""
    return min(1.0, start + (1.0 - start) * updates / over)


def updates_allowed(updates: int, steps: int, maximum: float) -> int:
    """How many more updates keep within the largest ratio of updates to environment steps."""
    return max(0, math.floor(maximum * steps) - updates)


@dataclass
class Taken:
    """What became of experience that came in."""

    added: int = 0
    """Transitions that are in the replay now."""
    stale: int = 0
    """Transitions dropped because their parameters were too old."""
    ages: list[int] = field(default_factory=list)
    """Of each batch, by how many versions its oldest parameters were behind."""


class Share:
    """One learner's share of the learning.

    Args:
        spec: of the run.
        dqn: the network that is trained.
        replay: this learner's experience.
        rng: what is drawn from it by.
        ranks: how many learners share each batch.
        ahead: draw the next batch while a GPU is busy with this one, so before this one's priorities are known; by
            default where there is a GPU.
    """

    def __init__(
        self,
        spec: RunSpec,
        dqn: DQN,
        replay: PrioritizedReplay,
        rng: np.random.Generator,
        ranks: int = 1,
        *,
        ahead: bool | None = None,
    ) -> None:
        self._spec = spec
        self._dqn = dqn
        self._replay = replay
        self._rng = rng
        self._batch_size = spec.learner.batch_size // ranks
        self._ahead = dqn.device.type == "cuda" if ahead is None else ahead
        self._next: MovedBatch | None = None

    def take(self, batches: Iterable[TransitionBatch], version: int) -> Taken:
        """Put experience into the replay; what is too old is dropped.

        Args:
            batches: as they arrived.
            version: the newest of the parameters.
        """
        taken, limit = Taken(), self._spec.policy.max_staleness
        for batch in batches:
            keep = fresh_enough(batch.version, version, limit)
            kept = int(keep.sum())
            taken.stale += len(batch) - kept
            if not kept:
                continue
            taken.added += kept
            taken.ages.append(version - int(batch.version[keep].min()))
            self._replay.add(
                batch.observations,
                batch.obs_index[keep],
                batch.next_index[keep],
                batch.action[keep],
                batch.reward[keep],
                batch.discount[keep],
                batch.priority[keep],
            )
        return taken

    def update(self, held: float | None = None) -> UpdateResult:
        """Draw this learner's part of a batch, make the update, set the priorities.

        Args:
            held: transitions that a learner holds on average, where several share the batch.

        Raises:
            DivergedError: see :meth:`DQN.update`.
            PeerLost: likewise.
        """
        moved = self._next or self._draw(held)
        self._next = None

        def draw_next() -> None:
            self._next = self._draw(held)

        batch = moved.batch
        result = self._dqn.update(batch, moved, draw_next if self._ahead else None)
        # By then some of them may have been overwritten: the replay knows by their generations.
        self._replay.update_priorities(batch.slots, batch.generations, result.td_errors)
        return result

    def release(self) -> None:
        """Let go of what training alone needs on a GPU: what comes next in this process, or beside it, may want it."""
        self._next = None
        if self._dqn.device.type == "cuda":
            torch.cuda.empty_cache()

    def _draw(self, held: float | None) -> MovedBatch:
        settings = self._spec.learner.replay
        beta = anneal(settings.beta_start, self._dqn.updates, settings.beta_steps)
        return self._dqn.transfer.begin(self._replay.sample(self._batch_size, beta, self._rng, held))
