"""The sum-tree: sums exact under any updates, draws in proportion, strata covered."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webgym_learner.sumtree import SumTree


@settings(max_examples=100, deadline=None)
@given(data=st.data(), capacity=st.sampled_from([1, 2, 15, 16, 17, 255, 256, 257, 5000]))
def test_equal_to_a_plain_array_under_updates_with_duplicates(data: st.DataObject, capacity: int) -> None:
    tree, plain = SumTree(capacity), np.zeros(capacity)
    index = st.integers(0, capacity - 1)
    weight = st.one_of(st.just(0.0), st.floats(1e-6, 1e6))
    for _ in range(data.draw(st.integers(1, 4))):
        pairs = data.draw(st.lists(st.tuples(index, weight), max_size=40))
        tree.set(np.array([p[0] for p in pairs], np.int64), np.array([p[1] for p in pairs]))
        for i, w in pairs:
            plain[i] = w
        assert tree.total == pytest.approx(plain.sum(), rel=1e-12)
        np.testing.assert_array_equal(tree.get(np.arange(capacity)), plain)
        if plain.any():
            drawn, weights = tree.sample(64, np.random.default_rng(0))
            assert (plain[drawn] > 0).all()
            np.testing.assert_array_equal(weights, plain[drawn])


def test_draws_follow_the_weights_exactly_stratum_by_stratum() -> None:
    rng = np.random.default_rng(5)
    weights = rng.random(1000) + 0.05
    weights[rng.random(1000) < 0.3] = 0.0
    tree = SumTree(1000)
    tree.set(np.arange(1000), weights)
    drawn = np.concatenate([tree.sample(128, rng)[0] for _ in range(2000)])
    counts = np.bincount(drawn, minlength=1000)
    want = weights / weights.sum() * drawn.size
    assert (counts[weights == 0] == 0).all()
    # Stratified draws vary less than multinomial ones, whose statistic would be near the number of bins.
    chi2 = ((counts - want)[weights > 0] ** 2 / want[weights > 0]).sum()
    assert chi2 < 1.2 * (weights > 0).sum()


def test_each_stratum_is_hit_once() -> None:
    tree = SumTree(64)
    tree.set(np.arange(64), 1.0)
    drawn, _ = tree.sample(64, np.random.default_rng(6))
    assert drawn.tolist() == list(range(64))


class _Edge:
    """A generator whose every draw is as close to 1 as a float64 gets."""

    def random(self, size: int) -> np.ndarray:
        return np.full(size, np.nextafter(1.0, 0.0))


@pytest.mark.parametrize("seed", range(20))
def test_rounding_at_the_edge_never_draws_a_weight_of_zero(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree, weights = SumTree(3000), rng.random(3000) * 10.0 ** rng.integers(-12, 12, 3000)
    weights[-500:] = 0.0
    tree.set(np.arange(3000), weights)
    drawn, got = tree.sample(128, _Edge())  # type: ignore[arg-type]
    assert drawn.max() < 2500
    assert (got > 0).all()


def test_bad_weights_change_nothing() -> None:
    tree = SumTree(10)
    tree.set(np.array([3]), np.array([2.0]))
    for bad in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="negative or not finite"):
            tree.set(np.array([3, 4]), np.array([1.0, bad]))
    for index in (-1, 10):
        with pytest.raises(IndexError):
            tree.set(np.array([index]), np.array([1.0]))
    assert tree.total == 2.0
    tree.set(np.array([3]), 0.0)
    with pytest.raises(ValueError, match="nothing to draw"):
        tree.sample(4, np.random.default_rng(0))


def test_a_batch_from_a_million_takes_well_under_a_millisecond() -> None:
    rng = np.random.default_rng(7)
    tree = SumTree(1_000_000)
    tree.set(np.arange(1_000_000), rng.random(1_000_000))
    best = np.inf
    for _ in range(200):
        start = time.perf_counter()
        drawn, _ = tree.sample(128, rng)
        tree.set(drawn, rng.random(128))
        best = min(best, time.perf_counter() - start)
    assert best < 1e-3
