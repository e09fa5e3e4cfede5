"""How many workers the learner needs: up when it starves, cautiously down when browsers wait for it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from webgym.spec import RunSpec
from webgym_operator.observed import Figures

__all__ = ["Scale", "decide"]

_UP_SECONDS, _DOWN_SECONDS = 30.0, 120.0
"""Least time between two steps up; and from the latest step of any kind to one down."""
_UP_SHARE, _DOWN_SHARE = 0.5, 0.1
"""How much a step adds or takes, of what there is."""


@dataclass(frozen=True)
class Scale:
    """A number of workers, and why."""

    workers: int
    changed_at: float
    """Seconds since the epoch; when the number last changed."""
    reason: str = ""
    """Empty while it stays."""


def decide(spec: RunSpec, now: float, last: Scale | None, figures: Figures | None, ready: int) -> Scale:
    """The number of workers from now on.

    Args:
        spec: of the run; ``workers.autoscaling.mode`` is Learner.
        now: seconds since the epoch.
        last: what was decided before; None at the start.
        figures: what the run says; None while it says nothing, and then nothing changes.
        ready: workers that act. No step up is made before those of the last one do.
    """
    bounds = spec.workers.autoscaling

    def within(workers: int) -> int:
        return max(bounds.min, min(bounds.max, workers))

    if last is None:
        return Scale(within(spec.workers.replicas), now)
    if within(last.workers) != last.workers:
        return Scale(within(last.workers), now, "within workers.autoscaling.min and max")
    if figures is None or figures.snapshot.phase not in ("train", "evaluate"):
        return last
    quiet = now - last.changed_at
    if figures.queued == 0 and figures.leased == 0:
        if quiet >= _DOWN_SECONDS and last.workers > bounds.min:
            return Scale(bounds.min, now, "there is nothing to play")
        return last
    if figures.snapshot.phase != "train":
        return last
    too_many = _saturated(spec, figures)
    if too_many and quiet >= _DOWN_SECONDS:
        fewer = within(last.workers - max(1, int(last.workers * _DOWN_SHARE)))
        return Scale(fewer, now, too_many) if fewer < last.workers else last
    if not too_many and quiet >= _UP_SECONDS and ready >= last.workers:
        starved = _starved(spec, figures)
        more = within(last.workers + max(1, math.ceil(last.workers * _UP_SHARE)))
        return Scale(more, now, starved) if starved and more > last.workers else last
    return last


def _starved(spec: RunSpec, figures: Figures) -> str:
    snapshot, ratio = figures.snapshot, spec.learner.replay_ratio
    size = snapshot.number("replay_size")
    if size is not None and size < spec.learner.replay.min_transitions:
        return "the replay is not filled enough for the first update"
    present = snapshot.number("replay_ratio")
    if present is not None and present >= 0.95 * ratio.max:
        return f"the learner waits for experience: {present:g} updates a step, of {ratio.max:g} at most"
    return ""


def _saturated(spec: RunSpec, figures: Figures) -> str:
    snapshot, ratio = figures.snapshot, spec.learner.replay_ratio
    staleness = snapshot.number("staleness")
    if staleness is not None and staleness > 0.8 * spec.policy.max_staleness:
        return f"experience is stale: {staleness:g} versions on average, {spec.policy.max_staleness} allowed"
    present = snapshot.number("replay_ratio")
    if present is not None and 0 < present <= 1.05 * ratio.min:
        return f"browsers wait for the learner: {present:g} updates a step, of {ratio.min:g} at least"
    return ""
