"""Choosing actions: masks hold always, ties are fair, exploration spreads over kinds first."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webgym.schema import Action, ActionKind, Schema
from webgym_policy.selection import (
    Exploration,
    actor_epsilon,
    epsilon_greedy,
    greedy,
    masked_max,
    random_action,
)

SCHEMA = Schema(nodes=4, texts=3)
WAIT = SCHEMA.encode(Action(ActionKind.WAIT))


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32), epsilon=st.floats(0, 1), density=st.floats(0.02, 1))
def test_whatever_is_chosen_is_valid(seed: int, epsilon: float, density: float) -> None:
    rng = np.random.default_rng(seed)
    mask = (rng.random((5, SCHEMA.actions)) < density).astype(np.uint8)
    q = rng.normal(size=(5, SCHEMA.actions)).astype(np.float32)
    chosen = epsilon_greedy(q, mask, epsilon, SCHEMA, rng)
    for row, action in enumerate(chosen):
        assert mask[row, action] or (not mask[row].any() and action == WAIT)


def test_greedy_takes_the_best_valid_action_and_not_the_best() -> None:
    q = np.array([[0.0, 5.0, 9.0] + [-1.0] * (SCHEMA.actions - 3)], np.float32)
    mask = np.ones_like(q, dtype=np.uint8)
    mask[0, 2] = 0
    rng = np.random.default_rng(0)
    assert greedy(q, mask, SCHEMA, rng).tolist() == [1]
    assert masked_max(q, mask).tolist() == [5.0]


def test_ties_are_broken_evenly() -> None:
    q = np.zeros((3000, SCHEMA.actions), np.float32)
    mask = np.zeros_like(q, dtype=np.uint8)
    mask[:, [1, 5, 9]] = 1
    counts = np.bincount(greedy(q, mask, SCHEMA, np.random.default_rng(1)), minlength=10)
    assert counts.sum() == counts[[1, 5, 9]].sum() == 3000
    assert counts[[1, 5, 9]].min() > 850


def test_nothing_valid_means_waiting_and_a_value_of_zero() -> None:
    q = np.full((1, SCHEMA.actions), 3.0, np.float32)
    mask = np.zeros_like(q, dtype=np.uint8)
    assert greedy(q, mask, SCHEMA, np.random.default_rng(0)).tolist() == [WAIT]
    assert random_action(mask[0], SCHEMA, np.random.default_rng(0)) == WAIT
    assert masked_max(q, mask).tolist() == [0.0]


def test_random_actions_are_uniform_over_kinds_then_nodes_then_texts() -> None:
    mask = np.zeros(SCHEMA.actions, np.uint8)
    typed = [SCHEMA.encode(Action(ActionKind.TYPE, n, t)) for n in (0, 1) for t in range(3)]
    click, wait = SCHEMA.encode(Action(ActionKind.CLICK, 2)), WAIT
    mask[[*typed, click, wait]] = 1
    # One text less on node 1: its other texts get the larger share.
    mask[typed[5]] = 0
    rng = np.random.default_rng(2)
    counts = np.bincount([random_action(mask, SCHEMA, rng) for _ in range(12_000)], minlength=SCHEMA.actions)
    share = counts / counts.sum()
    assert share[click] == pytest.approx(1 / 3, abs=0.02)
    assert share[wait] == pytest.approx(1 / 3, abs=0.02)
    assert share[typed[:3]] == pytest.approx([1 / 18] * 3, abs=0.01)
    assert share[typed[3:5]] == pytest.approx([1 / 12] * 2, abs=0.01)


def test_kind_weights_shift_the_choice_and_never_block_the_only_one() -> None:
    mask = np.zeros(SCHEMA.actions, np.uint8)
    back = SCHEMA.encode(Action(ActionKind.BACK))
    mask[[WAIT, back]] = 1
    weights = np.ones(12)
    weights[ActionKind.BACK] = 0
    rng = np.random.default_rng(3)
    assert {random_action(mask, SCHEMA, rng, weights) for _ in range(50)} == {WAIT}
    mask[WAIT] = 0
    assert random_action(mask, SCHEMA, rng, weights) == back


def test_epsilon_holds_by_row() -> None:
    q = np.zeros((2000, SCHEMA.actions), np.float32)
    q[:, 7] = 1.0
    mask = np.ones_like(q, dtype=np.uint8)
    epsilon = np.where(np.arange(2000) < 1000, 0.0, 1.0)
    chosen = epsilon_greedy(q, mask, epsilon, SCHEMA, np.random.default_rng(4))
    assert (chosen[:1000] == 7).all()
    assert (chosen[1000:] == 7).mean() < 0.1


def test_the_ladder_is_that_of_ape_x() -> None:
    assert actor_epsilon(0, 1) == 0.4
    ladder = [actor_epsilon(i, 8) for i in range(8)]
    assert ladder[0] == pytest.approx(0.4)
    assert ladder[7] == pytest.approx(0.4**8)
    assert ladder[3] == pytest.approx(0.4**4)
    with pytest.raises(ValueError, match="actor 3"):
        actor_epsilon(3, 3)


def test_warm_up_is_random_and_then_the_ladder() -> None:
    exploration = Exploration(warmup_steps=300)
    assert exploration.epsilon(2, 3, 299) == 1.0
    assert exploration.epsilon(2, 3, 300) == pytest.approx(0.4**8)
