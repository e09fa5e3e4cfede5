"""One message of each kind, for the tests of the wire."""

from __future__ import annotations

import numpy as np

from webgym.protocol import EpisodeSummary, EpisodeTask, TransitionBatch
from webgym.schema import Schema

SMALL = Schema(nodes=3, node_features=4, texts=2, text_features=3, pair_features=2, goal_features=5)


def make_batch(schema: Schema = SMALL, n: int = 4, seed: int = 0) -> TransitionBatch:
    """n one-step transitions over n + 1 observations, features on the grid of 1/256."""
    rng = np.random.default_rng(seed)
    observations = {}
    for name, spec in schema.fields().items():
        shape = (n + 1, *spec.shape)
        if spec.dtype == np.float32:
            observations[name] = (rng.integers(0, 257, shape) / 256).astype(np.float32)
        else:
            observations[name] = rng.integers(0, 2, shape).astype(np.uint8)
    return TransitionBatch(
        episode="train-000042",
        attempt=2,
        task="miniwob.click-button",
        first_sequence=7,
        worker="worker-0",
        generation=3,
        observations=observations,
        obs_index=np.arange(n, dtype=np.int32),
        next_index=np.arange(1, n + 1, dtype=np.int32),
        action=rng.integers(0, schema.actions, n).astype(np.int32),
        reward=rng.normal(size=n).astype(np.float32),
        discount=np.append(np.full(n - 1, 0.99), 0.0).astype(np.float32),
        priority=rng.random(n).astype(np.float32),
        version=np.arange(n, dtype=np.int64) + 2**40,
    )


TASK = EpisodeTask(
    episode="train-000042",
    task="miniwob.click-button",
    params={"level": 2, "words": ["a", "ü"]},
    seed=-5,
    purpose="evaluate",
    priority=-1.5,
    max_steps=10,
    version=9,
    record=True,
)
SUMMARY = EpisodeSummary(
    episode="train-000042",
    attempt=2,
    task="miniwob.click-button",
    seed=12345678901,
    purpose="train",
    success=True,
    reward=0.75,
    steps=4,
    seconds=1.25,
    version=17,
    epsilon=0.05,
    worker="worker-0",
    outcome="fault",
    fault="the page crashed",
    staleness=2,
    invalid_actions=1,
)
STATE = {
    "encoder.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "encoder.bias": np.array([1, 2, 3], np.int64),
    "step": np.array(7, np.int32),
    "empty": np.zeros((0, 5), np.float32),
}


def assert_same(found: TransitionBatch, made: TransitionBatch) -> None:
    for name in ("episode", "attempt", "task", "first_sequence", "worker", "generation"):
        assert getattr(found, name) == getattr(made, name)
    for name in ("obs_index", "next_index", "action", "reward", "discount", "priority", "version"):
        np.testing.assert_array_equal(getattr(found, name), getattr(made, name))
        assert getattr(found, name).dtype == getattr(made, name).dtype
    unpacked = found.unpacked()
    assert unpacked.keys() == made.observations.keys()
    for name, array in made.observations.items():
        np.testing.assert_array_equal(unpacked[name], array)
        assert unpacked[name].dtype == array.dtype
