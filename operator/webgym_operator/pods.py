"""Which pods to make and which to remove: pure, and never more at a time than asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from webgym_operator.failures import classify, retry_delay
from webgym_operator.ledger import Ledger
from webgym_operator.observed import STUCK_AFTER, Life, PodView
from webgym_operator.plan import Action, Create, Delete
from webgym_operator.resources import PodTemplate

__all__ = ["DRAIN_SECONDS", "PodPlan", "drain_all", "plan_learners", "plan_workers"]

DRAIN_SECONDS = 120
"""Grace of a pod that leaves while its run goes on: enough for the episodes in its browsers, or for a checkpoint."""
SUSPEND_SECONDS = 60
_ROLLING_SHARE = 0.25
"""Share of the workers that may be missing at a time because their spec changed."""


@dataclass
class PodPlan:
    """Actions for the pods of one role."""

    actions: list[Action] = field(default_factory=list)
    wake_at: float | None = None
    doing: str = ""
    """What is under way, as a reason: Creating, Restarting, RollingUpdate, ScalingDown, or nothing."""

    def wake(self, at: float) -> None:
        """Look again then at the latest."""
        self.wake_at = at if self.wake_at is None else min(at, self.wake_at)

    def remove(self, pod: PodView, why: str, grace: int | None = DRAIN_SECONDS) -> None:
        """Delete a pod; an ended one has nothing to drain."""
        seconds = grace if pod.phase in ("Pending", "Running", "Unknown") else None
        if not pod.scheduled:
            seconds = None
        self.actions.append(Delete("Pod", pod.name, pod.uid, seconds, why))


def drain_all(pods: Sequence[PodView], now: float, why: str, *, keep_ended: bool) -> PodPlan:
    """Remove every pod that nobody has asked to go yet.

    Args:
        pods: of any role.
        now: seconds since the epoch.
        why: for the log.
        keep_ended: leave those that have ended where they are, for their logs.
    """
    plan = PodPlan()
    for pod in pods:
        life = pod.life(now)
        if life is Life.LIVE or (life is Life.ENDED and not keep_ended):
            plan.remove(pod, why, SUSPEND_SECONDS)
        if life in (Life.LIVE, Life.LEAVING):
            plan.doing = "Draining"
    return plan


def plan_workers(
    template: PodTemplate,
    pods: Sequence[PodView],
    *,
    wanted: int,
    ledger: Ledger,
    now: float,
    may_create: bool,
    busy: Mapping[str, int],
) -> PodPlan:
    """Bring the workers to a number, and to the present template.

    Every pod that is live, that has ended and waits for its successor's time, or that is leaving within its grace
    holds one of the places; so does one that cannot be scheduled. Only one stuck in its removal holds none.

    Args:
        template: of the present spec.
        pods: the workers seen, own creations that no watch has reported yet included.
        wanted: how many there are to be.
        ledger: which ends were counted.
        now: seconds since the epoch.
        may_create: whether Redis is there for new pods.
        busy: by program: how many episodes it plays.
    """
    plan = PodPlan()
    live, held = [], 0
    for pod in pods:
        life = pod.life(now)
        if life is Life.LIVE:
            live.append(pod)
        elif life is Life.LEAVING:
            held += 1
            plan.doing = plan.doing or "Draining"
            plan.wake(_stuck_at(pod))
        elif life is Life.ENDED and not _succeeded(plan, pod, ledger, now):
            held += 1
            plan.doing = "Restarting"

    surplus = len(live) - wanted
    if surplus > 0:
        plan.doing = "ScalingDown"
        for pod in sorted(live, key=_leaving_order(template.hash, busy))[:surplus]:
            plan.remove(pod, f"{wanted} workers are wanted")
            live.remove(pod)
            held += 1
    _roll(plan, template, live, wanted)
    missing = wanted - len(live) - held
    if missing > 0:
        plan.doing = plan.doing or "Creating"
        if may_create:
            # A slot with any trace of a pod, a stuck one included, is left to it as long as there are others.
            taken = {
                pod.slot for pod in pods if not _is_removed(plan, pod) or pod.life(now) is not Life.ENDED
            }
            for slot in _free_slots(taken, missing):
                plan.actions.append(Create(template.pod(slot, _next_incarnation(pods, slot))))
    return plan


def _roll(plan: PodPlan, template: PodTemplate, live: list[PodView], wanted: int) -> None:
    """Replace pods of an older template: those that do not act at once, the others a few at a time."""
    outdated = [pod for pod in live if pod.template != template.hash]
    if not outdated:
        return
    plan.doing = "RollingUpdate"
    ready = sum(pod.ready for pod in live)
    allowance = max(1, math.floor(wanted * _ROLLING_SHARE)) - (wanted - ready)
    for pod in sorted(outdated, key=lambda p: (p.ready, p.slot, p.incarnation)):
        if pod.ready:
            if allowance <= 0:
                return
            allowance -= 1
        plan.remove(pod, "its spec changed")
        # It leaves within its grace and holds its place meanwhile, so its successor comes in a later round.


def plan_learners(
    template: PodTemplate,
    pods: Sequence[PodView],
    *,
    ranks: int,
    ledger: Ledger,
    now: float,
    may_create: bool,
) -> PodPlan:
    """Keep one group of learners: all of one incarnation and of the present template, or none.

    Ranks wait for each other, so one that ends takes the others with it; the next group comes when none of the last is
    left, for two learners must not share a volume.

    Args: as for :func:`plan_workers`, and
        ranks: how many learners there are.
    """
    plan = PodPlan()
    live = [pod for pod in pods if pod.life(now) is Life.LIVE]
    leaving = [pod for pod in pods if pod.life(now) is Life.LEAVING]
    ended = [pod for pod in pods if pod.life(now) is Life.ENDED]
    for pod in leaving:
        plan.wake(_stuck_at(pod))
    newest = max((pod.incarnation for pod in live), default=0)
    strays = [p for p in live if p.template != template.hash or p.incarnation < newest or p.slot >= ranks]
    present = {pod.slot for pod in live}
    # A pod that is stuck keeps its name: its rank can come again only in a later incarnation, and so do the others.
    stuck = [pod for pod in pods if pod.life(now) is Life.STUCK and pod.incarnation == newest]
    blocked = any(pod.slot < ranks and pod.slot not in present for pod in stuck)
    if strays or ended or (live and (leaving or blocked)):
        why = "its spec changed" if strays and not ended else "the learners start again together"
        for pod in live:
            plan.remove(pod, why)
        waits = [pod for pod in ended if not _succeeded(plan, pod, ledger, now)]
        plan.doing = "Restarting" if ended or blocked else "RollingUpdate"
        if live or leaving or waits:
            return plan
    if leaving:
        plan.doing = "Restarting"
        return plan
    absent = [rank for rank in range(ranks) if rank not in present]
    if absent:
        plan.doing = plan.doing or "Creating"
        if may_create:
            incarnation = newest if live else max((p.incarnation + 1 for p in pods), default=0)
            plan.actions += [Create(template.pod(rank, incarnation)) for rank in absent]
    return plan


def _succeeded(plan: PodPlan, pod: PodView, ledger: Ledger, now: float) -> bool:
    """Remove an ended pod once its end is in the status and its successor may come; whether it is so."""
    due = (pod.finished_at or pod.created_at) + retry_delay(classify(pod), ledger.restarts)
    if not ledger.settled(pod):
        return False
    if now < due:
        plan.wake(due)
        return False
    plan.remove(pod, "it ended")
    return True


def _is_removed(plan: PodPlan, pod: PodView) -> bool:
    return any(isinstance(a, Delete) and a.uid == pod.uid for a in plan.actions)


def _leaving_order(template: str, busy: Mapping[str, int]) -> Callable[[PodView], tuple[object, ...]]:
    """Who leaves first when there are too many: whose going costs least."""

    def key(pod: PodView) -> tuple[object, ...]:
        return (
            pod.scheduled,
            pod.ready,
            busy.get(pod.program, 0),
            pod.template == template,
            -pod.created_at,
            -pod.slot,
        )

    return key


def _free_slots(taken: set[int], count: int) -> list[int]:
    found: list[int] = []
    slot = 0
    while len(found) < count:
        if slot not in taken:
            found.append(slot)
        slot += 1
    return found


def _next_incarnation(pods: Sequence[PodView], slot: int) -> int:
    return max((pod.incarnation + 1 for pod in pods if pod.slot == slot), default=0)


def _stuck_at(pod: PodView) -> float:
    return (pod.delete_by or 0.0) + STUCK_AFTER + 0.1
