"""``webgym bench async``: whole runs of each mode on pages that answer late; steps a second, and time to success."""

from __future__ import annotations

import argparse
import asyncio
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webgym.bench import BenchResult, Column, check_counts
from webgym.benches.trial import Trial
from webgym.errors import RunError, UsageError

__all__ = ["AsyncBench", "Case", "manifest", "rate", "reached"]

MODES = ("Asynchronous", "Lockstep", "Synchronous")
_MEDIAN_MS, _SIGMA = 300.0, 1.0
_REPLAY_RATIO = 0.5
_COLUMNS = (
    Column("mode", "mode"),
    Column("browsers", "browsers", 0),
    Column("steps_per_second", "steps a second", 2),
    Column("steps", "steps measured", 0),
    Column("replay_ratio", "updates a step", 2),
    Column("success_seconds", "median seconds to success", 0),
    Column("reached", "seeds that reached it", 0),
)


@dataclass(frozen=True)
class Case:
    """One run of the bench."""

    mode: str
    browsers: int
    seed: int
    seconds: int
    success: float | None = None
    """Rate to train to; None trains for the seconds."""

    @property
    def name(self) -> str:
        """Its folder."""
        what = "rate" if self.success is None else f"success-{self.success:g}"
        return f"{what}-{self.mode.lower()}-{self.browsers}-{self.seconds}s-seed-{self.seed}"


def manifest(case: Case, server: str, cores: int) -> dict[str, Any]:
    """The run's manifest, the same for each mode but for mode and browsers.

    Args:
        case: which run.
        server: address of the local server.
        cores: of this machine, to allow as many browsers as asked for.
    """
    learning = case.success is not None
    # Speed takes short episodes; a success worth waiting for takes a task that is not learned at once.
    presses = {"buttons": 6, "presses": 2} if learning else {}
    stop: dict[str, Any] = {"seconds": case.seconds}
    if learning:
        stop |= {"success": case.success, "window": 50}
    return {
        "apiVersion": "webgym.io/v1alpha1",
        "kind": "WebGymRun",
        "metadata": {"name": "bench-async"},
        "spec": {
            "task": {
                "name": "webgym_workers.benches.far_page:FarPage",
                "params": {"server": server, "median_ms": _MEDIAN_MS, "sigma": _SIGMA} | presses,
            },
            "seed": case.seed,
            "mode": case.mode,
            # No page is cut off before it has answered.
            "browser": {"settleBudgetSeconds": 60},
            "policy": {"exploration": {"warmupSteps": 64 if learning else 16}},
            "learner": {
                "batchSize": 64 if learning else 16,
                "replay": {"minTransitions": 64 if learning else 16},
                "replayRatio": {"min": _REPLAY_RATIO, "max": _REPLAY_RATIO},
            },
            "workers": {
                "maxBrowsers": case.browsers,
                "browsersPerCore": min(32.0, max(1.5, math.ceil(case.browsers / max(1, cores)))),
                "memoryPerBrowser": "512Mi",
            },
            "stop": stop,
            "evaluation": {"episodes": 0, "validationShare": 0.2 if learning else 0.0},
        },
    }


def rate(lines: Sequence[Mapping[str, Any]]) -> tuple[float, int]:
    """Steps a second from the first line with updates to the last, and the steps of that time.

    Args:
        lines: of ``metrics.jsonl``.

    Raises:
        RunError: the learner never began, or nothing was played after that.
    """
    learning = [line for line in lines if line["updates"]]
    if not learning or learning[-1]["seconds"] <= learning[0]["seconds"]:
        raise RunError("the run was too short to measure: the learner had hardly begun; raise --seconds")
    first, last = learning[0], learning[-1]
    steps = int(last["steps"] - first["steps"])
    return steps / (last["seconds"] - first["seconds"]), steps


def reached(summary: Mapping[str, Any]) -> float | None:
    """Seconds of training until the success rate was reached; None where it was not."""
    return float(summary["training_seconds"]) if summary["stop_reason"] == "success" else None


