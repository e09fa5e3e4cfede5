"""Practice goes where the agent is learning, no task starves, and a resumed run deals as if it had never stopped."""

from __future__ import annotations

import json
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from webgym.errors import CheckpointError
from webgym.spec import TaskSpec
from webgym_learner.curriculum import FLOOR, Curriculum, practice_shares, success_slope

WINDOW = 20


def curriculum(*weights: float, adaptive: bool = True) -> Curriculum:
    tasks = [TaskSpec(name=f"t{i}", weight=w) for i, w in enumerate(weights)]
    return Curriculum(tasks, adaptive=adaptive, window=WINDOW)


def play(of: Curriculum, task: str, *results: bool) -> None:
    for result in results:
        of.add(task, result)


def rising(of: Curriculum, task: str) -> None:
    play(of, task, *[False] * (WINDOW // 2), *[True] * (WINDOW // 2))


def test_the_slope_is_that_of_the_least_squares_line() -> None:
    rng = np.random.default_rng(0)
    results = rng.random(50) < np.linspace(0, 1, 50)
    expected = np.polyfit(np.arange(50), results.astype(float), 1)[0] * 49
    assert success_slope(list(results)) == pytest.approx(expected)
    assert success_slope([True] * 9) == success_slope([True]) == success_slope([]) == 0.0
    assert success_slope([True, False]) == -success_slope([False, True]) == -1.0


@example(tasks=[(1.0, 2.2250738585e-313), (92368.0, 0.0)], floor=0.25)
@given(
    st.lists(st.tuples(st.floats(1e-3, 1e6), st.none() | st.floats(-1.5, 1.5)), min_size=1, max_size=6),
    st.floats(0, 1),
)
def test_shares_sum_to_one_and_keep_the_floor(tasks: list[tuple[float, float | None]], floor: float) -> None:
    weights = [w for w, _ in tasks]
    shares = practice_shares(weights, [p for _, p in tasks], floor)
    assert shares.sum() == pytest.approx(1.0)
    assert (shares >= floor * np.array(weights) / sum(weights) - 1e-12).all()


def test_practice_goes_where_success_moves_either_way() -> None:
    assert practice_shares([1, 1], [0.0, 0.4]).tolist() == [FLOOR / 2, 1 - FLOOR / 2]
    assert practice_shares([1, 1], [0.2, -0.2]).tolist() == [0.5, 0.5]
    # By weight, where nothing moves; and what nobody knows yet counts as the fastest.
    assert practice_shares([1, 3], [0.0, 0.0]).tolist() == [0.25, 0.75]
    assert practice_shares([1, 1, 1], [0.3, None, 0.0])[0] == practice_shares([1, 1, 1], [0.3, None, 0.0])[1]


def test_a_task_that_is_being_learned_is_practised_more_and_comes_first() -> None:
    made = curriculum(1, 1)
    play(made, "t0", *[True] * WINDOW)
    rising(made, "t1")
    turns = Counter(made.next() for _ in range(100))
    assert turns == {0: 25, 1: 75}
    assert 0.0 == made.urgency(0) < made.urgency(1) < 1.0
    told = made.success()
    assert (told["t0"]["success"], told["t0"]["share"]) == (1.0, 0.25)
    # Once it is mastered, too, the weights decide again.
    play(made, "t1", *[True] * WINDOW)
    assert made.share(0) == made.share(1) == 0.5
    play(made, "somebody else's", False)


def test_a_turn_is_a_stretch_of_episodes() -> None:
    made = curriculum(1, 1)
    assert made.current is None
    turns = [made.next(4) for _ in range(16)]
    assert turns == [0] * 4 + [1] * 4 + [0] * 4 + [1] * 4
    assert made.current == 1


def test_weights_alone_where_that_is_wanted() -> None:
    made = curriculum(1, 3, adaptive=False)
    rising(made, "t0")
    assert Counter(made.next() for _ in range(40)) == {0: 10, 1: 30}
    assert made.urgency(0) == 0.0


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(0.1, 10), min_size=2, max_size=5),
    st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=300),
)
def test_no_task_starves_however_the_shares_move(
    weights: list[float], results: list[tuple[int, bool]]
) -> None:
    made = Curriculum([TaskSpec(name=f"t{i}", weight=w) for i, w in enumerate(weights)], window=3)
    bounds = [math.ceil(len(weights) / (FLOOR * w / sum(weights))) + 1 for w in weights]
    waited = [0] * len(weights)
    for turn in range(400):
        if turn < len(results):
            play(made, f"t{results[turn][0]}", results[turn][1])
        chosen = made.next()
        waited = [0 if i == chosen else w + 1 for i, w in enumerate(waited)]
        assert all(w <= bound for w, bound in zip(waited, bounds, strict=True))


def test_a_resumed_curriculum_goes_on_exactly() -> None:
    made, again = curriculum(1, 2, 3), curriculum(1, 2, 3)
    rising(made, "t1")
    for _ in range(17):
        made.next(5)
    again.load_state(json.loads(json.dumps(made.state())))
    assert (again.success(), again.current) == (made.success(), made.current)
    assert [again.next(5) for _ in range(50)] == [made.next(5) for _ in range(50)]


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"results": {"t0": [1]}, "credits": [0.0]},
        {"results": {"t0": [], "t1": []}, "credits": [0.0]},
        {"results": {"t0": [], "t1": []}, "credits": [0.0, float("nan")], "current": 0, "left": 0},
        {"results": {"t0": [], "t1": []}, "credits": [0.0, 0.0], "current": 2, "left": 0},
        {"results": {"t0": [], "t1": []}, "credits": [0.0, 0.0], "current": "x", "left": 0},
        {"results": [], "credits": "x"},
    ],
)
def test_a_damaged_state_is_refused(state: dict[str, object]) -> None:
    with pytest.raises(CheckpointError, match="curriculum"):
        curriculum(1, 1).load_state(state)
