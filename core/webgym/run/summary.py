"""The run in one JSON object: what the report shows and what ``webgym run --json`` prints."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from webgym.memory_trace import memory_summary
from webgym.run.totals import total_episodes
from webgym.rundir import RunDirectory, read_json_lines

__all__ = ["compose_summary", "machine_facts", "newest_checkpoint", "read_json", "training_rate"]

_LONGEST_GAP = 30.0
"""Seconds between two metrics lines beyond which nobody trained in between: the run lay still."""


def compose_summary(directory: RunDirectory, facts: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Gather a run's results from its folder; what is not there yet is None.

    Args:
        directory: the run's folder.
        facts: what only the supervisor knows (seconds, restarts, stop reason, ...); None keeps what an
            earlier summary says of them.

    Returns:
        At least ``evaluation`` (None without one, else with ``success``, ``episodes``, ``interval``, ...),
        ``steps`` (of training), ``validation_steps``, ``steps_per_second`` (of both, mean over the training),
        ``seconds``, ``training_seconds``,
        ``episodes``, ``updates``, ``practice`` (of several tasks: each one's success while training and share of
        the practice), ``restarts``, ``stop_reason``, ``out``.
    """
    lines = list(read_json_lines(directory.metrics))
    latest = lines[-1] if lines else {}
    last = {k: v for k, v in latest.items() if isinstance(v, int | float)}
    trained, rate = training_rate(lines)
    newest = newest_checkpoint(directory.checkpoints)
    if directory.episodes.is_file():
        # The ledger is the truth: a learner that was killed had no time to tell what it last counted.
        last |= asdict(total_episodes(read_json_lines(directory.episodes)))
    summary: dict[str, Any] = {
        "name": directory.path.resolve().name,
        "uid": directory.uid,
        "out": str(directory.path),
        "stop_reason": None,
        "exit_code": None,
        "message": None,
        "evaluation": read_json(directory.evaluation),
        "steps": last.get("steps", 0),
        "validation_steps": last.get("validation_steps", 0),
        "steps_per_second": None if rate is None else round(rate, 2),
        "seconds": None,
        "training_seconds": None if trained is None else round(trained, 2),
        "episodes": last.get("episodes", 0),
        "updates": last.get("updates", 0),
        "success": last.get("success"),
        "practice": latest.get("tasks"),
        "loss": last.get("loss"),
        "version": last.get("version"),
        "staleness": last.get("staleness"),
        "faults": last.get("faults", 0),
        "restarts": {},
        "events": [],
        "peak_memory_bytes": None,
        "memory_trace": memory_summary(directory.path),
        "lost_updates": last.get("lost_updates", 0),
        "checkpoint": None if newest is None else str(newest),
        "machine": machine_facts(),
    }
    known = facts if facts is not None else _facts_of(read_json(directory.summary))
    return {**summary, **known}


def _facts_of(earlier: Mapping[str, Any] | None) -> dict[str, Any]:
    """What an earlier summary knows and the other files do not."""
    names = (
        "stop_reason",
        "exit_code",
        "message",
        "seconds",
        "restarts",
        "events",
        "peak_memory_bytes",
        "machine",
    )
    return (
        {}
        if earlier is None
        else {k: earlier[k] for k in (*names, "name", "tasks", "resumed", "resumed_from") if k in earlier}
    )


def training_rate(lines: Iterable[Mapping[str, Any]]) -> tuple[float | None, float | None]:
    """Seconds of training and environment steps per second over all of it, from metrics lines.

    Lines that carry ``seconds`` of training are believed; otherwise the times between lines are added up,
    without the gaps in which the run lay still. None where it cannot be told.
    """
    seconds = steps = 0.0
    before: Mapping[str, Any] | None = None
    told: float | None = None
    for line in lines:
        if isinstance(line.get("seconds"), int | float):
            told = float(line["seconds"])
        if isinstance(line.get("steps"), int | float):
            steps = float(line["steps"]) + float(line.get("validation_steps") or 0)
        if before is not None and isinstance(line.get("time"), int | float):
            gap = float(line["time"]) - float(before["time"])
            seconds += gap if 0 <= gap <= _LONGEST_GAP else 0.0
        if isinstance(line.get("time"), int | float):
            before = line
    trained = told if told is not None else (seconds or None)
    return trained, (steps / trained if trained else None)


def newest_checkpoint(folder: Path) -> Path | None:
    """The folder ``step-N`` with the highest N, damaged or not; None if there is none."""
    try:
        found = [p for p in folder.iterdir() if _number(p.name) >= 0]
    except OSError:
        return None
    return max(found, key=lambda p: _number(p.name), default=None)


def _number(name: str) -> int:
    prefix, _, tail = name.partition("-")
    return int(tail) if prefix == "step" and tail.isdecimal() else -1


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object from a file; None if it is missing, damaged or something else."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def machine_facts() -> dict[str, Any]:
    """What the numbers were measured on."""
    versions = {}
    for package in ("webgym-platform", "torch", "numpy", "gymnasium", "miniwob"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "python": ".".join(map(str, sys.version_info[:3])),
        "versions": versions,
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.lower().startswith(("model name", "hardware")):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
