"""A sum-tree in NumPy: draws indices in proportion to their weights, whole batches at a time.

Sixteen children a node instead of two, and no further levels above some thousands of nodes, whose running sums are made
anew for each batch: three levels for a million leaves, so a batch costs some twenty vectorised operations. A parent is
always computed anew from its children, never by adding a difference, so sums do not drift and duplicates in one update
are harmless.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["SumTree"]

_FANOUT = 16
_SHIFT = 4
_TOP = 4096
"""Most nodes of the top level: adding them up takes about as long as one level more would."""
_MANY = 256
"""From so many nodes on, sorting them costs less than computing some of them twice."""


class SumTree:
    """Weights >= 0 of ``capacity`` leaves, all 0 at first, with sums in float64.

    Args:
        capacity: how many leaves.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"the capacity is {capacity}; a tree has at least one leaf")
        self.capacity = capacity
        sizes = [-(-capacity // _FANOUT) * _FANOUT]
        while sizes[-1] > _TOP:
            sizes.append(-(-(sizes[-1] // _FANOUT) // _FANOUT) * _FANOUT)
        # Zeros come from the system as untouched pages: memory is used as the tree fills.
        self._levels: list[NDArray[np.float64]] = [np.zeros(size, np.float64) for size in sizes]
        self._groups = [level.reshape(-1, _FANOUT) for level in self._levels[:-1]]
        self._sums: NDArray[np.float64] | None = None

    @property
    def total(self) -> float:
        """Sum of all weights."""
        return float(self._top_sums()[-1])

    @property
    def nbytes(self) -> int:
        """Size of the tree when all of it is in use."""
        return sum(level.nbytes for level in self._levels)

    def get(self, indices: NDArray[np.integer]) -> NDArray[np.float64]:
        """Weights of some leaves, float64 (n,)."""
        weights: NDArray[np.float64] = self._levels[0][indices]
        return weights

    def set(self, indices: NDArray[np.integer], weights: ArrayLike) -> None:
        """Sets the weights of some leaves in one go; of duplicates the last one counts.

        Args:
            indices: (n,), each in [0, capacity).
            weights: (n,) or one for all, each finite and >= 0.

        Raises:
            ValueError: a weight is negative or not finite; nothing is changed.
            IndexError: an index is out of range; nothing is changed.
        """
        indices = np.asarray(indices, dtype=np.int64)
        values = np.asarray(weights, dtype=np.float64)
        if indices.size == 0:
            return
        # One comparison finds NaN, infinities and negatives alike.
        if not ((values >= 0.0) & (values < np.inf)).all():
            raise ValueError("a weight is negative or not finite")
        if indices.min() < 0 or indices.max() >= self.capacity:
            raise IndexError(f"an index is not in [0, {self.capacity})")
        self._sums = None
        self._levels[0][indices] = values
        parents = indices >> _SHIFT
        for groups, above in zip(self._groups, self._levels[1:], strict=True):
            if parents.size > _MANY:
                parents = np.unique(parents)
            # The running sum's last entry, not sum(): the descent compares with running sums, and the two
            # round differently.
            above[parents] = np.add.accumulate(groups.take(parents, axis=0), axis=1)[:, -1]
            parents = parents >> _SHIFT

    def sample(self, batch: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Draws leaves in proportion to their weights, one from each of ``batch`` equal strata of the total.

        Returns:
            Indices int64 (batch,) and their weights float64 (batch,), all > 0.

        Raises:
            ValueError: all weights are 0.
        """
        sums = self._top_sums()
        total = sums[-1]
        if total <= 0.0:
            raise ValueError("nothing to draw: all weights are 0")
        # Rounding can carry a target to the end of its group or past it; just below the end lies a child of
        # weight > 0, because the parent was > 0 and is this very sum.
        target = (np.arange(batch) + rng.random(batch)) * (total / batch)
        target = np.minimum(target, np.nextafter(total, 0.0))
        index = np.searchsorted(sums, target, side="right")
        target -= np.where(index > 0, sums.take(index - 1, mode="wrap"), 0.0)
        rows = np.arange(batch) * _FANOUT
        for groups in reversed(self._groups):
            sums = np.add.accumulate(groups.take(index, axis=0), axis=1)
            target = np.minimum(target, np.nextafter(sums[:, -1], 0.0))
            child = np.count_nonzero(sums <= target[:, None], axis=1)
            target -= np.where(child > 0, sums.take(rows + child - 1, mode="wrap"), 0.0)
            index = (index << _SHIFT) + child
        return index, self._levels[0].take(index)

    def _top_sums(self) -> NDArray[np.float64]:
        """Running sums of the top level."""
        if self._sums is None:
            self._sums = np.add.accumulate(self._levels[-1])
        return self._sums
