"""The replay's benchmark, in small."""

from __future__ import annotations

import argparse

from webgym_learner.benches.replay import ReplayBench


def test_the_replay_is_as_large_as_asked_and_everything_is_timed() -> None:
    result = ReplayBench().run(argparse.Namespace(transitions=3000, batch=16, runs=5, updates=2))
    assert result.figures["transitions"] == 3000
    assert result.figures["batches_per_second"] > 0
    assert all(row["median_ms"] > 0 for row in result.rows)
