"""The one decision of the operator: what is seen and what is wanted, to what is to be done.

It is level-based: it looks at the state and never at what happened, so a missed event costs time and nothing else.
What it has to remember lies in the run's status.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from webgym_operator.autoscale import Scale, decide
from webgym_operator.conditions import Condition, condition_of, merge_conditions
from webgym_operator.ledger import Ledger
from webgym_operator.observed import Life, Observed, PodView
from webgym_operator.plan import Create, DeleteRun, Note, Plan
from webgym_operator.pods import PodPlan, drain_all, plan_learners, plan_workers
from webgym_operator.redis_objects import Passwords, has_volume
from webgym_operator.resources import config_map, pod_template, support_objects
from webgym_operator.run import Object, Run, seconds_of, time_text
from webgym_operator.settings import Settings
from webgym_operator.statusing import (
    figures_of,
    is_obstacle,
    progress_conditions,
    ready_condition,
    sandbox_condition,
)
from webgym_operator.upkeep import keep_up, remove_all_but
from webgym_operator.verdict import Verdict, active_seconds, judge, recorded_verdict

__all__ = ["MANAGER", "World", "reconcile", "with_status"]

MANAGER = "webgym.io/operator"
"""What ``spec.managedBy`` says of runs that this operator looks after; the same as leaving it out."""

_REMAINS_SECONDS = 2.0
_VERDICT_SECONDS = 10.0
"""A learner that ended so lately, and well, may have written a verdict that the figures do not have yet."""


@dataclass(frozen=True)
class World:
    """What a decision needs to know besides the run and its objects."""

    settings: Settings
    now: float
    """Seconds since the epoch."""
    passwords: Passwords
    """Of the run's Redis: those in use, or, where there are none, new ones."""
    disruption_budgets: bool = True
    """Whether the server knows policy/v1."""


def reconcile(run: Run, observed: Observed, world: World) -> Plan:
    """What to do about a run now.

    Args:
        run: as last seen.
        observed: its objects, own writes that no watch has reported yet included.
        world: the rest.
    """
    if run.deleting:
        # Everything that the run owns goes with it, also without an operator.
        return Plan()
    if run.manifest is None:
        return _invalid(run, world.now)
    if run.spec.managed_by not in (None, MANAGER):
        return Plan()
    return _Reconciliation(run, observed, world).plan()


def _invalid(run: Run, now: float) -> Plan:
    """A spec that is not valid, or not for this operator: said once, tried never; what runs already goes on."""
    if recorded_verdict(run.status) is not None:
        return Plan()
    reason, problem = "InvalidSpec", run.problem
    if run.outdated:
        reason, problem = "OperatorTooOld", f"the operator's {problem}"
    before = condition_of(run.status, "Succeeded")
    kept = [
        Condition(c["type"], c["status"], c.get("reason", ""), c.get("message", ""))
        for c in run.status.get("conditions") or ()
        if c.get("type") not in ("Succeeded", "Ready")
    ]
    conditions = [
        Condition("Succeeded", "Unknown" if run.outdated else "False", reason, problem),
        Condition("Ready", "False", reason, problem),
        *kept,
    ]
    plan = Plan()
    plan.status = {
        **run.status,
        "observedGeneration": run.generation,
        "conditions": merge_conditions(run.status, conditions, generation=run.generation, now=now),
    }
    if before.get("reason") != reason or before.get("message") != problem:
        plan.notes.append(Note(reason, problem, "Warning"))
    return plan


