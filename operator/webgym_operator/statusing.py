"""The status of a run: figures, conditions, and when a change of it is worth a write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from webgym.spec import RunSpec
from webgym_operator.conditions import Condition, condition_of, merge_conditions
from webgym_operator.observed import Figures, Life, Observed, PodView
from webgym_operator.run import Object, Run

__all__ = [
    "FIGURES",
    "figures_of",
    "is_obstacle",
    "progress_conditions",
    "ready_condition",
    "sandbox_condition",
    "worth_writing",
]

FIGURES = {
    "steps": ("steps", int),
    "stepsPerSecond": ("steps_per_second", float),
    "episodes": ("episodes", int),
    "updates": ("updates", int),
    "staleness": ("staleness", float),
    "timeLeftSeconds": ("time_left", int),
}
"""Keys of the status to the learner's numbers and their kinds; ``success`` and ``queued`` besides."""

_DOING = {
    "Creating": "pods are being made",
    "Restarting": "pods that ended are being made anew",
    "RollingUpdate": "pods of an older spec are being replaced",
    "ScalingDown": "workers that are no longer wanted end their episodes",
    "Draining": "pods end their episodes",
}

_STABLE = "Stable"
_RATE_LIMITED = frozenset({*FIGURES, "success", "queued"})


def figures_of(status: Mapping[str, Any], figures: Figures | None) -> Object:
    """The headline figures: the present ones, or, while nobody tells any, those of the last status."""
    keys = (*FIGURES, "success", "queued")
    found: Object = {key: status[key] for key in keys if status.get(key) is not None}
    if figures is None:
        return found
    for key, (name, kind) in FIGURES.items():
        value = figures.snapshot.number(name)
        if value is not None and value >= 0:
            found[key] = int(value) if kind is int else round(value, 3)
    if figures.snapshot.success is not None:
        found["success"] = round(figures.snapshot.success, 4)
    if figures.queued is not None:
        found["queued"] = figures.queued
    return found


def worth_writing(
    before: Mapping[str, Any], after: Mapping[str, Any], *, last_write: float, now: float, period: float
) -> float | None:
    """When to write a status: now for what people and programs wait on, later for mere figures.

    Returns:
        Seconds since the epoch, ``now`` or later; None where nothing changed.
    """
    changed = {
        key
        for key in before.keys() | after.keys()
        if (before.get(key) or None) != (after.get(key) or None)
        # 0 and absent differ for numbers that people read.
        or (before.get(key) == 0) != (after.get(key) == 0)
    }
    if not changed:
        return None
    if changed - _RATE_LIMITED:
        return now
    return max(now, last_write + period)


def ready_condition(
    spec: RunSpec, observed: Observed, workers: list[PodView], *, wanted: int, now: float
) -> Condition:
    """Whether every part of an active run does its work, or which does not and why."""
    if spec.redis.url is None and not observed.redis_ready:
        why = _obstacles(observed.of("redis")) or "its pod is not ready"
        return Condition("Ready", "False", "RedisNotReady", f"Redis: {why}")
    if observed.figures is None and observed.figures_error:
        # What could be changed about a server of the user's cannot be about the run's own.
        why = observed.figures_error if spec.redis.url else observed.figures_error.partition("; ")[0]
        return Condition("Ready", "False", "RedisUnreachable", why)
    learners = [pod for pod in observed.of("learner") if pod.life(now) is Life.LIVE]
    ready = sum(pod.ready for pod in learners)
    if ready < spec.learner.replicas:
        why = _obstacles(learners) or f"{ready} of {spec.learner.replicas} learners are ready"
        return Condition("Ready", "False", "LearnerNotReady", why)
    acting = sum(pod.ready for pod in workers)
    if wanted and not acting:
        why = _obstacles(workers) or f"none of {wanted} workers is ready"
        return Condition("Ready", "False", "WorkersNotReady", why)
    return Condition("Ready", "True", "Running", f"{acting} of {wanted} workers are ready")


