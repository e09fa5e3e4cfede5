from __future__ import annotations

from webgym_workers.streak import PATIENCE_SECONDS, FaultStreak


def test_nothing_played_ever_is_given_up_soon_with_the_fault_and_its_count() -> None:
    streak = FaultStreak(browsers=3)
    for number in range(6):
        assert not streak.worth_asking()
        assert streak.verdict(float(number), ever_played=False) is None
        streak.fault("NavigationError: cannot load x", float(number))
    assert streak.worth_asking()
    assert streak.verdict(6.0, ever_played=False) == (
        "no episode could be played so far: 6 of 6 attempts failed, NavigationError: cannot load x"
    )


def test_many_browsers_need_more_of_them() -> None:
    streak = FaultStreak(browsers=8)
    for _ in range(15):
        streak.fault("x", 0.0)
    assert not streak.worth_asking()
    streak.fault("x", 0.0)
    assert streak.worth_asking()


def test_a_site_that_is_down_for_a_while_is_waited_for() -> None:
    streak = FaultStreak(browsers=3)
    for number in range(20):
        streak.fault("TargetClosed: y" if number == 3 else "CDPTimeout: x", 100.0 + number)
    assert streak.verdict(100.0 + PATIENCE_SECONDS - 1, ever_played=True) is None
    assert streak.verdict(100.0 + PATIENCE_SECONDS, ever_played=True) == (
        f"no episode could be played in the last {PATIENCE_SECONDS:.0f} s: 19 of 20 attempts failed, CDPTimeout: x;"
        " 1 otherwise, the last: CDPTimeout: x"
    )


def test_one_episode_ends_the_streak() -> None:
    streak = FaultStreak(browsers=1)
    for _ in range(6):
        streak.fault("x", 0.0)
    streak.success()
    assert (streak.count, streak.worth_asking()) == (0, False)
    assert streak.verdict(1000.0, ever_played=True) is None
