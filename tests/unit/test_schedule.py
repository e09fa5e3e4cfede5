"""Which episode comes next: repeatable, by weight, and from seeds that never meet."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webgym.errors import CheckpointError
from webgym.protocol import Purpose
from webgym.spec import TaskSpec
from webgym_learner.schedule import SEED_RANGES, EpisodeSchedule, episode_seed

PURPOSES: tuple[Purpose, ...] = get_args(Purpose)


def schedule(*weights: float, seed: int = 0) -> EpisodeSchedule:
    return EpisodeSchedule([TaskSpec(name=f"t{i}", weight=w) for i, w in enumerate(weights or (1,))], seed)


@given(st.integers(0, 2**31 - 1), st.sampled_from(PURPOSES), st.integers(0, 10**9))
def test_a_seed_lies_in_its_purposes_range(run_seed: int, purpose: Purpose, index: int) -> None:
    low, high = SEED_RANGES[purpose]
    assert low <= episode_seed(run_seed, purpose, index) < high
    assert episode_seed(run_seed, purpose, index) == episode_seed(run_seed, purpose, index)


def test_no_page_that_is_judged_on_was_ever_trained_on() -> None:
    assert set(SEED_RANGES) == set(PURPOSES)
    for a, b in combinations(("train", "validate", "evaluate"), 2):
        (low_a, high_a), (low_b, high_b) = SEED_RANGES[a], SEED_RANGES[b]
        assert high_a <= low_b or high_b <= low_a
    assert SEED_RANGES["collect"] == SEED_RANGES["train"]
    assert max(high for _, high in SEED_RANGES.values()) < 2**31
    # Two hundred draws of an evaluation do not show one page twice.
    assert len({episode_seed(0, "evaluate", i) for i in range(200)}) == 200


def test_runs_of_other_seeds_see_other_pages() -> None:
    assert not {episode_seed(0, "train", i) for i in range(50)} & {
        episode_seed(1, "train", i) for i in range(50)
    }


@given(st.lists(st.integers(1, 7), min_size=1, max_size=6), st.sampled_from(PURPOSES))
def test_however_it_is_dealt_the_episodes_are_the_same(counts: list[int], purpose: Purpose) -> None:
    pieces, whole = schedule(1, 2, seed=5), schedule(1, 2, seed=5)
    dealt = [task for count in counts for task in pieces.deal(purpose, count)]
    assert dealt == whole.deal(purpose, sum(counts))
    assert len({t.episode for t in dealt}) == len(dealt)
    assert pieces.state() == whole.state() == {**dict.fromkeys(PURPOSES, 0), purpose: sum(counts)}


def test_what_an_episode_is_told() -> None:
    task = TaskSpec(name="shop:Shop", params={"fruit": "fig"}, max_steps=5, priority=-3)
    dealing = EpisodeSchedule([task], 7)
    first, second = dealing.deal("evaluate", 2, version=9, record_first=True, label="-v9")
    assert (first.episode, second.episode) == ("evaluate-v9-00000000", "evaluate-v9-00000001")
    assert (first.record, second.record) == (True, False)
    assert (first.task, first.params, first.max_steps) == ("shop:Shop", {"fruit": "fig"}, 5)
    assert (first.version, first.seed, first.purpose) == (9, episode_seed(7, "evaluate", 0), "evaluate")
    [training] = dealing.deal("train", 1)
    assert (training.episode, training.record, training.version) == ("train-00000000", False, 0)
    # What is waited for comes before what feeds the replay, and the user's priority counts within each.
    assert first.priority > 1000 > training.priority == -3
    assert dealing.deal("evaluate", 1, record_first=True)[0].record
    assert dealing.deal("train", 0) == []


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0.01, 100), min_size=1, max_size=6),
    st.integers(0, 5000),
    st.integers(1, 400),
)
def test_every_stretch_of_episodes_holds_each_task_by_its_weight(
    weights: list[float], start: int, count: int
) -> None:
    dealing = schedule(*weights)
    dealing.skip_to({"train": start})
    seen = Counter(t.task for t in dealing.deal("train", count))
    for i, weight in enumerate(weights):
        assert abs(seen[f"t{i}"] - count * weight / sum(weights)) <= 4


def test_what_is_played_as_a_whole_comes_task_after_task_and_by_weight() -> None:
    dealing = schedule(1, 3)
    dealt = dealing.deal("evaluate", 100, record_first=True, label="-v1")
    assert [t.task for t in dealt] == ["t0"] * 25 + ["t1"] * 75
    assert sorted(t.episode for t in dealt) == [f"evaluate-v1-{i:08d}" for i in range(100)]
    assert [t.episode for t in dealt if t.record] == ["evaluate-v1-00000000"]
    # The very same pages as without an order.
    again = schedule(1, 3).deal("evaluate", 100)
    assert {(t.seed, t.task) for t in dealt} == {(t.seed, t.task) for t in again}


def test_the_trickle_of_validation_keeps_to_the_pages_that_are_open() -> None:
    dealing = schedule(1, 1)
    seen = []
    for _ in range(4):
        seen += [t.task for t in dealing.deal("train", 6, stretch=6) + dealing.deal("validate", 2)]
    assert seen == (["t0"] * 8 + ["t1"] * 8) * 2


def test_one_task_among_thousands_of_weight_is_still_dealt() -> None:
    names = Counter(t.task for t in schedule(1, 999).deal("train", 10_000))
    assert 5 <= names["t0"] <= 15


def test_nothing_is_dealt_twice_after_a_restart() -> None:
    dealing = schedule()
    dealing.deal("train", 10)
    dealing.skip_to({"train": 4, "validate": 3, "unheard of": 9})
    assert dealing.state() == {"train": 10, "validate": 3, "evaluate": 0, "collect": 0}
    dealing.skip_to({"train": 12})
    assert dealing.deal("train", 1)[0].episode == "train-00000012"


def test_the_cursors_go_through_a_checkpoint() -> None:
    dealing, again = schedule(), schedule()
    dealing.deal("train", 3)
    again.load_state({**dealing.state(), "more": 1})
    assert again.deal("train", 2) == dealing.deal("train", 2)


@pytest.mark.parametrize(
    "state", [{}, {"train": 1}, dict.fromkeys(PURPOSES, "many"), dict.fromkeys(PURPOSES)]
)
def test_damaged_cursors_are_refused_and_change_nothing(state: dict[str, object]) -> None:
    dealing = schedule()
    dealing.deal("train", 3)
    with pytest.raises(CheckpointError, match="cursors"):
        dealing.load_state(state)
    assert dealing.state()["train"] == 3