def progress_conditions(
    run: Run, observed: Observed, ready: Condition, *, doing: str, why: str, now: float
) -> tuple[Condition, Condition]:
    """``Succeeded`` and ``Progressing`` of an active run that is not over.

    Args:
        run: with a valid spec.
        observed: what is seen of it.
        ready: its :func:`ready_condition`.
        doing: what is being done to its pods, one word; or nothing.
        why: in words; empty takes those of ``doing``.
        now: seconds since the epoch.
    """
    succeeded = _phase(run.status, observed.figures)
    starting = succeeded.reason == "Starting"
    obstacle = _obstacle(observed.pods, now)
    if obstacle is None and starting and run.spec.redis.url and ready.reason == "RedisUnreachable":
        obstacle = ready.reason, ready.message
    if obstacle is not None:
        # What people look at first says what a run waits for that has not begun.
        first = Condition("Succeeded", "Unknown", *obstacle) if starting else succeeded
        return first, Condition("Progressing", "False", *obstacle)
    if doing:
        return succeeded, Condition("Progressing", "True", doing, why or _DOING.get(doing, doing))
    if starting and ready.status != "True":
        return succeeded, Condition("Progressing", "True", "Starting", ready.message)
    return succeeded, Condition("Progressing", "False", _STABLE, "nothing is changing")


def is_obstacle(progressing: Condition) -> bool:
    """Whether something is in the way, and not merely nothing to be done."""
    return progressing.status == "False" and progressing.reason != _STABLE


def _phase(status: Mapping[str, Any], figures: Figures | None) -> Condition:
    """``Succeeded`` of a run that goes on, by what its learner says."""
    phase = figures.snapshot.phase if figures is not None else ""
    before = condition_of(status, "Succeeded")
    if not phase and before.get("status") == "Unknown" and before.get("reason") in ("Training", "Evaluating"):
        # Redis does not answer: that is for Ready to say.
        return Condition("Succeeded", "Unknown", str(before["reason"]), str(before.get("message", "")))
    reason, text = {
        "train": ("Training", "the agent is being trained"),
        "evaluate": ("Evaluating", "the agent is being evaluated"),
        "done": ("Finishing", "the verdict is there; the last files are being written"),
    }.get(phase, ("Starting", "its programs are being started"))
    return Condition("Succeeded", "Unknown", reason, text)


def _obstacle(pods: tuple[PodView, ...], now: float) -> tuple[str, str] | None:
    """Reason and message of what keeps live pods from starting: all the reasons, and of each one pod."""
    found: dict[str, str] = {}
    for pod in sorted(pods, key=lambda p: (p.role, p.slot)):
        if pod.obstacle and pod.life(now) is Life.LIVE:
            found.setdefault(pod.obstacle.partition(":")[0], f"{pod.program}: {pod.obstacle}")
    return (next(iter(found)), "; ".join(found.values())[:1000]) if found else None


def sandbox_condition(status: Mapping[str, Any], spec: RunSpec, figures: Figures | None) -> Condition:
    """Whether browsers run in Chromium's own sandbox, as their workers tell; the last that they told holds."""
    if spec.browser.sandbox == "Disabled":
        return Condition("BrowserSandbox", "False", "Disabled", "browser.sandbox is Disabled")
    obstacle = figures.sandbox_obstacle if figures is not None else None
    if obstacle:
        return Condition("BrowserSandbox", "False", "Unavailable", f"browsers run without it: {obstacle}")
    if obstacle is not None:
        return Condition("BrowserSandbox", "True", "Sandboxed", "all browsers run in Chromium's sandbox")
    before = condition_of(status, "BrowserSandbox")
    if before.get("reason") in ("Sandboxed", "Unavailable"):
        return Condition("BrowserSandbox", before["status"], str(before["reason"]), str(before["message"]))
    return Condition("BrowserSandbox", "Unknown", "NotReported", "no worker has told whether it has one")


def _obstacles(pods: list[PodView]) -> str:
    return "; ".join(f"{pod.name}: {pod.obstacle}" for pod in pods if pod.obstacle)[:500]


def with_problem(
    run: Run, type_: str, reason: str, message: str, now: float, status: Mapping[str, Any] | None = None
) -> Object:
    """A status in which one condition is False for a reason that no decision could foresee.

    Args:
        run: whose status was last seen.
        type_: of the condition.
        reason: one CamelCase word.
        message: for people.
        now: seconds since the epoch.
        status: to begin with; None for the one last seen.
    """
    base = run.status if status is None else status
    others = [
        Condition(c["type"], c["status"], c["reason"], c["message"])
        for c in base.get("conditions") or ()
        if c["type"] != type_
    ]
    conditions = [*others, Condition(type_, "False", reason, message)]
    return {
        **base,
        "conditions": merge_conditions(run.status, conditions, generation=run.generation, now=now),
    }
