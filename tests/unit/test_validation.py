from __future__ import annotations

from webgym_learner.validation import Validation


def trickle(validation: Validation, results: list[bool]) -> None:
    for i, success in enumerate(results):
        validation.add(f"validate-{i:08d}", success, updates=0)


def test_a_round_needs_a_full_trickle_near_the_target() -> None:
    validation = Validation(target=0.9, window=50)
    trickle(validation, [True] * 19)
    assert not validation.wants_round(0)
    trickle(validation, [True])
    assert validation.wants_round(0)
    trickle(validation, [False] * 4)
    assert not validation.wants_round(0)


def test_without_a_target_rounds_look_for_the_best_ever_more_seldom() -> None:
    validation = Validation(target=None, window=2, pause=100)
    trickle(validation, [True] * 20)
    starts = []
    for updates in range(0, 2000, 50):
        if validation.wants_round(updates):
            starts.append(updates)
            validation.start(updates, ["a", "b"])
            validation.add("a", True, updates)
            verdict = validation.add("b", True, updates)
            assert verdict is not None
            assert verdict.passed
    assert starts == [0, 200, 600, 1400]
    assert validation.best is not None
    assert validation.best.version == 1400


def test_a_round_passes_when_enough_of_all_its_episodes_succeed() -> None:
    validation = Validation(target=0.9, window=10)
    episodes = [f"validate-r-{i}" for i in range(10)]
    validation.start(7, episodes)
    verdicts = [validation.add(e, i != 3, updates=5) for i, e in enumerate(episodes)]
    assert verdicts[:-1] == [None] * 9
    assert verdicts[-1] is not None
    assert verdicts[-1].passed
    assert (verdicts[-1].version, verdicts[-1].successes, verdicts[-1].trials) == (7, 9, 10)


def test_a_hopeless_round_ends_early_and_the_next_one_waits() -> None:
    validation = Validation(target=0.9, window=10, pause=100)
    trickle(validation, [True] * 10)
    episodes = [f"validate-r-{i}" for i in range(10)]
    validation.start(3, episodes)
    assert validation.add(episodes[0], False, updates=40) is None
    verdict = validation.add(episodes[1], False, updates=40)
    assert verdict is not None
    assert not verdict.passed
    trickle(validation, [True] * 10)
    assert not validation.wants_round(139)
    assert validation.wants_round(140)


def test_results_of_a_given_up_round_count_for_the_curve_only_as_trickle() -> None:
    validation = Validation(target=1.0, window=5)
    validation.start(3, ["a", "b"])
    assert validation.add("a", False, updates=0) is not None
    assert validation.add("b", True, updates=0) is None
    assert validation.curve.rate == 0.5


def test_the_best_version_is_the_surest_not_the_luckiest() -> None:
    validation = Validation(target=0.99, window=100)
    validation.start(1, [f"a{i}" for i in range(100)])
    for i in range(100):
        validation.add(f"a{i}", i not in (98, 99), updates=0)
    validation.start(2, ["b0", "b1", "b2"])
    validation.add("b0", True, 0)
    validation.add("b1", True, 0)
    validation.add("b2", True, 0)
    assert validation.best is not None
    assert validation.best.version == 1