class _Reconciliation:
    """One reconciliation of a run with a valid spec."""

    def __init__(self, run: Run, observed: Observed, world: World) -> None:
        self._run = run
        self._observed = observed
        self._world = world
        self._now = world.now
        self._plan = Plan()
        self._ledger = Ledger.of(run.status).update(observed.pods)
        self._programs = [p for p in observed.pods if p.role in ("worker", "learner")]
        self._workers = observed.of("worker")
        self._live_workers = [p for p in self._workers if p.life(self._now) is Life.LIVE]

    def plan(self) -> Plan:
        run, now = self._run, self._now
        self._plan.notes += self._ledger.notes
        verdict = recorded_verdict(run.status)
        if verdict is not None:
            self._finish(verdict, new=False)
            return self._plan
        verdict = judge(run, self._observed, self._ledger, now)
        if verdict is not None:
            kind = "Normal" if verdict.succeeded else "Warning"
            self._plan.notes.append(Note(verdict.reason, verdict.message, kind))  # type: ignore[arg-type]
            self._finish(verdict, new=True)
        elif run.spec.suspend:
            self._suspend()
        else:
            self._run_on()
        return self._plan

    # --- over ------------------------------------------------------------------------------------------------------

    def _finish(self, verdict: Verdict, *, new: bool) -> None:
        """Release everything but checkpoints and the logs of what has ended; after its time, the run itself."""
        run, now = self._run, self._now
        completed = now if new else seconds_of(run.status.get("completionTime")) or now
        ttl = run.spec.ttl_seconds_after_finished
        if ttl is not None:
            if not new and now >= completed + ttl:
                self._plan.actions.append(DeleteRun())
                return
            self._plan.wake(completed + ttl)
        if not new:
            # Only once the verdict is written: it rests on what Redis said, which goes now.
            pods = drain_all(self._programs, now, "the run is over", keep_ended=True)
            self._plan.actions += pods.actions
            going = any(p.life(now) in (Life.LIVE, Life.LEAVING) for p in self._programs)
            if not going:
                kept = {run.claim_name, *(pod.config for pod in self._programs)}
                self._plan.actions += remove_all_but(kept, self._observed.objects, "the run is over")
        self._write_status(
            [
                Condition(
                    "Succeeded", "True" if verdict.succeeded else "False", verdict.reason, verdict.message
                ),
                Condition("Ready", "False", "Finished", "the run is over"),
                Condition("Progressing", "False", "Finished", "the run is over"),
                Condition("Suspended", "False", "Finished", "the run is over"),
            ],
            wanted=0,
            completed=completed,
        )

    # --- suspended -------------------------------------------------------------------------------------------------

    def _suspend(self) -> None:
        """Learners write a checkpoint, workers end their episodes, then Redis writes its file and stops."""
        now = self._now
        plan = drain_all(self._programs, now, "the run is suspended", keep_ended=False)
        self._plan.actions += plan.actions
        going = any(p.life(now) in (Life.LIVE, Life.LEAVING) for p in self._programs)
        self._keep_up(workers=0, redis_replicas=1 if going else 0, create=False)
        redis = any(p.life(now) in (Life.LIVE, Life.LEAVING) for p in self._observed.of("redis"))
        released = not going and not redis
        message = "all pods are released" if released else "pods are being released"
        self._write_status(
            [
                Condition("Succeeded", "Unknown", "Suspended", "spec.suspend is true"),
                Condition("Ready", "False", "Suspended", "spec.suspend is true"),
                Condition(
                    "Progressing",
                    "False" if released else "True",
                    "Suspended" if released else "Suspending",
                    message,
                ),
                Condition(
                    "Suspended",
                    "True" if released else "False",
                    "Suspended" if released else "Suspending",
                    message,
                ),
            ],
            wanted=0,
            started=False,
        )

    # --- active ----------------------------------------------------------------------------------------------------

    def _run_on(self) -> None:
        run, spec, world, observed, now = self._run, self._run.spec, self._world, self._observed, self._now
        if observed.remains:
            # Their names are those that we need.
            self._plan.wake(now + _REMAINS_SECONDS)
            names = ", ".join(sorted(observed.remains)[:5])
            self._progress(
                "WaitingForEarlierRun",
                f"objects of an earlier run of this name are being removed: {names}",
                wanted=0,
            )
            return
        own_redis = spec.redis.url is None
        scale = self._scale()
        phase = "start" if observed.figures is None else observed.figures.snapshot.phase
        wanted = 0 if phase == "done" else scale.workers
        self._keep_up(workers=wanted, redis_replicas=1, create=True)

        config = config_map(run, scale.workers)
        secret = world.passwords.fingerprint if own_redis else ""
        templates = {
            role: pod_template(run, world.settings, role, config["metadata"]["name"], secret)
            for role in ("worker", "learner")
        }
        may_create = observed.redis_ready or not own_redis
        workers = plan_workers(
            templates["worker"],
            self._workers,
            wanted=wanted,
            ledger=Ledger.of(run.status),
            now=now,
            may_create=may_create,
            busy=observed.figures.busy if observed.figures else {},
        )
        # Once the verdict of the learner is written, its end is not worth a second life.
        written = phase == "done"
        if not written and any(pod.ended_well(now, _VERDICT_SECONDS) for pod in observed.of("learner")):
            written = True
            self._plan.wake(now + 1.0)
        learners = (
            PodPlan()
            if written
            else plan_learners(
                templates["learner"],
                observed.of("learner"),
                ranks=spec.learner.replicas,
                ledger=Ledger.of(run.status),
                now=now,
                may_create=may_create,
            )
        )
        needed = any(isinstance(a, Create) for a in (*workers.actions, *learners.actions))
        if needed and ("ConfigMap", config["metadata"]["name"]) not in observed.objects:
            self._plan.actions.append(Create(config))
        for pods in (learners, workers):
            self._plan.actions += pods.actions
            self._plan.wake(pods.wake_at)
        limit = spec.active_deadline_seconds
        if limit is not None:
            self._plan.wake(now + max(1.0, limit - active_seconds(run.status, now) + 1))
        self._progress(learners.doing or workers.doing, "", wanted=wanted, scale=scale)

    def _scale(self) -> Scale:
        spec, status = self._run.spec, self._run.status
        if spec.workers.autoscaling.mode != "Learner":
            return Scale(spec.workers.replicas, self._now)
        before = status.get("desiredReplicas")
        changed = seconds_of(status.get("lastScaleTime"))
        last = Scale(int(before), changed) if before is not None and changed is not None else None
        ready = sum(pod.ready for pod in self._live_workers)
        scale = decide(spec, self._now, last, self._observed.figures, ready)
        if last is not None and scale.workers != last.workers:
            message = f"{last.workers} to {scale.workers} workers: {scale.reason}"
            self._plan.notes.append(Note("Scaled", message))
        return scale

    def _progress(self, doing: str, message: str, *, wanted: int, scale: Scale | None = None) -> None:
        ready = ready_condition(
            self._run.spec, self._observed, self._live_workers, wanted=wanted, now=self._now
        )
        why = message or (self._ledger.last_failure if doing == "Restarting" else "")
        succeeded, progressing = progress_conditions(
            self._run, self._observed, ready, doing=doing, why=why, now=self._now
        )
        said = condition_of(self._run.status, "Progressing")
        obstacle = progressing.reason, progressing.message
        if is_obstacle(progressing) and obstacle != (said.get("reason"), said.get("message")):
            self._plan.notes.append(Note(*obstacle, "Warning"))
        self._write_status(
            [
                succeeded,
                ready,
                progressing,
                Condition("Suspended", "False", "Active", "spec.suspend is false"),
            ],
            wanted=wanted,
            scale=scale,
        )

    def _keep_up(self, *, workers: int, redis_replicas: int, create: bool) -> None:
        world, settings = self._world, self._world.settings
        redis = self._observed.objects.get(("StatefulSet", self._run.redis_name))
        persistent = None if redis is None else has_volume(redis)
        if persistent is not None:
            # Where its data lie is settled when it is made: in another place there would be none.
            settings = dataclasses.replace(settings, redis_persistent=persistent)
        wanted = support_objects(
            self._run,
            settings,
            world.passwords if self._run.spec.redis.url is None else None,
            workers=workers,
            redis_replicas=redis_replicas,
            disruption_budgets=world.disruption_budgets,
        )
        seen = self._observed.objects
        self._plan.actions += keep_up(wanted, seen, self._programs, now=self._now, create=create)

    # --- status ----------------------------------------------------------------------------------------------------

    def _write_status(
        self,
        conditions: Sequence[Condition],
        *,
        wanted: int,
        scale: Scale | None = None,
        completed: float | None = None,
        started: bool = True,
    ) -> None:
        run, now, before = self._run, self._now, self._run.status
        ledger = self._ledger
        live: list[PodView] = self._live_workers
        conditions = [*conditions, sandbox_condition(before, run.spec, self._observed.figures)]
        status: Object = {
            "observedGeneration": run.generation,
            "conditions": merge_conditions(before, conditions, generation=run.generation, now=now),
            "replicas": len(live),
            "readyReplicas": sum(pod.ready for pod in live),
            "selector": ",".join(f"{k}={v}" for k, v in sorted(run.selector("worker").items())),
            "desiredReplicas": wanted if scale is None else scale.workers,
            "seed": run.spec.seed,
            "algorithm": run.spec.learner.algorithm,
            "restarts": ledger.restarts,
            **figures_of(before, self._observed.figures),
        }
        start = before.get("startTime") or (time_text(now) if started else None)
        optional = {
            "startTime": start,
            "completionTime": time_text(completed) if completed is not None else None,
            "lastScaleTime": time_text(scale.changed_at)
            if scale is not None
            else before.get("lastScaleTime"),
            "activeSeconds": self._active_seconds(status["conditions"]),
            "failures": dict(ledger.failures),
            "lastFailure": ledger.last_failure,
            "countedPods": sorted(ledger.counted),
            "checkpoint": before.get("checkpoint"),
        }
        status.update({key: value for key, value in optional.items() if value})
        if run.spec.workers.autoscaling.mode != "Learner":
            status.pop("lastScaleTime", None)
        if completed is not None:
            status.pop("timeLeftSeconds", None)
        self._plan.status = status

    def _active_seconds(self, conditions: Sequence[Object]) -> int:
        """What was active before the latest suspension, booked when it begins."""
        before = int(self._run.status.get("activeSeconds") or 0)
        was = condition_of(self._run.status, "Suspended").get("status")
        now_suspended = any(c["type"] == "Suspended" and c["status"] == "True" for c in conditions)
        if now_suspended and was != "True":
            return int(active_seconds(self._run.status, self._now))
        return before


def with_status(run: Run, plan: Plan) -> Run:
    """The run as it is once the plan's status is written."""
    return run if plan.status is None else dataclasses.replace(run, status=dict(plan.status))
