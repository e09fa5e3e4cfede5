"""What the training loop works with, and why it ends."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import numpy as np

from webgym.spec import RunSpec
from webgym.turns import LearnerTurns
from webgym_learner.checkpoint import CheckpointStore
from webgym_learner.counters import Counters
from webgym_learner.dqn import DQN
from webgym_learner.group import Group
from webgym_learner.inbox import Inbox
from webgym_learner.recorder import MetricsRecorder
from webgym_learner.replay import PrioritizedReplay
from webgym_learner.schedule import EpisodeSchedule
from webgym_learner.validation import Validation

__all__ = ["StopReason", "TrainerParts"]

logger = logging.getLogger(__name__)


class StopReason(StrEnum):
    """Why training ended."""

    STEPS = "steps"
    SECONDS = "seconds"
    SUCCESS = "success"
    DRAINED = "drained"


@dataclass
class TrainerParts:
    """Everything the loop works with; built by the program."""

    spec: RunSpec
    generation: int
    dqn: DQN
    replay: PrioritizedReplay
    schedule: EpisodeSchedule
    inbox: Inbox
    recorder: MetricsRecorder
    checkpoints: CheckpointStore
    counters: Counters = field(default_factory=Counters)
    turns: LearnerTurns | None = None
    """Where browsers and learner take turns; None where they do not."""
    validation: Validation | None = None
    """As an earlier life left it; None begins one."""
    saved_at: Path | None = None
    """The checkpoint that all this was restored from."""
    tell: Callable[[str], None] = logger.warning
    """Says a line that the person who started the run should read."""
    rng: np.random.Generator = field(default_factory=np.random.default_rng)
    group: Group | None = None
    """The other learners, which this one leads; None where there are none."""