class AsyncBench:
    """Asynchronous training against the two modes that wait."""

    help = "steps a second of Asynchronous, Lockstep and Synchronous runs on pages that answer late"
    title = "Training on pages that answer late"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.add_argument(
            "--browsers", type=int, default=20, metavar="N",
            help="browsers of Asynchronous and Lockstep (default: 20); Synchronous has one",
        )  # fmt: skip
        parser.add_argument(
            "--seconds", type=int, default=120, metavar="N",
            help="training of each run whose steps are counted (default: 120)",
        )  # fmt: skip
        parser.add_argument(
            "--seeds", type=int, default=0, metavar="N",
            help="also train each mode to --success with seeds 1 to N (default: 0, not at all)",
        )  # fmt: skip
        parser.add_argument(
            "--success", type=float, default=0.9, metavar="RATE", help="rate to train to (default: 0.9)"
        )
        parser.add_argument(
            "--longest", type=int, default=1800, metavar="SECONDS",
            help="training after which a run to success is given up (default: 1800)",
        )  # fmt: skip

    def run(self, args: argparse.Namespace) -> BenchResult:
        """Train. Runs that are there already, in a folder of --out, are not run again.

        Raises:
            UsageError: impossible arguments.
            RunError: a run failed.
        """
        check_counts(args, "browsers", "seconds", "longest")
        if args.seeds < 0 or not 0 < args.success <= 1:
            raise UsageError("--seeds must be at least 0, --success above 0 and at most 1")
        browsers = {mode: 1 if mode == "Synchronous" else args.browsers for mode in MODES}
        rates = [Case(mode, browsers[mode], 0, args.seconds) for mode in MODES]
        races = [
            Case(mode, browsers[mode], seed, args.longest, args.success)
            for seed in range(1, args.seeds + 1)
            for mode in MODES
        ]
        folder = args.out / "async-runs"
        missing = [case for case in (*rates, *races) if not _trial(case, folder).finished]
        asyncio.run(_play(missing, folder))
        return _result(rates, races, folder)


async def _play(cases: Sequence[Case], folder: Path) -> None:
    """Run them, one after the other."""
    from webgym_workers.benches.local_server import local_server
    from webgym_workers.capacity import machine

    cores = int(machine().cores)
    async with local_server(0.0) as server:
        for case in cases:
            await _trial(case, folder).play(manifest(case, server, cores))


def _trial(case: Case, folder: Path) -> Trial:
    return Trial(folder / case.name, case.seconds)


def _result(rates: Sequence[Case], races: Sequence[Case], folder: Path) -> BenchResult:
    rows = []
    for case in rates:
        lines = _trial(case, folder).lines()
        speed, steps = rate(lines)
        times = [reached(_trial(race, folder).summary()) for race in races if race.mode == case.mode]
        done = [seconds for seconds in times if seconds is not None]
        rows.append(
            {
                "mode": case.mode,
                "browsers": case.browsers,
                "steps_per_second": round(speed, 3),
                "steps": steps,
                "replay_ratio": lines[-1]["replay_ratio"],
                # The median is one of the seeds' only where most of them came so far.
                "success_seconds": statistics.median(done) if done and len(done) == len(times) else None,
                "reached": f"{len(done)} of {len(times)}" if times else None,
                "seconds_by_seed": times,
            }
        )
    speeds = {row["mode"]: float(str(row["steps_per_second"])) for row in rows}
    figures: dict[str, float | Mapping[str, float]] = {
        "speedup_vs_lockstep": round(speeds["Asynchronous"] / speeds["Lockstep"], 3),
        "speedup_vs_synchronous": round(speeds["Asynchronous"] / speeds["Synchronous"], 3),
        "steps_per_second": speeds,
    }
    medians = {
        str(r["mode"]): float(str(r["success_seconds"])) for r in rows if r["success_seconds"] is not None
    }
    if medians:
        figures["success_seconds"] = medians
    return BenchResult(
        figures=figures,
        runs=len(rates) + len(races),
        rows=rows,
        columns=_COLUMNS,
        plotted="steps_per_second",
        notes=(
            f"Each step on the page is answered after a time drawn from a lognormal distribution, median "
            f"{_MEDIAN_MS:g} ms, sigma {_SIGMA:g}; step i of episode j waits as long in each mode. {_REPLAY_RATIO} "
            "updates a step in each mode. Steps are counted from the first update on.",
            f"Runs are kept in {folder.name} and not run again; delete the folder to measure anew.",
        ),
        pictures=_pictures(races, folder),
    )


def _pictures(races: Sequence[Case], folder: Path) -> dict[str, bytes]:
    """Success on unseen seeds over the time of training, a panel for each mode."""
    from webgym_workers.benches.plot import line_plot

    if not races:
        return {}
    panels = []
    for mode in MODES:
        lines = {}
        for case in races:
            if case.mode == mode:
                known = [line for line in _trial(case, folder).lines() if line["success"] is not None]
                lines[f"seed {case.seed}"] = (
                    [float(line["seconds"]) for line in known],
                    [float(line["success"]) for line in known],
                )
        panels.append((mode, lines))
    title = f"Success of greedy episodes until {races[0].success:g} was reached"
    plot = line_plot(title, "seconds of training", panels)
    return {} if plot is None else {"async-success.png": plot}
