"""What a run has done so far, in numbers that survive its learners."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Counters"]


@dataclass
class Counters:
    """Numbers of the whole run, over all its learners' lives."""

    steps: int = 0
    """Environment steps of training episodes that counted."""
    validation_steps: int = 0
    """Environment steps of validation episodes beside them."""
    episodes: int = 0
    transitions: int = 0
    """Transitions that went into the replay."""
    stale: int = 0
    """Transitions dropped because their parameters were too old."""
    duplicates: int = 0
    version: int = 0
    """Newest parameter version."""
    training_seconds: float = 0.0
    faults: int = 0
    """Episodes given up after all their attempts."""
    lost_updates: int = 0
    """Updates that killed learners had made since their last checkpoints."""
