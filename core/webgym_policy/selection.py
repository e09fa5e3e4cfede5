"""Choosing actions from Q values: greedy with a mask, epsilon-greedy, and each actor's rate of exploration.

NumPy alone, so that a process without torch can act.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from webgym.schema import Action, ActionKind, Schema

__all__ = [
    "Exploration",
    "actor_epsilon",
    "epsilon_greedy",
    "greedy",
    "masked_max",
    "random_action",
]


def masked_max(q: NDArray[np.floating], mask: NDArray[np.generic]) -> NDArray[np.float64]:
    """Largest valid Q value of each row.

    Args:
        q: (B, actions).
        mask: (B, actions), non-zero where valid.

    Returns:
        float64 (B,); 0 where no action is valid (there is nothing to win there).
    """
    best = np.where(mask != 0, q, -np.inf).max(axis=-1).astype(np.float64)
    return np.where(np.isneginf(best), 0.0, best)


def greedy(
    q: NDArray[np.floating], mask: NDArray[np.generic], schema: Schema, rng: np.random.Generator
) -> NDArray[np.int64]:
    """The best valid action of each row, ties broken at random; waiting where no action is valid.

    Args:
        q: (B, actions).
        mask: (B, actions), non-zero where valid.
        schema: whose flat numbering this is.
        rng: used for ties only.

    Returns:
        int64 (B,), flat actions.
    """
    scores = np.where(mask != 0, q, -np.inf)
    best = scores.max(axis=1)
    chosen: NDArray[np.int64] = scores.argmax(axis=1).astype(np.int64)
    for row in np.flatnonzero((scores == best[:, None]).sum(axis=1) > 1):
        if np.isneginf(best[row]):
            chosen[row] = schema.encode(Action(ActionKind.WAIT))
        else:
            chosen[row] = rng.choice(np.flatnonzero(scores[row] == best[row]))
    return chosen


def random_action(
    mask: NDArray[np.generic],
    schema: Schema,
    rng: np.random.Generator,
    kind_weights: ArrayLike | None = None,
    node_weights: ArrayLike | None = None,
    text_weights: ArrayLike | None = None,
) -> int:
    """A random valid action: first a kind, then a node, then a text.

    Uniform over flat actions would type or select nine times out of ten, as those are nine tenths of the
    numbering.

    Args:
        mask: (actions,), non-zero where valid.
        schema: whose flat numbering this is.
        rng: source of the choice.
        kind_weights: (12,) relative weights of the kinds, uniform by default; kinds of weight 0 are chosen
            only where nothing else is valid.
        node_weights: (nodes,) relative weights of the nodes, uniform by default.
        text_weights: (nodes, texts) relative weights of the texts for each node, uniform by default.

    Returns:
        The flat action; waiting where no action is valid.
    """
    valid = np.flatnonzero(mask)
    if valid.size == 0:
        return schema.encode(Action(ActionKind.WAIT))
    kinds = schema.kind_of[valid]
    present = np.unique(kinds)
    kind = _draw(present, None if kind_weights is None else np.asarray(kind_weights)[present], rng)
    valid = valid[kinds == kind]
    nodes = schema.node_of[valid]
    present = np.unique(nodes)
    node = _draw(present, None if node_weights is None else np.asarray(node_weights)[present], rng)
    valid = valid[nodes == node]
    texts = schema.text_of[valid]
    return _draw(valid, None if text_weights is None else np.asarray(text_weights)[node, texts], rng)


def _draw(values: NDArray[np.integer], weights: NDArray[Any] | None, rng: np.random.Generator) -> int:
    """One of the values, by weight; uniformly where no weight is positive."""
    total = 0.0 if weights is None else float(weights.sum())
    if weights is None or total <= 0.0:
        return int(rng.choice(values))
    return int(rng.choice(values, p=np.asarray(weights, dtype=np.float64) / total))


def epsilon_greedy(
    q: NDArray[np.floating],
    mask: NDArray[np.generic],
    epsilon: ArrayLike,
    schema: Schema,
    rng: np.random.Generator,
    kind_weights: ArrayLike | None = None,
) -> NDArray[np.int64]:
    """Greedy, or with probability ``epsilon`` random as in :func:`random_action`.

    Args:
        q: (B, actions).
        mask: (B, actions), non-zero where valid.
        epsilon: one rate, or one a row (B,).
        schema: whose flat numbering this is.
        rng: source of every choice.
        kind_weights: see :func:`random_action`.

    Returns:
        int64 (B,), flat actions.
    """
    chosen = greedy(q, mask, schema, rng)
    explore = rng.random(len(chosen)) < np.broadcast_to(np.asarray(epsilon, dtype=np.float64), chosen.shape)
    for row in np.flatnonzero(explore):
        chosen[row] = random_action(mask[row], schema, rng, kind_weights)
    return chosen


def actor_epsilon(index: int, actors: int, base: float = 0.4, alpha: float = 7.0) -> float:
    """The fixed exploration rate of one actor among many.

    epsilon_i = base ** (1 + alpha * i / (N - 1)), and ``base`` for a single actor: Horgan et al. 2018,
    "Distributed Prioritized Experience Replay" (Ape-X), section 4, with their base 0.4 and alpha 7.

    Args:
        index: which actor, 0 <= index < actors; the first explores most.
        actors: how many there are.
        base: largest rate, in [0, 1].
        alpha: how steeply the rate falls.

    Raises:
        ValueError: the index is out of range.
    """
    if not 0 <= index < actors:
        raise ValueError(f"actor {index} is not in [0, {actors})")
    if actors == 1:
        return base
    return float(base ** (1.0 + alpha * index / (actors - 1)))


@dataclass(frozen=True)
class Exploration:
    """Rates of exploration over a run: a random warm-up, then the ladder of :func:`actor_epsilon`.

    With few actors the ladder leaves most of them nearly greedy from random weights, which repeat one useless
    action; the warm-up fills the replay with something to learn from first.
    """

    base: float = 0.4
    alpha: float = 7.0
    warmup_steps: int = 300
    """Environment steps of the whole run during which every action is random."""

    def epsilon(self, index: int, actors: int, env_steps: int) -> float:
        """Rate of an actor once the run has made ``env_steps`` environment steps."""
        if env_steps < self.warmup_steps:
            return 1.0
        return actor_epsilon(index, actors, self.base, self.alpha)
