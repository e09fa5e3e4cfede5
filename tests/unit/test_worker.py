"""What a worker says of itself, summed up from its browser processes."""

from __future__ import annotations

import json

import pytest

from webgym_workers.worker import _ordinal, total_figures


def test_figures_of_browser_processes_are_summed_and_what_cannot_be_is_left_out() -> None:
    first = {
        "role": "actor",
        "pid": 7,
        "time": 1.5,
        "version": 3,
        "browsers": 2,
        "steps": 10,
        "restarts": {"a": 1},
    }
    second = {"role": "actor", "pid": 8, "time": 2.5, "version": 4, "browsers": 1, "steps": 5, "faults": 2}
    reports = [json.dumps(first).encode(), json.dumps(second), None, b""]
    assert total_figures(reports) == {"browsers": 3, "steps": 15, "faults": 2}
    assert total_figures([]) == {}


@pytest.mark.parametrize(
    ("name", "place"), [("worker-0", 0), ("demo-worker-12", 12), ("worker", 0), ("7", 7)]
)
def test_a_workers_place_is_the_number_at_the_end_of_its_name(name: str, place: int) -> None:
    assert _ordinal(name) == place
