"""``webgym bench train``: MiniWoB++ tasks trained from nothing, each by one run with the defaults of the spec."""

from __future__ import annotations

import argparse
import asyncio
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webgym.bench import BenchResult, Column, check_counts
from webgym.benches.trial import Trial
from webgym.errors import RunError
from webgym_learner.window import wilson_interval

__all__ = ["TABLE", "TrainBench", "TrainCase", "manifest", "row_of"]

TABLE = (
    "choose-list", "click-button", "click-button-sequence", "click-checkboxes", "click-checkboxes-large",
    "click-checkboxes-soft", "click-checkboxes-transfer", "click-collapsible", "click-collapsible-2", "click-color",
    "click-dialog", "click-dialog-2", "click-link", "click-menu", "click-option", "click-scroll-list", "click-shades",
    "click-shape", "click-tab", "click-tab-2", "click-tab-2-hard", "click-test", "click-test-2", "click-widget",
    "count-shape", "email-inbox", "email-inbox-forward-nl", "email-inbox-forward-nl-turk", "email-inbox-nl-turk",
    "enter-date", "enter-password", "enter-text", "enter-text-dynamic", "enter-time", "focus-text", "focus-text-2",
    "grid-coordinate", "guess-number", "identify-shape", "login-user", "login-user-popup", "multi-layouts",
    "multi-orderings", "navigate-tree", "search-engine", "simple-algebra", "social-media", "social-media-all",
    "social-media-some", "terminal", "text-transform", "tic-tac-toe", "use-autocomplete", "use-spinner",
)  # fmt: skip
"""The 54 tasks on which methods are compared with CC-Net (Humphreys et al. 2022) since Kim et al. 2023."""

_GOOD = 0.95
"""Success from which a task counts as learned."""
_COLUMNS = (
    Column("task", "task"),
    Column("success", "success", 3),
    Column("interval", "95% interval"),
    Column("untrained", "untrained", 2),
    Column("steps_per_episode", "steps an episode", 1),
    Column("steps", "steps", 0),
    Column("updates", "updates", 0),
    Column("training_seconds", "training, s", 0),
    Column("seconds", "whole run, s", 0),
    Column("ended", "ended by"),
)


@dataclass(frozen=True)
class TrainCase:
    """One run of the bench."""

    task: str
    """Name without ``miniwob.``."""
    seed: int
    seconds: int
    """Training that it may take at most."""
    episodes: int
    """Unseen episodes that it is judged by."""

    @property
    def name(self) -> str:
        """Its folder."""
        return f"{self.task}-{self.seconds}s-{self.episodes}-seed-{self.seed}"


def manifest(case: TrainCase) -> dict[str, Any]:
    """The run's manifest: the task, when to stop and how to judge; all else is as the spec has it."""
    return {
        "apiVersion": "webgym.io/v1alpha1",
        "kind": "WebGymRun",
        "metadata": {"name": "bench-train"},
        "spec": {
            "task": {"name": f"miniwob.{case.task}"},
            "seed": case.seed,
            "stop": {"seconds": case.seconds, "success": 0.98},
            "evaluation": {"episodes": case.episodes},
        },
    }


def row_of(case: TrainCase, summary: Mapping[str, Any]) -> dict[str, Any]:
    """What the table says of a run.

    Args:
        case: which.
        summary: what ``webgym run --json`` said.
    """
    evaluation = summary["evaluation"]
    baseline = evaluation.get("baseline") or {}
    low, high = wilson_interval(evaluation["successes"], evaluation["episodes"])
    return {
        "task": case.task,
        "seed": case.seed,
        "success": round(evaluation["successes"] / evaluation["episodes"], 4),
        "interval": f"{low:.3f}-{high:.3f}",
        "untrained": baseline["successes"] / baseline["episodes"] if baseline.get("episodes") else None,
        "steps_per_episode": float(evaluation["steps_per_episode"]),
        "steps": summary["steps"],
        "updates": summary["updates"],
        "training_seconds": float(summary["training_seconds"]),
        "seconds": float(summary["seconds"]),
        "ended": summary["stop_reason"],
    }


