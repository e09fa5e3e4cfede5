"""Runs in which browsers and learner take turns: one browser repeats itself, several survive losing a process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from e2e_run import Running

from webgym.rundir import read_json_lines

MANIFEST = """
apiVersion: webgym.io/v1alpha1
kind: WebGymRun
metadata:
  name: turns
spec:
  task:
    name: miniwob.click-test-2
  seed: 3
  mode: Synchronous
  policy:
    hiddenSize: 32
    exploration:
      warmupSteps: 24
  browser:
    # A page that comes to rest a moment later on a busy machine is the same page.
    settleBudgetSeconds: 20
  learner:
    batchSize: 16
    replay:
      minTransitions: 24
    checkpoint:
      replay: true
  stop:
    steps: 80
  evaluation:
    episodes: 0
"""
_PATIENCE = 300.0
"""Seconds; on a busy machine a learner takes a minute to start."""
TIMES = ("time", "seconds", "steps_per_second", "episodes_per_second", "updates_per_second")


def arrays(out: Path) -> dict[str, bytes]:
    """Everything in the last checkpoint: weights, optimizer, random state, and the replay with its transitions."""
    (latest,) = sorted((out / "checkpoints").glob("step-*"))[-1:]
    found = {}
    for file in latest.glob("*.npz"):
        with np.load(file) as archive:
            found |= {f"{file.stem}/{name}": archive[name].tobytes() for name in archive.files}
    return found


def last_figures(out: Path) -> dict[str, Any]:
    *_, last = read_json_lines(out / "metrics.jsonl")
    return {name: value for name, value in last.items() if name not in TIMES}


def episodes(out: Path) -> list[dict[str, Any]]:
    return [
        {k: v for k, v in line.items() if k not in ("seconds", "time")}
        for line in read_json_lines(out / "episodes.jsonl")
    ]


@pytest.mark.long
def test_a_synchronous_run_repeats_itself_bit_for_bit(tmp_path: Path, start: Callable[..., Running]) -> None:
    (tmp_path / "turns.yaml").write_text(MANIFEST)
    # Both at once: each is disturbed by the other, and neither may show it.
    folders = [tmp_path / name for name in ("one", "two")]
    runs = [start(tmp_path, "run", "turns.yaml", "--out", out.name, "--json", out=out) for out in folders]
    for running in runs:
        code, _, err = running.end(_PATIENCE)
        assert code == 0, err
    one, two = map(arrays, folders)
    assert any(name.startswith("replay/obs.") for name in one)
    assert any(name.startswith("optimizer/") for name in one)
    assert one.keys() == two.keys()
    assert [name for name in one if one[name] != two[name]] == []
    assert last_figures(folders[0]) == last_figures(folders[1])
    assert last_figures(folders[0])["updates"] > 20
    assert last_figures(folders[0])["staleness"] == 0
    assert episodes(folders[0]) == episodes(folders[1])
    assert len(episodes(folders[0])) >= 80


def test_a_lockstep_run_goes_on_after_any_of_its_processes_was_killed(
    tmp_path: Path, start: Callable[..., Running]
) -> None:
    (tmp_path / "turns.yaml").write_text(MANIFEST)
    settings = (
        "mode=Lockstep",
        "workers.maxBrowsers=2",
        "workers.browsersPerProcess=1",
        "stop.steps=120",
        "learner.checkpoint.intervalSeconds=1",
    )
    arguments = [word for setting in settings for word in ("--set", setting)]
    running = start(tmp_path, "run", "turns.yaml", "--out", "out", "--json", *arguments, out=tmp_path / "out")
    for words in (("webgym_workers.browser_process",), ("webgym", "learner")):
        before = running.until(lambda: running.last("steps"), _PATIENCE)
        running.kill(*words)
        running.until(lambda before=before: running.last("steps") > before + 5, _PATIENCE)
    code, out, err = running.end(_PATIENCE)
    assert code == 0, err
    result = json.loads(out)
    assert (result["restarts"]["actor"], result["restarts"]["learner"]) == (1, 1)
    assert result["steps"] >= 120
    ids = [line["episode"] for line in read_json_lines(tmp_path / "out" / "episodes.jsonl")]
    assert len(ids) == len(set(ids))
