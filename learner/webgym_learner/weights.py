"""A set of weights to be judged, and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webgym_learner.checkpoint import Checkpoint

__all__ = ["Weights"]


@dataclass(frozen=True)
class Weights:
    """What an actor needs to act, named."""

    arrays: Mapping[str, NDArray[np.float32]]
    origin: str
    """``best``, ``latest``, or the path that was asked for."""
    checkpoint: Path | None = None
    """The checkpoint that holds them; None before there is one."""
    steps: int = 0
    """Environment steps of training they rest on; 0 where nobody asks."""
    updates: int = 0

    @classmethod
    def of(cls, found: Checkpoint, origin: str) -> Weights:
        """The acting weights of a checkpoint, loaded with its group ``acting``."""
        counters: Any = found.state.get("counters")
        dqn: Any = found.state.get("dqn")
        return cls(
            {name: np.asarray(array) for name, array in found.arrays["acting"].items()},
            origin,
            found.path,
            _number(counters, "steps"),
            _number(dqn, "updates"),
        )


def _number(state: Any, name: str) -> int:
    value = state.get(name) if isinstance(state, Mapping) else None
    return value if isinstance(value, int) else 0