class TrainBench:
    """Success on tasks of MiniWoB++ and what it took."""

    help = (
        "train tasks of MiniWoB++ from nothing, with one set of defaults: success, steps and seconds of each"
    )
    title = "Training on MiniWoB++"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.add_argument(
            "--task", action="append", metavar="NAME", dest="tasks",
            help="such as click-button; again for more (default: the 54 tasks of CC-Net's table, hours on two cores)",
        )  # fmt: skip
        parser.add_argument(
            "--seconds", type=int, default=600, metavar="N", help="training of a run at most (default: 600)"
        )
        parser.add_argument("--seed", type=int, default=0, metavar="N", help="first seed (default: 0)")
        parser.add_argument(
            "--seeds",
            type=int,
            default=1,
            metavar="N",
            help="runs of each task, seed after seed (default: 1)",
        )
        parser.add_argument(
            "--episodes", type=int, default=200, metavar="N",
            help="unseen episodes that a run is judged by (default: 200)",
        )  # fmt: skip
        parser.add_argument(
            "--no-run",
            action="store_true",
            help="only show the runs that are there already, in a folder of --out",
        )

    def run(self, args: argparse.Namespace) -> BenchResult:
        """Train. Runs that are there already, in a folder of --out, are not run again.

        Raises:
            UsageError: impossible arguments.
            WebGymError: there is no such task.
            RunError: no run came to its end.
        """
        check_counts(args, "seconds", "seeds", "episodes")
        tasks = list(dict.fromkeys(name.removeprefix("miniwob.") for name in args.tasks or TABLE))
        _check(tasks)
        folder = args.out / "train-runs"
        cases = [
            TrainCase(task, seed, args.seconds, args.episodes)
            for seed in range(args.seed, args.seed + args.seeds)
            for task in tasks
        ]
        failures = {} if args.no_run else asyncio.run(_play(cases, folder))
        return _result(cases, folder, failures)


def _check(tasks: Sequence[str]) -> None:
    from webgym.spec import TaskSpec
    from webgym.tasks import installed_task_check

    check = installed_task_check()
    for task in tasks:
        if check is not None:
            check(TaskSpec(name=f"miniwob.{task}"))


async def _play(cases: Sequence[TrainCase], folder: Path) -> dict[str, str]:
    """Play what is missing, one after the other; returns why runs failed, by their name."""
    failures = {}
    for case in cases:
        trial = _trial(case, folder)
        if trial.finished:
            continue
        try:
            await trial.play(manifest(case))
        except (RunError, TimeoutError) as error:
            # One task that cannot be trained is a row of the table, not the end of a night's work.
            failures[case.name] = str(error) or "it did not end in time"
    return failures


def _trial(case: TrainCase, folder: Path) -> Trial:
    return Trial(folder / case.name, case.seconds)


def _result(cases: Sequence[TrainCase], folder: Path, failures: Mapping[str, str]) -> BenchResult:
    rows = []
    for case in cases:
        trial = _trial(case, folder)
        if trial.finished:
            rows.append(row_of(case, trial.summary()))
    if not rows:
        raise RunError("; ".join(failures.values()) or f"no run is in {folder} yet; leave out --no-run")
    by_task: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_task.setdefault(row["task"], []).append(row)
    means = {task: statistics.mean(row["success"] for row in own) for task, own in by_task.items()}
    of_table = [means[task] for task in TABLE if task in means]
    figures: dict[str, float | Mapping[str, float]] = {
        "success": round(statistics.mean(means.values()), 4),
        "steps": round(statistics.mean(row["steps"] for row in rows), 1),
        "seconds": round(statistics.mean(row["training_seconds"] for row in rows), 1),
        "tasks": float(len(by_task)),
        "tasks_learned": float(sum(mean >= _GOOD for mean in means.values())),
        "table_tasks": float(len(of_table)),
        # What was not run, or did not end, counts as nothing.
        "table_mean": round(sum(of_table) / len(TABLE), 4),
    }
    notes = [
        f"No demonstrations, one set of defaults for all tasks. A run ends after {cases[0].seconds} s of training, or "
        f"as soon as it passes its validation at 0.98, and is then judged by {cases[0].episodes} greedy episodes on "
        "pages that training never sees; success is the full raw reward. Untrained: the same network before training.",
        f"{figures['tasks_learned']:.0f} of {len(by_task)} tasks reached {_GOOD}. Mean over the {len(TABLE)} tasks of "
        f"CC-Net's table, with 0 for the {len(TABLE) - len(of_table)} that are not here: {figures['table_mean']:.3f}.",
        f"Runs are kept in {folder.name} and not run again; delete a folder there to train anew.",
        *(f"{name} failed: {why}" for name, why in failures.items()),
    ]
    return BenchResult(figures, len(rows), rows, _COLUMNS, "success", notes)
