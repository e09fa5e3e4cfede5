"""Exploration looks first at what the instruction names, and rules nothing out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webgym.schema import ActionKind, Observation, Schema
from webgym_policy.selection import random_action
from webgym_workers.observer.features import NODE_FEATURES
from webgym_workers.observer.prior import KIND_WEIGHTS, ExplorationWeights, exploration_weights

SCHEMA = Schema(nodes=4, texts=3)
EVERYTHING = np.ones(SCHEMA.actions, np.uint8)


def observation(**columns: list[float]) -> Observation:
    made = SCHEMA.empty()
    for name, values in columns.items():
        made["dom"][: len(values), NODE_FEATURES.index(name)] = values
    return made


def test_without_anything_named_all_nodes_and_texts_are_alike() -> None:
    weights = exploration_weights(observation())
    assert [w.shape for w in weights] == [(12,), (SCHEMA.nodes,), (SCHEMA.nodes, SCHEMA.texts)]
    assert set(weights.node) == {1.0}
    assert set(weights.text.ravel()) == {1.0}
    assert weights.kind is KIND_WEIGHTS


def test_clicking_typing_and_choosing_come_before_the_rest() -> None:
    first = {ActionKind.CLICK, ActionKind.TYPE, ActionKind.SELECT_OPTION}
    least = min(KIND_WEIGHTS[kind] for kind in first)
    assert all(KIND_WEIGHTS[kind] < least for kind in ActionKind if kind not in first)
    assert KIND_WEIGHTS.min() > 0


@pytest.mark.parametrize("column", ["equals_span", "contained", "attribute_match", "context_match"])
def test_a_node_that_the_instruction_names_comes_first(column: str) -> None:
    node = exploration_weights(observation(**{column: [0, 1, 0, 0]})).node
    assert node[1] > 2 * node[0]
    assert node[0] == node[2] == node[3]


def test_what_is_named_first_is_done_first() -> None:
    node = exploration_weights(observation(equals_span=[1, 1, 1, 0], order=[0.5, 1.0, 0.25, 0])).node
    assert node[1] > node[0] > node[2] > node[3]


def test_several_reasons_to_be_named_are_one() -> None:
    both = exploration_weights(observation(equals_span=[1], contained=[1], attribute_match=[1])).node
    assert both[0] == exploration_weights(observation(equals_span=[1])).node[0]


def test_what_was_done_comes_later() -> None:
    plain = exploration_weights(observation()).node
    filled = exploration_weights(observation(value_state=[0, 0.5, 1.0, 0])).node
    assert filled[2] < plain[2]
    assert np.array_equal(np.delete(filled, 2), np.delete(plain, 2))
    acted = exploration_weights(observation(times_acted=[0, 0.25, 0.5, 1.0])).node
    assert list(acted) == sorted(acted, reverse=True)
    assert acted[1] == pytest.approx(0.5)
    assert exploration_weights(observation(is_text_field=[1])).node[0] < 1


def test_a_text_goes_where_its_label_stands_before_it() -> None:
    made = observation()
    made["pair"][2, 1, 1] = 1.0  # the label stands before the text
    made["pair"][2, 0, 1] = 0.5  # behind it
    text = exploration_weights(made).text
    assert text[2, 1] > 5 * text[2, 0]
    assert (np.delete(text.ravel(), 2 * SCHEMA.texts + 1) == 1.0).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_every_action_keeps_a_share(seed: int) -> None:
    rng = np.random.default_rng(seed)
    made = SCHEMA.empty()
    for name in ("dom", "pair"):
        made[name][...] = np.rint(rng.random(made[name].shape) * 256) / 256
    weights = exploration_weights(made)
    for array in weights:
        assert np.isfinite(array).all()
        assert array.min() > 0
    # The rarest of all is still drawn where it is the only one.
    mask = np.zeros(SCHEMA.actions, np.uint8)
    mask[only := rng.integers(SCHEMA.actions)] = 1
    assert random_action(mask, SCHEMA, rng, *weights) == only


def test_the_odds_of_a_random_action_follow_the_weights() -> None:
    rng = np.random.default_rng(0)
    weights: ExplorationWeights = exploration_weights(observation(equals_span=[0, 1, 0, 0]))
    drawn = [SCHEMA.decode(random_action(EVERYTHING, SCHEMA, rng, *weights)) for _ in range(4000)]
    kinds = np.bincount([a.kind for a in drawn], minlength=12) / len(drawn)
    assert np.allclose(kinds, KIND_WEIGHTS / KIND_WEIGHTS.sum(), atol=0.03)
    clicks = np.bincount([a.node for a in drawn if a.kind is ActionKind.CLICK], minlength=4)
    assert clicks[1] / clicks.sum() == pytest.approx(4 / 7, abs=0.08)
