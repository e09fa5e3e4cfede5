from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from webgym_workers.pulse import HangWatch, Pulses


@pytest.fixture
def pulses() -> Iterator[tuple[Pulses, Pulses]]:
    """What two processes see of the same memory."""
    fd = Pulses.create(3)
    yield Pulses(3, fd), Pulses(3, fd)
    os.close(fd)


def test_signs_of_life_are_seen_by_others(pulses: tuple[Pulses, Pulses]) -> None:
    ours, theirs = pulses
    assert ours.latest(1) is None
    before = time.monotonic()
    theirs.beat(1, 7)
    latest = ours.latest(1)
    assert latest is not None
    assert before <= latest <= time.monotonic()
    assert (ours.work(1), ours.latest(0), ours.work(2)) == (7, None, 0)


def test_silence_is_a_hang_only_after_its_time() -> None:
    watch = HangWatch(hang_seconds=15, start_seconds=90)
    found = {}
    for now in range(100, 130, 2):
        found[now] = watch.hung(now, [50.0, 50.0], [100.0, float(now)])
    assert [now for now, hung in found.items() if hung] == [116, 118, 120, 122, 124, 126, 128]
    assert found[116] == [0]


def test_a_process_that_has_not_spoken_yet_has_longer() -> None:
    watch = HangWatch(hang_seconds=15, start_seconds=90)
    # The sign of life is its predecessor's, whose place it took.
    found = {now: watch.hung(now, [100.0], [99.0]) for now in range(100, 200, 2)}
    assert min(now for now, hung in found.items() if hung) == 192


def test_a_process_that_does_not_run_hangs_never() -> None:
    watch = HangWatch(hang_seconds=15)
    assert not any(watch.hung(now, [None], [1.0]) for now in range(100, 200, 2))


def test_who_stood_still_with_all_others_blames_nobody() -> None:
    watch = HangWatch(hang_seconds=15)
    assert watch.hung(100.0, [0.0], [100.0]) == []
    # Stopped together for a minute, such as by Ctrl-Z, and gone on together.
    assert watch.hung(160.0, [0.0], [100.0]) == []
    assert watch.hung(162.0, [0.0], [100.0]) == []
    found = {now: watch.hung(now, [0.0], [100.0]) for now in range(164, 190, 2)}
    assert min(now for now, hung in found.items() if hung) == 176
