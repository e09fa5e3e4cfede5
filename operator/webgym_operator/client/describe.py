"""A run in words and in numbers, from its object and its pods."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from webgym.errors import ExitCode
from webgym_operator.conditions import condition_of
from webgym_operator.observed import Life, PodView
from webgym_operator.run import Object, seconds_of

__all__ = ["age", "describe", "progress", "run_facts", "state", "table", "verdict"]

_FIGURES = (
    *("steps", "stepsPerSecond", "episodes", "updates", "success", "staleness", "queued", "timeLeftSeconds"),
    *(
        "readyReplicas",
        "desiredReplicas",
        "restarts",
        "failures",
        "lastFailure",
        "startTime",
        "completionTime",
    ),
)
_CODES = {
    "Diverged": ExitCode.DIVERGED,
    "InvalidSpec": ExitCode.USAGE,
    "InvalidConfiguration": ExitCode.USAGE,
}
"""Why a run failed, to the exit code that the same has with ``webgym run``."""


def state(run: Mapping[str, Any]) -> str:
    """One word: how the run stands, such as Training, Completed or Suspended."""
    status = run.get("status") or {}
    succeeded = condition_of(status, "Succeeded")
    if not succeeded:
        return "Unseen"
    if succeeded.get("status") == "Unknown" and run["spec"].get("suspend"):
        suspended = condition_of(status, "Suspended").get("status") == "True"
        return "Suspended" if suspended else "Suspending"
    return str(succeeded.get("reason", ""))


def verdict(run: Mapping[str, Any]) -> ExitCode | None:
    """The exit code that the run has earned; None while it is not over."""
    succeeded = condition_of(run.get("status") or {}, "Succeeded")
    if succeeded.get("status") == "True":
        return ExitCode.OK
    if succeeded.get("status") == "False":
        # Of a spec that has been changed since, it is not the last word.
        stale = int(succeeded.get("observedGeneration", 0)) < int(run["metadata"].get("generation", 0))
        if not (stale and succeeded.get("reason") == "InvalidSpec"):
            return _CODES.get(str(succeeded.get("reason")), ExitCode.FAILURE)
    return None


def run_facts(run: Mapping[str, Any], pods: Iterable[PodView] = (), now: float | None = None) -> Object:
    """What ``--json`` prints of a run."""
    status = run.get("status") or {}
    code = verdict(run)
    now = time.time() if now is None else now
    return {
        "name": run["metadata"]["name"],
        "namespace": run["metadata"]["namespace"],
        "uid": run["metadata"]["uid"],
        "created": run["metadata"].get("creationTimestamp"),
        "state": state(run),
        "over": code is not None,
        "exit_code": None if code is None else int(code),
        "figures": {key: status[key] for key in _FIGURES if status.get(key) not in (None, {})},
        "conditions": list(status.get("conditions") or ()),
        "pods": [
            {
                "name": pod.name,
                "program": pod.program,
                "phase": pod.phase,
                "ready": pod.ready,
                "life": pod.life(now).value,
                "obstacle": pod.obstacle,
            }
            for pod in pods
        ],
    }


def table(runs: Sequence[Mapping[str, Any]], now: float, *, namespaces: bool = False) -> list[str]:
    """The runs as lines of aligned columns, the first of them a head."""
    rows = [["NAME", "STATE", "WORKERS", "STEPS", "SUCCESS", "AGE"]]
    for run in runs:
        status = run.get("status") or {}
        wanted = status.get("desiredReplicas", (run["spec"].get("workers") or {}).get("replicas", 1))
        rows.append(
            [
                run["metadata"]["name"],
                state(run),
                f"{status.get('readyReplicas', 0)}/{wanted}",
                _number(status.get("steps")),
                _number(status.get("success"), ".2f"),
                age(run, now),
            ]
        )
    if namespaces:
        names = ["NAMESPACE", *(run["metadata"]["namespace"] for run in runs)]
        rows = [[name, *row] for name, row in zip(names, rows, strict=True)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def describe(run: Mapping[str, Any], pods: Sequence[PodView], now: float) -> list[str]:
    """A run in full: figures, conditions and pods."""
    metadata, status = run["metadata"], run.get("status") or {}
    lines = [
        f"run {metadata['name']} in namespace {metadata['namespace']}: {state(run)}, {age(run, now)} old"
    ]
    if not status.get("conditions"):
        lines.append(
            "  no operator has looked at it yet: is one installed, and does it watch this namespace?"
        )
    figures = _figures(run)
    if figures:
        lines.append(f"  {figures}")
    if status.get("restarts"):
        classes = ", ".join(f"{name} {count}" for name, count in (status.get("failures") or {}).items())
        lines.append(f"  {status['restarts']} failures counted{f' ({classes})' if classes else ''}")
    if status.get("lastFailure"):
        lines.append(f"  last failure: {status['lastFailure']}")
    conditions = status.get("conditions") or ()
    if conditions:
        lines += ["", "conditions"]
        width = max(len(one["type"]) for one in conditions)
        for one in conditions:
            words = f": {one['message']}" if one.get("message") else ""
            lines.append(f"  {one['type'].ljust(width)}  {one['status'].ljust(7)}  {one['reason']}{words}")
    if pods:
        lines += ["", "pods"]
        width = max(len(pod.name) for pod in pods)
        lines += [f"  {pod.name.ljust(width)}  {_pod(pod, now)}" for pod in pods]
    return lines


def progress(run: Mapping[str, Any]) -> str:
    """The run in one line, while it goes on."""
    why = ""
    status = run.get("status") or {}
    if not status.get("conditions"):
        why = "no operator has looked at it yet"
    elif verdict(run) is None:
        for type_ in ("Ready", "Progressing"):
            one = condition_of(status, type_)
            if one.get("status") == "False" and one.get("reason") not in ("Stable", "Suspended", "Finished"):
                why = f"{one.get('reason')}: {one.get('message')}"
                break
    return "  ".join(filter(None, [state(run), _figures(run), why]))


def age(run: Mapping[str, Any], now: float) -> str:
    """How long ago the run was made, as kubectl writes it: 40s, 12m, 3h, 2d."""
    created = seconds_of(run["metadata"].get("creationTimestamp"))
    if created is None:
        return "–"
    seconds = max(0, int(now - created))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _figures(run: Mapping[str, Any]) -> str:
    status = run.get("status") or {}
    parts: list[str] = []
    if verdict(run) is None and status.get("desiredReplicas") is not None:
        parts.append(f"workers {status.get('readyReplicas', 0)}/{status['desiredReplicas']}")
    if status.get("steps") is not None:
        rate = status.get("stepsPerSecond")
        parts.append(f"steps {_number(status['steps'])}" + (f" ({rate:.0f}/s)" if rate else ""))
    for key, words, form in (
        ("episodes", "episodes", ",d"),
        ("updates", "updates", ",d"),
        ("success", "success", ".2f"),
        ("staleness", "staleness", ".1f"),
        ("queued", "queued", ",d"),
    ):
        if status.get(key) is not None:
            parts.append(f"{words} {_number(status[key], form)}")
    left = status.get("timeLeftSeconds")
    if left is not None and verdict(run) is None:
        from webgym.run.live import clock

        parts.append(f"{clock(left)} left")
    return "  ".join(parts)


def _pod(pod: PodView, now: float) -> str:
    if pod.obstacle:
        return f"{pod.phase}: {pod.obstacle}"
    if pod.life(now) in (Life.LEAVING, Life.STUCK):
        return f"{pod.phase}, leaving"
    if pod.end is not None and pod.life(now) is Life.ENDED:
        last = pod.end.message.splitlines()[-1:] if pod.end.exit_code else []
        return " ".join([f"{pod.phase}, exit code {pod.end.exit_code}", *(f"({line})" for line in last)])
    return f"{pod.phase}, {'ready' if pod.ready else 'not ready'}"


def _number(value: Any, form: str = ",d") -> str:
    return format(value, form) if isinstance(value, int | float) else "–"
