"""The bench of the modes: what it asks for is the same in each, and what it makes of a run's lines."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from webgym.errors import RunError
from webgym.spec import RunManifest
from webgym_workers.benches.far_page import FarPage, latencies
from webgym_workers.benches.local_server import content, extra_seconds
from webgym_workers.benches.modes import MODES, Case, manifest, rate, reached
from webgym_workers.capacity import Machine, worker_browsers


def case(mode: str, success: float | None = None) -> Case:
    return Case(mode, 1 if mode == "Synchronous" else 20, 0, 60, success)


@pytest.mark.parametrize("success", [None, 0.9])
def test_runs_differ_in_nothing_but_mode_and_browsers(success: float | None) -> None:
    made = [manifest(case(mode, success), "http://127.0.0.1:1", 2) for mode in MODES]
    for one in made:
        spec = RunManifest.model_validate(one).spec
        browsers = worker_browsers(spec.mode, spec.workers, Machine(2, 24 << 30))
        assert browsers == (1 if spec.mode == "Synchronous" else 20)
        assert spec.learner.replay_ratio.min == spec.learner.replay_ratio.max
        del one["spec"]["mode"], one["spec"]["workers"]
    assert all(a == b for a, b in pairwise(made))


def test_latencies_are_seeded_and_lognormal() -> None:
    assert latencies(7, 4, 300, 1.0) == latencies(7, 4, 300, 1.0) != latencies(8, 4, 300, 1.0)
    logs = np.log([ms for seed in range(2000) for ms in latencies(seed, 4, 300, 1.0)])
    assert np.median(logs) == pytest.approx(np.log(300), abs=0.05)
    assert np.std(logs) == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("presses", [1, 2])
def test_the_far_page_names_some_of_its_buttons_and_judges_the_presses(presses: int) -> None:
    task = FarPage("http://127.0.0.1:1", buttons=6, presses=presses)
    for seed in range(20):
        named = task.goal(seed).split('"')[1::2]
        assert len(set(named)) == presses
        assert f", {json.dumps(named)}, " in task.setup(seed)
    assert not task.judge(None).done
    assert not task.judge({"paid": False, "right": False}).done
    right, wrong = (task.judge({"paid": True, "right": right}) for right in (True, False))
    assert (right.done, right.success, right.reward) == (True, True, 1.0)
    assert (wrong.done, wrong.success, wrong.reward) == (True, False, -1.0)


def test_the_server_answers_as_late_as_it_is_asked_to() -> None:
    assert extra_seconds("after/250") == 0.25
    assert extra_seconds("after/soon") == extra_seconds("far") == extra_seconds("12") == 0.0
    assert content("after/250") == b""
    assert b"pointerdown" in (content("far") or b"")
    assert content("nowhere") is None


def line(seconds: float, steps: int, updates: int) -> dict[str, Any]:
    return {"seconds": seconds, "steps": steps, "updates": updates}


def test_steps_are_counted_from_the_first_update_on() -> None:
    assert rate([line(0, 0, 0), line(5, 40, 0), line(10, 50, 3), line(20, 250, 9)]) == (20.0, 200)
    for short in ([], [line(5, 40, 0)], [line(5, 40, 1)]):
        with pytest.raises(RunError, match="too short"):
            rate(short)


def test_only_a_run_that_ended_by_success_has_reached_it() -> None:
    assert reached({"stop_reason": "success", "training_seconds": 12.5}) == 12.5
    assert reached({"stop_reason": "seconds", "training_seconds": 60.0}) is None
