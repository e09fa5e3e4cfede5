"""Intervals and rolling figures."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webgym_learner.window import RateMeter, SuccessWindow, wilson_interval


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        (200, 200, 0.98115, 1.0),
        (0, 200, 0.0, 0.01885),
        (1, 1, 0.2065, 1.0),
        (5, 10, 0.2366, 0.7634),
        (81, 263, 0.2553, 0.3662),  # Newcombe 1998, table I, method 3
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (29, 29, 0.8830, 1.0),
    ],
)
def test_wilsons_interval_has_its_known_values(successes: int, trials: int, low: float, high: float) -> None:
    assert wilson_interval(successes, trials) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(1, 10**6).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_interval_lies_around_the_rate_and_is_symmetric(counts: tuple[int, int]) -> None:
    successes, trials = counts
    low, high = wilson_interval(successes, trials)
    assert 0.0 <= low <= successes / trials + 1e-12
    assert successes / trials - 1e-12 <= high <= 1.0
    mirrored = wilson_interval(trials - successes, trials)
    assert (1 - mirrored[1], 1 - mirrored[0]) == pytest.approx((low, high), abs=1e-12)


def test_more_trials_are_surer_and_none_say_nothing() -> None:
    assert wilson_interval(0, 0) == (0.0, 1.0)
    lows = [wilson_interval(n, n)[0] for n in (1, 5, 20, 100, 1000)]
    assert lows == sorted(lows)
    wide, narrow = wilson_interval(50, 100, z=2.58), wilson_interval(50, 100)
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_a_window_forgets_what_is_long_ago() -> None:
    window = SuccessWindow(4)
    assert (len(window), window.rate, window.full) == (0, None, False)
    for success in (False, True, True, True):
        window.add(success)
    assert (len(window), window.rate, window.full) == (4, 0.75, True)
    window.add(True)
    assert (len(window), window.rate) == (4, 1.0)
    window.clear()
    assert (window.rate, window.full) == (None, False)


def test_a_rate_counts_the_last_seconds_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 100.0)
    meter = RateMeter(seconds=10)
    assert meter.rate(now=105.0) == 0.0
    meter.add(20, now=105.0)
    assert meter.rate(now=105.0) == 4.0  # 5 s have passed, not 10
    meter.add(20, now=110.0)
    assert meter.rate(now=110.0) == 4.0
    assert meter.rate(now=115.5) == 2.0
    assert meter.rate(now=1000.0) == 0.0
    meter.add(now=1000.0)
    assert meter.rate(now=1000.0) == pytest.approx(0.1)


def test_a_rate_just_after_the_start_is_finite() -> None:
    meter = RateMeter()
    meter.add()
    assert math.isfinite(meter.rate())


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 50)), max_size=60))
def test_the_running_sum_is_that_of_the_window(events: list[tuple[float, int]]) -> None:
    meter = RateMeter(seconds=10)
    meter._started = -1000.0  # long ago
    events.sort()
    for now, count in events:
        meter.add(count, now=now)
        expected = sum(c for t, c in events if t <= now and now - t <= 10)
        # Events of the same moment that are still to come are not there yet.
        later = sum(c for t, c in events[events.index((now, count)) + 1 :] if t == now)
        assert expected - later <= meter.rate(now=now) * 10 + 1e-6
        assert meter.rate(now=now) * 10 <= expected + 1e-6
