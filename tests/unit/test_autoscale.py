"""How many workers the learner needs: up when it starves, cautiously down, never outside of the bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from operator_runs import make_run

from webgym.run.snapshot import Snapshot
from webgym_operator.autoscale import Scale, decide
from webgym_operator.observed import Figures

SPEC = make_run({"workers": {"replicas": 4, "autoscaling": {"mode": "Learner", "min": 1, "max": 20}}}).spec
NOW = 1e9


def figures(phase: str = "train", queued: int = 5, leased: int = 5, **numbers: float) -> Figures:
    return Figures(Snapshot(phase=phase, numbers={"replay_size": 1e6, **numbers}), queued, leased)


def after(seconds: float, said: Figures | None, *, workers: int = 8, ready: int = 8) -> int:
    return decide(SPEC, NOW, Scale(workers, NOW - seconds), said, ready).workers


def test_it_starts_where_the_spec_says_within_the_bounds() -> None:
    assert decide(SPEC, NOW, None, None, 0) == Scale(4, NOW)
    narrow = make_run(
        {"workers": {"replicas": 1, "autoscaling": {"mode": "Learner", "min": 3, "max": 5}}}
    ).spec
    assert decide(narrow, NOW, None, None, 0).workers == 3
    assert decide(narrow, NOW, Scale(9, NOW), None, 0).workers == 5


@pytest.mark.parametrize(
    ("seconds", "said", "workers"),
    [
        (1000, None, 8),  # nobody tells anything
        (40, figures(replay_ratio=1.0), 12),  # the learner waits for experience
        (40, figures(replay_size=10), 12),  # or has too little to begin with
        (10, figures(replay_ratio=1.0), 8),  # just changed
        (40, figures(replay_ratio=0.5), 8),  # in balance
        (130, figures(replay_ratio=0.25), 7),  # browsers wait for the learner
        (130, figures(staleness=190, replay_ratio=1.0), 7),  # experience is too old, whatever the ratio
        (60, figures(replay_ratio=0.25), 8),  # not yet
        (130, figures(queued=0, leased=0), 1),  # nothing to play
        (130, figures("evaluate", queued=0, leased=2), 8),
        (1000, figures("start", replay_ratio=1.0), 8),
    ],
)
def test_decisions(seconds: float, said: Figures | None, workers: int) -> None:
    assert after(seconds, said) == workers


def test_no_step_up_before_those_of_the_last_one_act() -> None:
    assert after(1000, figures(replay_ratio=1.0), ready=7) == 8


numbers = st.floats(0, 1000, allow_nan=False)


@given(
    st.integers(0, 30),
    st.integers(0, 30),
    numbers,
    numbers,
    numbers,
    st.integers(0, 3),
    st.integers(0, 3),
    numbers,
)
def test_never_outside_of_the_bounds_and_every_change_has_a_reason(
    workers: int,
    ready: int,
    ratio: float,
    staleness: float,
    size: float,
    queued: int,
    leased: int,
    seconds: float,
) -> None:
    said = figures("train", queued, leased, replay_ratio=ratio, staleness=staleness, replay_size=size)
    scale = decide(SPEC, NOW, Scale(workers, NOW - seconds), said, ready)
    assert 1 <= scale.workers <= 20
    assert bool(scale.reason) == (scale.workers != workers)
    assert (scale.changed_at == NOW) or scale.workers == workers
