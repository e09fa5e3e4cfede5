"""Transitions of a small schema, for the tests of the experience stream."""

from __future__ import annotations

import numpy as np

from webgym.protocol import TransitionBatch
from webgym.schema import Schema

SCHEMA = Schema(nodes=3, node_features=4, texts=2, text_features=3, pair_features=2, goal_features=5)


def batch(
    episode: str, first: int = 0, n: int = 4, attempt: int = 1, schema: Schema = SCHEMA
) -> TransitionBatch:
    return TransitionBatch(
        episode=episode,
        attempt=attempt,
        task="t",
        first_sequence=first,
        worker="w",
        generation=1,
        observations={
            name: np.zeros((n + 1, *spec.shape), spec.dtype) for name, spec in schema.fields().items()
        },
        obs_index=np.arange(n, dtype=np.int32),
        next_index=np.arange(1, n + 1, dtype=np.int32),
        action=np.arange(first, first + n, dtype=np.int32) % schema.actions,
        reward=np.zeros(n, np.float32),
        discount=np.ones(n, np.float32),
        priority=np.ones(n, np.float32),
        version=np.ones(n, np.int64),
    )
