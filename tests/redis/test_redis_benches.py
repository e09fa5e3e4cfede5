"""Benchmarks that need a server, in small: they measure what they say, and lose nothing."""

from __future__ import annotations

import argparse

import pytest

from webgym.benches.params import ParamsBench
from webgym.benches.queue import QueueBench
from webgym.errors import UsageError


def test_the_queue_bench_keeps_a_ledger() -> None:
    result = QueueBench().run(argparse.Namespace(seconds=0.5, clients=2, batch=20))
    assert result.figures["lost"] == result.figures["doubled"] == 0
    assert result.figures["tasks_per_second"] > 0
    assert result.figures["kills"] >= 1
    assert len(result.rows) == 4
    assert all(row["tasks"] > 0 for row in result.rows)


def test_the_params_bench_waits_for_every_worker() -> None:
    result = ParamsBench().run(argparse.Namespace(runs=2, workers=2))
    everyone, first, published = (row["median_ms"] for row in result.rows)
    assert everyone >= first > 0
    assert published > 0
    assert result.figures["wire_mb"] == pytest.approx(result.figures["float32_mb"] / 2, rel=0.01)


@pytest.mark.parametrize("arguments", [{"seconds": 0.0}, {"clients": 0}, {"batch": 0}])
def test_impossible_measurements_are_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="must be"):
        QueueBench().run(argparse.Namespace(**{"seconds": 1.0, "clients": 1, "batch": 1, **arguments}))
