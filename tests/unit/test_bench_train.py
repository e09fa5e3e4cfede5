"""The bench of whole trainings: what it runs, what it makes of the summaries, and what it says of those that failed."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from webgym.bench import BenchResult
from webgym.benches.trial import Trial
from webgym.errors import RunError, UsageError, WebGymError
from webgym.spec import RunManifest
from webgym_learner.benches.train import TABLE, TrainBench, TrainCase, manifest
from webgym_learner.window import wilson_interval


def summary(successes: int, **other: Any) -> dict[str, Any]:
    evaluation = {
        "successes": successes, "episodes": 50, "steps_per_episode": 2.5,
        "baseline": {"successes": 5, "episodes": 50},
    }  # fmt: skip
    return {
        "exit_code": 0, "evaluation": evaluation, "steps": 1000, "updates": 400, "training_seconds": 12.25,
        "seconds": 20.5, "stop_reason": "success", **other,
    }  # fmt: skip


def bench(out: Path, *options: str) -> BenchResult:
    parser = argparse.ArgumentParser()
    parser.set_defaults(out=out)
    one = TrainBench()
    one.configure(parser)
    return one.run(parser.parse_args([*options, "--episodes", "50"]))


class Played:
    """In place of runs: summaries by task; a task without one fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, summaries: Mapping[str, dict[str, Any]]) -> None:
        self.summaries = summaries
        self.played: list[str] = []

        async def play(trial: Trial, made: Mapping[str, Any]) -> None:
            await self.play(trial, made)

        monkeypatch.setattr(Trial, "play", play)

    async def play(self, trial: Trial, made: Mapping[str, Any]) -> None:
        task = RunManifest.model_validate(made).spec.tasks[0].name.removeprefix("miniwob.")
        self.played.append(task)
        if task not in self.summaries:
            raise RunError("no display")
        trial.folder.mkdir(parents=True)
        (trial.folder / "summary.json").write_text(json.dumps(self.summaries[task]))


def test_the_table_is_that_of_54_tasks_that_all_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(TABLE) == len(set(TABLE)) == 54
    played = Played(monkeypatch, {task: summary(50) for task in TABLE})
    result = bench(tmp_path)
    assert played.played == list(TABLE)
    assert result.figures["table_mean"] == 1.0
    assert result.figures["tasks_learned"] == 54


def test_a_run_differs_from_the_defaults_in_task_and_end_alone() -> None:
    made = RunManifest.model_validate(manifest(TrainCase("click-tab", 7, 300, 50))).spec
    plain = RunManifest.model_validate(
        {
            "apiVersion": "webgym.io/v1alpha1",
            "kind": "WebGymRun",
            "metadata": {"name": "x"},
            "spec": {"task": {"name": "miniwob.click-tab"}},
        }
    ).spec
    assert (made.seed, made.stop.seconds, made.evaluation.episodes) == (7, 300, 50)
    for name in ("policy", "learner", "observation", "workers", "browser", "mode"):
        assert getattr(made, name) == getattr(plain, name)


def test_figures_of_one_task_are_those_of_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Played(monkeypatch, {"click-tab": summary(48)})
    result = bench(tmp_path, "--task", "miniwob.click-tab")
    assert (result.figures["success"], result.figures["steps"], result.figures["seconds"]) == (
        0.96,
        1000,
        12.2,
    )
    (row,) = result.rows
    low, high = wilson_interval(48, 50)
    assert row["interval"] == f"{low:.3f}-{high:.3f}"
    assert (row["untrained"], row["ended"]) == (0.1, "success")
    assert result.figures["table_mean"] == pytest.approx(0.96 / 54, abs=1e-4)


def test_it_goes_on_where_it_was_and_past_what_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = ("--task", "click-tab", "--task", "terminal", "--task", "click-link")
    played = Played(monkeypatch, {"click-tab": summary(50), "click-link": summary(20)})
    first = bench(tmp_path, *tasks)
    assert played.played == ["click-tab", "terminal", "click-link"]
    assert (first.figures["tasks"], first.figures["tasks_learned"]) == (2, 1)
    assert any("terminal" in note and "no display" in note for note in first.notes)
    played.played.clear()
    assert bench(tmp_path, *tasks).figures == first.figures
    assert played.played == ["terminal"]
    played.played.clear()
    assert bench(tmp_path, *tasks, "--no-run").figures == first.figures
    assert played.played == []


def test_seeds_are_runs_of_their_own_and_count_once_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = Played(monkeypatch, {"click-tab": summary(50), "click-link": summary(40)})
    result = bench(tmp_path, "--task", "click-tab", "--task", "click-link", "--seeds", "2")
    assert played.played == ["click-tab", "click-link"] * 2
    assert (result.runs, result.figures["tasks"], result.figures["success"]) == (4, 2, 0.9)


def test_what_cannot_be_is_said_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch, {})
    with pytest.raises(WebGymError, match="click-tap"):
        bench(tmp_path, "--task", "click-tap")
    with pytest.raises(UsageError, match="--seeds must be at least 1"):
        bench(tmp_path, "--seeds", "0")
    with pytest.raises(RunError, match=r"no run is in .*train-runs yet"):
        bench(tmp_path, "--no-run")
    assert played.played == []
    with pytest.raises(RunError, match="no display"):
        bench(tmp_path, "--task", "click-tab")
