"""n-step transitions against an independent, direct reading of the definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webgym_policy.returns import NStepAssembler, Transition, columns

FLOATS = st.floats(-3, 3, allow_nan=False)


def brute_force(
    rewards: list[float], q_taken: list[float], q_max: list[float], n: int, gamma: float, terminated: bool
) -> list[Transition]:
    """q_max has one entry more than there are rewards: that of the final observation."""
    length = len(rewards)
    transitions = []
    for t in range(length):
        stop = min(t + n, length)
        value = sum(gamma ** (k - t) * rewards[k] for k in range(t, stop))
        discount = 0.0 if (terminated and stop == length) else gamma ** (stop - t)
        priority = abs(value + discount * q_max[stop] - q_taken[t])
        transitions.append(Transition(t, stop, 100 + t, value, discount, priority))
    return transitions


Step = tuple[float, float, float]
STEPS = st.lists(st.tuples(FLOATS, FLOATS, FLOATS), max_size=12)


@settings(max_examples=200, deadline=None)
@given(
    n=st.integers(1, 6),
    gamma=st.floats(0, 1),
    episodes=st.lists(st.tuples(STEPS, FLOATS, st.booleans()), min_size=1, max_size=3),
)
def test_equal_to_the_definition_episode_after_episode(
    n: int, gamma: float, episodes: list[tuple[list[Step], float, bool]]
) -> None:
    assembler = NStepAssembler(n, gamma)
    for steps, final_q, ended in episodes:
        got = []
        for t, (reward, taken, best) in enumerate(steps):
            got += assembler.add(t, 100 + t, reward, taken, best)
        got += assembler.end(
            terminated=ended,
            truncated=not ended,
            final_obs_index=len(steps),
            final_q_max=final_q,
        )
        rewards = [s[0] for s in steps]
        want = brute_force(rewards, [s[1] for s in steps], [s[2] for s in steps] + [final_q], n, gamma, ended)
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            assert a[:3] == b[:3]
            assert a[3:] == pytest.approx(b[3:], abs=1e-9)


def test_truncation_bootstraps_from_the_final_observation_and_termination_does_not() -> None:
    for terminated, discount, priority in ((False, 0.81, 1 + 0.9 + 0.81 * 10), (True, 0.0, 1 + 0.9)):
        assembler = NStepAssembler(3, 0.9)
        assembler.add(0, 5, 1.0, 0.0, 0.0)
        assembler.add(1, 6, 1.0, 0.0, 0.0)
        first, _ = assembler.end(terminated=terminated, truncated=True, final_obs_index=2, final_q_max=10.0)
        assert (first.obs_index, first.next_index, first.action) == (0, 2, 5)
        assert first.discount == pytest.approx(discount)
        assert first.priority == pytest.approx(priority)


def test_a_crash_drops_only_the_unfinished_tail() -> None:
    assembler = NStepAssembler(2, 0.5)
    finished = [t for step in range(4) for t in assembler.add(step, step, 1.0, 0.0, 7.0)]
    assert [(t.obs_index, t.next_index, t.discount) for t in finished] == [(0, 2, 0.25), (1, 3, 0.25)]
    assert assembler.abort() == 2
    # Nothing of the crashed episode reaches the next one.
    assert assembler.add(0, 9, 3.0, 0.0, 0.0) == []
    (only,) = assembler.end(terminated=True, truncated=False)
    assert (only.reward, only.action, only.next_index) == (3.0, 9, 0)


def test_misuse_is_refused() -> None:
    assembler = NStepAssembler(2, 0.5)
    assembler.add(0, 0, 0.0, 0.0, 0.0)
    with pytest.raises(ValueError, match="abort"):
        assembler.end(terminated=False, truncated=False)
    with pytest.raises(ValueError, match="final observation"):
        assembler.end(terminated=False, truncated=True)
    with pytest.raises(ValueError, match="at least one step"):
        NStepAssembler(0, 0.5)


def test_a_value_that_is_not_finite_does_not_reach_a_terminated_window() -> None:
    assembler = NStepAssembler(2, 0.5)
    assembler.add(0, 0, 1.0, 0.25, 0.0)
    (only,) = assembler.end(terminated=True, truncated=False, final_obs_index=1, final_q_max=float("-inf"))
    assert only.priority == 0.75


def test_columns_have_the_types_of_messages() -> None:
    table = columns([Transition(0, 3, 7, 1.5, 0.97, 0.5), Transition(1, 4, 8, 0.5, 0.0, 0.25)])
    assert table.action.tolist() == [7, 8]
    assert table.next_index.dtype == np.int32
    assert table.discount.dtype == np.float32
    assert columns([]).reward.shape == (0,)
