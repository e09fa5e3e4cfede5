"""Which episode comes next: task, seed and identity.

Seed and identity are a pure function of the run's seed and a cursor, and so is the task of an episode that judges.
Which task is trained is the curriculum's to say.

Seeds come from three ranges that never meet, so that no page seen in an evaluation was ever trained on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from webgym.errors import CheckpointError
from webgym.protocol import EpisodeTask, Purpose
from webgym.spec import TaskSpec
from webgym_learner.curriculum import Curriculum

__all__ = ["SEED_RANGES", "EpisodeSchedule", "episode_seed"]

SEED_RANGES: dict[str, tuple[int, int]] = {
    "train": (0, 1 << 30),
    "collect": (0, 1 << 30),
    "validate": (1 << 30, (1 << 30) + (1 << 29)),
    "evaluate": ((1 << 30) + (1 << 29), (1 << 31) - 1),
}
"""Page seeds by purpose: half-open ranges."""

_PURPOSE_NUMBER = {purpose: number for number, purpose in enumerate(SEED_RANGES)}

_BASE_PRIORITY = {"train": 0.0, "collect": 0.0, "validate": 1e6, "evaluate": 1e6}
"""Episodes that are waited for come before those that feed the replay."""


def episode_seed(run_seed: int, purpose: str, index: int) -> int:
    """Page seed of the ``index``-th episode of a purpose."""
    low, high = SEED_RANGES[purpose]
    sequence = np.random.SeedSequence([run_seed, _PURPOSE_NUMBER[purpose], index])
    return low + int(sequence.generate_state(1, np.uint64)[0] % (high - low))


@dataclass
class EpisodeSchedule:
    """Deals episodes of a run; the whole state is the cursor of each purpose, and the curriculum's.

    Args:
        tasks: the run's tasks with their weights.
        run_seed: ``spec.seed``.
        adaptive: whether learning progress counts in what is trained, or weights alone.
    """

    tasks: Sequence[TaskSpec]
    run_seed: int
    adaptive: bool = True

    def __post_init__(self) -> None:
        self.curriculum = Curriculum(self.tasks, adaptive=self.adaptive)
        weights = np.array([t.weight for t in self.tasks], dtype=np.float64)
        self._shares = np.cumsum(weights / weights.sum())
        self.cursors: dict[str, int] = dict.fromkeys(SEED_RANGES, 0)

    def deal(
        self,
        purpose: Purpose,
        count: int,
        *,
        version: int = 0,
        record_first: bool = False,
        label: str = "",
        stretch: int = 1,
    ) -> list[EpisodeTask]:
        """The next ``count`` episodes of a purpose.

        Args:
            purpose: train, collect, validate or evaluate.
            count: how many.
            version: parameter version to act with; 0 for the newest.
            record_first: ask for screenshots of the first of them.
            label: told apart in the episode ids, for several rounds over the same seeds. What has one is played as a
                whole, so those of one task come after another.
            stretch: training episodes of one task in a row.
        """
        start = self.cursors[purpose]
        self.cursors[purpose] = start + count
        indices = range(start, start + count)
        if purpose == "train":
            chosen = [self.curriculum.next(stretch) for _ in indices]
        elif purpose == "validate" and not label and self.curriculum.current is not None:
            # Played in between, on the pages that are open.
            chosen = [self.curriculum.current] * count
        else:
            chosen = [self._by_weight(index) for index in indices]
        order = sorted(range(count), key=chosen.__getitem__) if label else range(count)
        return [
            self._task(purpose, indices[i], chosen[i], version, record_first and i == 0, label) for i in order
        ]

    def _task(
        self, purpose: Purpose, index: int, chosen: int, version: int, record: bool, label: str
    ) -> EpisodeTask:
        task = self.tasks[chosen]
        priority = _BASE_PRIORITY[purpose] + float(task.priority)
        if purpose == "train":
            priority += self.curriculum.urgency(chosen)
        return EpisodeTask(
            episode=f"{purpose}{label}-{index:08d}",
            task=task.name,
            params=dict(task.params),
            seed=episode_seed(self.run_seed, purpose, index),
            purpose=purpose,
            priority=priority,
            max_steps=task.max_steps,
            version=version,
            record=record,
        )

    def _by_weight(self, index: int) -> int:
        # Drawn low-discrepancy (golden ratio), so that every window of episodes holds each task by its weight.
        position = (0.5 + index * 0.6180339887498949) % 1.0
        return min(int(np.searchsorted(self._shares, position, side="right")), len(self.tasks) - 1)

    def skip_to(self, cursors: Mapping[str, int]) -> None:
        """Deal nothing that was dealt before: move each cursor forward to at least this."""
        for purpose, cursor in cursors.items():
            if purpose in self.cursors:
                self.cursors[purpose] = max(self.cursors[purpose], cursor)

    def state(self) -> dict[str, int]:
        """The cursors, for a checkpoint."""
        return dict(self.cursors)

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue where a checkpoint left off.

        Raises:
            CheckpointError: the state is not a schedule's.
        """
        try:
            cursors = {purpose: int(state[purpose]) for purpose in SEED_RANGES}
        except (KeyError, TypeError, ValueError):
            raise CheckpointError("the checkpoint's episode cursors cannot be read") from None
        self.cursors = cursors
