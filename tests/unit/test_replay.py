"""The replay: what comes out is what went in, priorities decide what comes, nothing stale gets through."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webgym.errors import CheckpointError, SchemaMismatch
from webgym.schema import Observation, Schema
from webgym_learner.replay import PrioritizedReplay

SCHEMA = Schema(nodes=3, texts=2, node_features=4, text_features=2, pair_features=2, goal_features=5)
ONE = -(-(1 << 20) // PrioritizedReplay(SCHEMA, 1 << 20).capacity)
"""Bytes that one transition with its observation takes under SCHEMA."""


def episode(tag: int, length: int) -> dict[str, Any]:
    """An episode of ``length`` steps whose arrays all say which episode and step they are of."""
    size = length + 1
    observations: Observation = {}
    for name, (shape, dtype) in SCHEMA.fields().items():
        rows = np.zeros((size, *shape), dtype)
        if name.endswith("mask"):
            rows[:] = np.random.default_rng(tag).integers(0, 2, rows.shape)
        else:
            rows[:] = (np.arange(size) / 256).reshape(-1, *([1] * len(shape)))
        observations[name] = rows
    # float16 holds whole numbers up to 2048 exactly.
    observations["goal"][:, 0] = tag
    return {
        "observations": observations,
        "obs_index": np.arange(length),
        "next_index": np.minimum(np.arange(length) + 2, length),
        "action": (np.arange(length) + tag) % SCHEMA.actions,
        "reward": np.full(length, tag, np.float32),
        "discount": np.full(length, 0.5, np.float32),
    }


def replay(transitions: int, **options: Any) -> PrioritizedReplay:
    made = PrioritizedReplay(SCHEMA, transitions * ONE, **options)
    assert made.capacity == transitions
    return made


@settings(max_examples=40, deadline=None)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=60), slots=st.integers(12, 40))
def test_what_comes_out_is_what_went_in_however_often_the_rings_wrap(lengths: list[int], slots: int) -> None:
    memory = replay(slots)
    masks = {}
    for tag, length in enumerate(lengths):
        transitions = episode(tag, length)
        masks[tag] = transitions["observations"]["action_mask"]
        memory.add(**transitions, priority=np.ones(length, np.float32))
        batch = memory.sample(32, 0.4, np.random.default_rng(tag))
        tags = batch.reward.astype(int)
        steps = np.rint(batch.obs["dom"][:, 0, 0] * 256).astype(int)
        np.testing.assert_array_equal(batch.obs["goal"][:, 0], tags)
        np.testing.assert_array_equal(batch.next_obs["goal"][:, 0], tags)
        np.testing.assert_array_equal(batch.action, (steps + tags) % SCHEMA.actions)
        after = np.minimum(steps + 2, np.array(lengths)[tags])
        np.testing.assert_array_equal(np.rint(batch.next_obs["pair"][:, 1, 1, 1] * 256), after)
        for row in range(32):
            np.testing.assert_array_equal(batch.obs["action_mask"][row], masks[tags[row]][steps[row]])
        assert batch.obs["dom"].dtype == np.float16
        assert len(memory) <= memory.capacity
    assert memory.added == sum(lengths)
    assert memory.evicted + len(memory) == sum(lengths)
    # Every transition that is held can be drawn.
    assert len(np.unique(memory.sample(4000, 0.4, np.random.default_rng(0)).slots)) == len(memory)


def test_the_byte_cap_is_kept_and_used() -> None:
    memory = PrioritizedReplay(Schema(), 64 << 20)
    assert 0.98 * (64 << 20) < memory.nbytes <= 64 << 20
    with pytest.raises(ValueError, match="too small"):
        PrioritizedReplay(Schema(), 3000)


def test_draws_and_weights_follow_schaul() -> None:
    memory = replay(16, alpha=0.5, epsilon=1e-9)
    priorities = np.array([1.0, 4.0, 9.0, 16.0], np.float32)
    memory.add(**episode(1, 4), priority=priorities)
    batch = memory.sample(10_000, 0.7, np.random.default_rng(0))
    probability = np.sqrt(priorities) / np.sqrt(priorities).sum()
    assert np.bincount(batch.slots) / 10_000 == pytest.approx(probability, abs=0.005)
    weight = (4 * probability) ** -0.7
    assert batch.weight == pytest.approx((weight / weight.max())[batch.slots], rel=1e-5)


def test_new_priorities_count_and_those_of_overwritten_transitions_do_not() -> None:
    memory = replay(12)
    memory.add(**episode(1, 6), priority=np.ones(6, np.float32))
    old = memory.sample(6, 0.4, np.random.default_rng(0))
    assert memory.update_priorities(old.slots, old.generations, np.zeros(6, np.float32)) == 6
    # Fill until the first episode is gone and its slots hold others.
    for tag in range(2, 6):
        memory.add(**episode(tag, 6), priority=np.ones(6, np.float32))
    before = memory.state()[0]["weight"]
    assert memory.update_priorities(old.slots, old.generations, np.full(6, 1e6, np.float32)) == 0
    assert memory.stale_updates == 6
    np.testing.assert_array_equal(memory.state()[0]["weight"], before)
    # A forged or future generation is no better.
    assert memory.update_priorities(old.slots, old.generations + 1000 * memory.capacity, np.ones(6)) == 0
    fresh = memory.sample(6, 0.4, np.random.default_rng(1))
    assert memory.update_priorities(fresh.slots, fresh.generations, np.full(6, 50.0, np.float32)) == 6
    again = memory.sample(1000, 0.4, np.random.default_rng(2))
    assert np.isin(again.slots, fresh.slots).mean() > 0.8


def test_without_a_priority_a_transition_comes_in_at_the_top() -> None:
    memory = replay(16)
    memory.add(**episode(1, 4), priority=np.array([1.0, 2.0, 9.0, np.nan], np.float32))
    memory.add(**episode(2, 4))
    weight = memory.state()[0]["weight"]
    assert weight[4:] == pytest.approx([(9.0 + 1e-3) ** 0.6] * 4)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"action": np.array([0, SCHEMA.actions])}, ValueError),
        ({"obs_index": np.array([0, 3])}, ValueError),
        ({"next_index": np.array([-1, 0])}, ValueError),
        ({"reward": np.array([0, np.inf], np.float32)}, ValueError),
        ({"discount": np.array([0.5], np.float32)}, ValueError),
        ({"observations": {}}, SchemaMismatch),
        ({"observations": {**episode(1, 2)["observations"], "goal": np.zeros((3, 6))}}, SchemaMismatch),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(
    change: dict[str, Any], error: type[Exception]
) -> None:
    memory = replay(16)
    memory.add(**episode(7, 3))
    before = memory.state()[0]
    with pytest.raises(error):
        memory.add(**{**episode(1, 2), **change})
    after = memory.state()[0]
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_bad_priorities_are_refused() -> None:
    memory = replay(16)
    memory.add(**episode(7, 3))
    batch = memory.sample(3, 0.4, np.random.default_rng(0))
    with pytest.raises(ValueError, match="not finite"):
        memory.update_priorities(batch.slots, batch.generations, np.array([1.0, np.nan, 1.0]))


def test_a_saved_replay_goes_on_where_it_was() -> None:
    memory = replay(20)
    for tag in range(12):
        memory.add(**episode(tag, 4), priority=np.full(4, 1.0 + tag, np.float32))
    arrays, state = memory.state()
    same = replay(20)
    same.load_state(arrays, state)
    assert (len(same), same.evicted) == (len(memory), memory.evicted)
    again = same.state()[0]
    assert all(np.array_equal(array, again[name]) for name, array in arrays.items())
    counts = [
        np.bincount(m.sample(1000, 0.4, np.random.default_rng(0)).reward.astype(int)) for m in (memory, same)
    ]
    assert counts[0] == pytest.approx(counts[1], abs=3)
    same.add(**episode(50, 4))
    # Into a smaller one the newest fit, whole and consistent.
    small = replay(10)
    small.load_state(arrays, state)
    batch = small.sample(64, 0.4, np.random.default_rng(0))
    np.testing.assert_array_equal(batch.obs["goal"][:, 0], batch.reward)
    np.testing.assert_array_equal(batch.next_obs["goal"][:, 0], batch.reward)
    assert batch.reward.min() >= 9
    assert batch.reward.max() == 11


def test_a_saved_replay_that_contradicts_itself_is_refused() -> None:
    memory = replay(16)
    memory.add(**episode(1, 4))
    arrays, state = memory.state()
    for broken in (
        ({**arrays, "next": arrays["next"] + 100}, state),
        ({**arrays, "weight": arrays["weight"] * np.nan}, state),
        ({k: v for k, v in arrays.items() if k != "obs.dom"}, state),
        (arrays, {**state, "schema": "another"}),
        (arrays, {k: v for k, v in state.items() if k != "max_weight"}),
    ):
        with pytest.raises(CheckpointError, match="resume without it"):
            memory.load_state(*broken)
    assert len(memory) == 4


def test_an_empty_replay_says_so() -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        replay(16).sample(4, 0.4, np.random.default_rng(0))
    arrays, state = replay(16).state()
    again = replay(16)
    again.load_state(arrays, state)
    assert len(again) == 0
