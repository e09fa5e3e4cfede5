"""Prioritised experience replay (Schaul et al. 2016), capped in bytes.

Two rings: observations, each held once although up to n + 1 transitions see it, and transitions that point at
them. Both number what they hold from 0 on without ever starting again; the place in the ring is the number
modulo the capacity. A transition's number is the *generation* of its slot: priorities computed for a
transition that has been overwritten meanwhile name a number that is no longer there, and are ignored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from webgym.errors import CheckpointError, SchemaMismatch
from webgym.schema import Observation, Schema

from .sumtree import SumTree

__all__ = ["PrioritizedReplay", "ReplayBatch"]

_COLUMNS: dict[str, type[np.generic]] = {
    "obs": np.int64,
    "next": np.int64,
    # First observation of the batch the transition came with: non-decreasing along the ring, which makes
    # finding the transitions that lose an observation a binary search.
    "first": np.int64,
    "action": np.int32,
    "reward": np.float32,
    "discount": np.float32,
}


# Side by side like the fields of an observation, and for the same reason.
_TRANSITION = np.dtype(list(_COLUMNS.items()), align=True)
_ALIGNMENT = 8


@dataclass(frozen=True)
class ReplayBatch:
    """Transitions drawn from the replay, as arrays (B, ...)."""

    obs: Observation
    """The schema's fields as stored: float16 where the schema says float32 (whoever computes widens them,
    which a GPU does faster, after half the transfer), and uint8. Rows of one field do not touch."""
    next_obs: Observation
    action: NDArray[np.int64]
    reward: NDArray[np.float32]
    discount: NDArray[np.float32]
    weight: NDArray[np.float32]
    """Importance weights in (0, 1], divided by the largest of the batch."""
    slots: NDArray[np.int64]
    generations: NDArray[np.int64]
    scale: float = 1.0
    """The largest importance weight, by which ``weight`` was divided: what the parts of a batch that several learners
    share are brought to the same measure with."""


class PrioritizedReplay:
    """Transitions with priorities, as many as fit into so many bytes.

    Args:
        schema: of the observations.
        capacity_bytes: upper bound of the memory all rings and the tree take together once full; memory is
            touched only as they fill.
        alpha: how strongly priorities count; 0 draws uniformly.
        epsilon: added to every priority, so that nothing becomes undrawable.
    """

    def __init__(
        self, schema: Schema, capacity_bytes: int, alpha: float = 0.6, epsilon: float = 1e-3
    ) -> None:
        if not 0.0 <= alpha <= 1.0:
            raise ValueError(f"alpha is {alpha}, not in [0, 1]")
        if not epsilon > 0.0:
            raise ValueError(f"epsilon is {epsilon}; it has to be positive")
        self.schema = schema
        self.alpha = alpha
        self.epsilon = epsilon
        self.stale_updates = 0
        """Priority updates ignored so far because their transition was gone."""
        self.evicted = 0
        """Transitions overwritten so far."""
        layout, observation = _record_layout({name: self._stored(name) for name in schema.fields()})
        # 8 bytes of tree leaf and less than an eighth of that for the levels above it.
        transition = _TRANSITION.itemsize + 9
        self.capacity = int(capacity_bytes // (observation + transition))
        """Transitions, and observations, that fit."""
        if self.capacity < 2:
            raise ValueError(
                f"a replay of {capacity_bytes} bytes is too small: one step takes {observation + transition}"
            )
        # An observation's fields lie side by side: drawing it is one copy instead of one for each field, each of
        # them somewhere else in gigabytes.
        self._layout = layout
        self._records = np.empty((self.capacity, observation), np.uint8)
        self._fields = self._views(self._records)
        self._transitions = np.empty(self.capacity, _TRANSITION)
        self._columns: dict[str, NDArray[Any]] = {name: self._transitions[name] for name in _COLUMNS}
        self._tree = SumTree(self.capacity)
        self._tail = 0
        self._head = 0
        self._obs_head = 0
        self._max_weight = 1.0

    def __len__(self) -> int:
        """Transitions held."""
        return self._head - self._tail

    @property
    def added(self) -> int:
        """Transitions ever added."""
        return self._head

    @property
    def nbytes(self) -> int:
        """Bytes taken once full."""
        return self._records.nbytes + self._transitions.nbytes + self._tree.nbytes

    def add(
        self,
        observations: Mapping[str, NDArray[Any]],
        obs_index: NDArray[np.integer],
        next_index: NDArray[np.integer],
        action: NDArray[np.integer],
        reward: NDArray[np.floating],
        discount: NDArray[np.floating],
        priority: NDArray[np.floating] | None = None,
    ) -> int:
        """Adds transitions of one episode (or part of one) with the observations they point at.

        Args:
            observations: every field of the schema, (M, ...).
            obs_index: (n,) rows of ``observations``.
            next_index: (n,) rows of ``observations``.
            action: (n,) flat actions.
            reward: (n,) n-step returns.
            discount: (n,) what the value of the next observation counts.
            priority: (n,) absolute TD errors; by default, and where not finite, as large as the largest so
                far.

        Returns:
            How many transitions were added (n).

        Raises:
            SchemaMismatch: a field is missing or has another shape.
            ValueError: columns of unequal length, indices or actions out of range, rewards or discounts that
                are not finite, or more than fits at once. Nothing is changed.
        """
        count, size = len(obs_index), self._check(observations)
        columns = (next_index, action, reward, discount, *(() if priority is None else (priority,)))
        if any(len(column) != count for column in columns):
            raise ValueError("the columns of the transitions differ in length")
        if count == 0:
            return 0
        for name, indices, bound in (
            ("obs_index", obs_index, size),
            ("next_index", next_index, size),
            ("action", action, self.schema.actions),
        ):
            if np.min(indices) < 0 or np.max(indices) >= bound:
                raise ValueError(f"{name} is not in [0, {bound})")
        if not (np.isfinite(reward).all() and np.isfinite(discount).all()):
            raise ValueError("a reward or a discount is not finite")
        if max(count, size) > self.capacity:
            raise ValueError(f"{max(count, size)} rows at once do not fit into a replay of {self.capacity}")
        self._make_room(count, size)
        first = self._obs_head
        places = np.arange(first, first + size) % self.capacity
        for name, ring in self._fields.items():
            array = observations[name]
            ring[places] = np.packbits(array != 0, axis=-1) if name == "action_mask" else array
        slots = np.arange(self._head, self._head + count) % self.capacity
        self._columns["obs"][slots] = first + obs_index.astype(np.int64)
        self._columns["next"][slots] = first + next_index.astype(np.int64)
        self._columns["first"][slots] = first
        self._columns["action"][slots] = action
        self._columns["reward"][slots] = reward
        self._columns["discount"][slots] = discount
        weights = np.full(count, self._max_weight)
        if priority is not None:
            known = np.isfinite(priority)
            weights[known] = self._weights(priority[known])
            self._max_weight = max(self._max_weight, float(weights.max()))
        self._tree.set(slots, weights)
        self._obs_head += size
        self._head += count
        return count

    def sample(
        self, batch: int, beta: float, rng: np.random.Generator, held: float | None = None
    ) -> ReplayBatch:
        """Draws transitions in proportion to priority ** alpha, stratified, with replacement.

        Args:
            batch: how many.
            beta: how far importance weights (N * P) ** -beta undo the bias of drawing by priority; 1 undoes
                it all.
            rng: source of the draw.
            held: N, where this is one of several replays that each give an equal part of the batch: the transitions in
                all of them, divided by their number; those of this replay by default.

        Raises:
            ValueError: the replay is empty.
        """
        slots, weights = self._tree.sample(batch, rng)
        held = float(len(self)) if held is None else held
        importance = (weights * (held / self._tree.total)) ** -beta
        scale = float(importance.max())
        columns = self._transitions.take(slots)
        obs, next_obs = self._observations(columns["obs"], columns["next"])
        # Slot s holds the number congruent to s that lies in [tail, head).
        generations = self._tail + (slots - self._tail) % self.capacity
        return ReplayBatch(
            obs=obs,
            next_obs=next_obs,
            action=columns["action"].astype(np.int64),
            reward=columns["reward"].copy(),
            discount=columns["discount"].copy(),
            weight=(importance / scale).astype(np.float32),
            slots=slots,
            generations=generations,
            scale=scale,
        )

    def update_priorities(
        self, slots: NDArray[np.integer], generations: NDArray[np.integer], priorities: NDArray[np.floating]
    ) -> int:
        """Sets priorities of transitions drawn earlier; of those overwritten meanwhile it ignores and counts.

        Args:
            slots: (n,) as drawn.
            generations: (n,) as drawn.
            priorities: (n,) absolute TD errors.

        Returns:
            How many were set.

        Raises:
            ValueError: a priority is negative or not finite; nothing is changed.
        """
        generations = np.asarray(generations)
        current = (generations >= self._tail) & (generations < self._head)
        current &= generations % self.capacity == slots
        weights = self._weights(np.asarray(priorities)[current])
        self._tree.set(np.asarray(slots)[current], weights)
        if weights.size:
            self._max_weight = max(self._max_weight, float(weights.max()))
        self.stale_updates += int(current.size - weights.size)
        return int(weights.size)

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Everything held, as arrays (oldest first) and a state that JSON can carry."""
        slots = np.arange(self._tail, self._head) % self.capacity
        start = int(self._columns["first"][slots[0]]) if len(self) else self._obs_head
        places = np.arange(start, self._obs_head) % self.capacity
        arrays: dict[str, NDArray[Any]] = {f"obs.{k}": ring[places] for k, ring in self._fields.items()}
        for name, column in self._columns.items():
            arrays[name] = column[slots] - start if name in ("obs", "next", "first") else column[slots]
        arrays["weight"] = self._tree.get(slots)
        state = {
            "schema": self.schema.hash,
            "alpha": self.alpha,
            "max_weight": self._max_weight,
            "stale_updates": self.stale_updates,
            "evicted": self.evicted,
        }
        return arrays, state

    def load_state(self, arrays: Mapping[str, NDArray[Any]], state: Mapping[str, Any]) -> None:
        """Replaces all contents by those of :meth:`state`; where they are too many, the newest are kept.

        Raises:
            CheckpointError: another schema, missing or inconsistent arrays. Nothing is changed.
        """
        if state.get("schema") != self.schema.hash:
            raise CheckpointError(
                f"the saved replay has schema {state.get('schema')}, this run has {self.schema.hash};"
                " resume without it"
            )
        try:
            columns = {name: np.asarray(arrays[name]) for name in (*_COLUMNS, "weight")}
            fields = {name: arrays[f"obs.{name}"] for name in self._fields}
            max_weight = float(state["max_weight"])
            counters = int(state["stale_updates"]), int(state["evicted"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"the saved replay is incomplete: {error}; resume without it") from None
        count, size = len(columns["obs"]), len(fields["dom"])
        consistent = all(column.shape == (count,) for column in columns.values()) and all(
            fields[name].shape == (size, *ring.shape[1:]) and fields[name].dtype == ring.dtype
            for name, ring in self._fields.items()
        )
        if consistent and count:
            indices = np.stack([columns["obs"], columns["next"], columns["first"]])
            consistent = bool(
                indices.min() >= 0
                and indices.max() < size
                and (np.diff(columns["first"]) >= 0).all()
                and (columns["first"] <= np.minimum(columns["obs"], columns["next"])).all()
                and columns["action"].min() >= 0
                and columns["action"].max() < self.schema.actions
                and np.isfinite(columns["weight"]).all()
                and columns["weight"].min() >= 0
            )
        if not consistent:
            raise CheckpointError("the saved replay contradicts itself; resume without it")
        # The newest transitions whose observations all fit.
        start = max(0, count - self.capacity)
        start = max(start, int(np.searchsorted(columns["first"], size - self.capacity)))
        origin = int(columns["first"][start]) if start < count else size
        self._tree = SumTree(self.capacity)
        self._tail, self._head, self._obs_head = 0, count - start, size - origin
        for name, ring in self._fields.items():
            ring[: self._obs_head] = fields[name][origin:]
        for name in _COLUMNS:
            column = columns[name][start:]
            self._columns[name][: self._head] = (
                column - origin if name in ("obs", "next", "first") else column
            )
        self._tree.set(np.arange(self._head), columns["weight"][start:])
        self._max_weight = max_weight
        self.stale_updates, self.evicted = counters[0], counters[1] + start

    def _stored(self, name: str) -> tuple[tuple[int, ...], np.dtype[np.generic]]:
        shape, dtype = self.schema.fields()[name]
        if name == "action_mask":
            return (*shape[:-1], -(-shape[-1] // 8)), np.dtype(np.uint8)
        return shape, np.dtype(np.float16) if dtype == np.float32 else dtype

    def _check(self, observations: Mapping[str, NDArray[Any]]) -> int:
        size = len(observations["dom"]) if "dom" in observations else 0
        for name, (shape, _) in self.schema.fields().items():
            if name not in observations:
                raise SchemaMismatch(f"the observations lack {name}, which schema {self.schema.hash} has")
            if observations[name].shape != (size, *shape):
                raise SchemaMismatch(
                    f"{name} has shape {observations[name].shape}, schema {self.schema.hash} says"
                    f" {(size, *shape)}"
                )
        return size

    def _weights(self, priorities: NDArray[np.floating]) -> NDArray[np.float64]:
        exact = priorities.astype(np.float64)
        if not ((exact >= 0.0) & (exact < np.inf)).all():
            raise ValueError("a priority is negative or not finite")
        return np.power(exact + self.epsilon, self.alpha)

    def _make_room(self, transitions: int, observations: int) -> None:
        """Evicts whatever would lose its slot or an observation."""
        tail = max(self._tail, self._head + transitions - self.capacity)
        lost = self._obs_head + observations - self.capacity
        if tail < self._head and self._columns["first"][tail % self.capacity] < lost:
            firsts = self._columns["first"][np.arange(tail, self._head) % self.capacity]
            tail += int(np.searchsorted(firsts, lost))
        gone = np.arange(self._tail, tail) % self.capacity
        self._tree.set(gone, 0.0)
        self.evicted += len(gone)
        self._tail = tail

    def _observations(self, *numbers: NDArray[np.int64]) -> list[Observation]:
        """Observations of each list of numbers, their fields views of copied records."""
        records = self._records.take(np.concatenate(numbers) % self.capacity, axis=0, mode="clip")
        fields = self._views(records)
        fields["action_mask"] = np.unpackbits(
            fields["action_mask"].view(np.uint8), axis=-1, count=self.schema.actions
        )
        ends = np.cumsum([len(n) for n in numbers])
        return [
            {name: array[end - len(n) : end] for name, array in fields.items()}
            for n, end in zip(numbers, ends, strict=True)
        ]

    def _views(self, records: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
        """The fields of records uint8 (N, bytes), as views (N, ...)."""
        return {
            name: records[:, start : start + math.prod(shape) * dtype.itemsize]
            .view(dtype)
            .reshape(len(records), *shape)
            for name, (start, shape, dtype) in self._layout.items()
        }


_Stored = tuple[tuple[int, ...], np.dtype[np.generic]]


def _record_layout(
    stored: Mapping[str, _Stored],
) -> tuple[dict[str, tuple[int, tuple[int, ...], np.dtype[np.generic]]], int]:
    """Where each field begins in an observation's record, with its shape and dtype; and the record's size in bytes."""
    layout, size = {}, 0
    for name, (shape, dtype) in stored.items():
        size = -(-size // dtype.itemsize) * dtype.itemsize
        layout[name] = (size, shape, dtype)
        size += math.prod(shape) * dtype.itemsize
    return layout, -(-size // _ALIGNMENT) * _ALIGNMENT
