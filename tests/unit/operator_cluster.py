"""A cluster in memory, with a clock of its own: it does what a plan says, and what clusters do to pods."""

from __future__ import annotations

import copy
import itertools
from typing import Any

from operator_runs import SETTINGS, run_body

from webgym.run.snapshot import Snapshot
from webgym_operator.cache import trimmed
from webgym_operator.observed import Figures, Observed, PodView, parse_pod, sort_children
from webgym_operator.plan import Create, Delete, DeleteRun, Patch, Plan
from webgym_operator.reconcile import World, reconcile
from webgym_operator.redis_objects import Passwords
from webgym_operator.run import Object, Run, time_text

START = 1_767_225_600.0  # 2026-01-01


def merged(target: Any, patch: Any) -> Any:
    """JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


class Cluster:
    def __init__(self, spec: dict[str, Any] | None = None, *, schedulable: bool = True) -> None:
        self.now = START
        self.body = run_body(spec)
        self.objects: dict[tuple[str, str], Object] = {}
        self.passwords = Passwords.generate()
        self.settings = SETTINGS
        self.figures: Figures | None = None
        self.figures_error = ""
        self.schedulable = schedulable
        self.writes = 0
        self.gone = False
        self.notes: list[str] = []
        self._uids = itertools.count(1)

    # --- what the operator sees and does ---------------------------------------------------------------------------

    @property
    def run(self) -> Run:
        return Run.parse(self.body)

    def observed(self) -> Observed:
        # As the operator sees them, which remembers a part of each.
        seen = [trimmed(one) for one in self.objects.values()]
        pods, objects, remains = sort_children(self.run.uid, seen)
        return Observed(pods, objects, remains, self.figures, self.figures_error)

    def plan(self) -> Plan:
        secret = self.objects.get(("Secret", "demo-redis"))
        passwords = (Passwords.parse(secret) if secret else None) or self.passwords
        return reconcile(self.run, self.observed(), World(self.settings, self.now, passwords))

    def reconcile(self) -> Plan:
        plan = self.plan()
        for action in plan.actions:
            self._do(action)
        if plan.status is not None and plan.status != self.body.get("status"):
            self.body["status"] = copy.deepcopy(dict(plan.status))
            self.writes += 1
        self.notes += [f"{note.reason}: {note.message}" for note in plan.notes]
        return plan

    def settle(self, rounds: int = 12) -> None:
        """Reconcile and let pods come up and go, until nothing is left to do."""
        for _ in range(rounds):
            before = self.writes
            plan = self.reconcile()
            self.kubelet()
            if not plan.actions and self.writes == before:
                return

    def _do(self, action: Any) -> None:
        self.writes += 1
        match action:
            case Create(body):
                key = (body["kind"], body["metadata"]["name"])
                if key not in self.objects:
                    made = copy.deepcopy(body)
                    made["metadata"] |= {
                        "uid": f"uid-{next(self._uids)}",
                        "creationTimestamp": time_text(self.now),
                    }
                    self.objects[key] = made
            case Patch(kind, name, body):
                self.objects[kind, name] = merged(self.objects[kind, name], body)
            case Delete(kind, name, uid, grace):
                made = self.objects.get((kind, name))
                if made is not None and made["metadata"]["uid"] == uid:
                    self.remove(kind, name, grace)
            case DeleteRun():
                self.gone = True

    # --- what clusters do ------------------------------------------------------------------------------------------

    def remove(self, kind: str, name: str, grace: int | None = None) -> None:
        made = self.objects[kind, name]
        phase = made.get("status", {}).get("phase", "Pending")
        running = kind == "Pod" and phase in ("Pending", "Running") and made.get("spec", {}).get("nodeName")
        if not running:
            del self.objects[kind, name]
        elif "deletionTimestamp" not in made["metadata"]:
            made["metadata"]["deletionTimestamp"] = time_text(self.now + (20 if grace is None else grace))

    def kubelet(self) -> None:
        """Schedule and start what can be; end what was asked to."""
        for kind, name in list(self.objects):
            made = self.objects[kind, name]
            if kind == "StatefulSet":
                made["status"] = {"readyReplicas": made["spec"]["replicas"]}
            elif kind == "Pod" and "deletionTimestamp" in made["metadata"]:
                del self.objects[kind, name]
            elif kind == "Pod" and not made.get("status"):
                if self.schedulable:
                    self.start(name)
                else:
                    blocked = {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/1",
                    }
                    made["status"] = {"phase": "Pending", "conditions": [blocked]}

    def start(self, name: str) -> None:
        made = self.objects["Pod", name]
        made["spec"]["nodeName"] = "node"
        conditions = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}]
        made["status"] = {"phase": "Running", "conditions": conditions}

    def end(
        self, name: str, code: int, reason: str = "Error", message: str = "", pod_reason: str = ""
    ) -> None:
        ended = {"exitCode": code, "reason": reason, "message": message, "finishedAt": time_text(self.now)}
        self.objects["Pod", name]["status"] = {
            "phase": "Succeeded" if code == 0 else "Failed",
            "reason": pod_reason,
            "containerStatuses": [{"state": {"terminated": ended}}],
        }

    # --- for tests -------------------------------------------------------------------------------------------------

    def change(self, **spec: Any) -> None:
        self.body["spec"] = merged(self.body["spec"], spec)
        self.body["metadata"]["generation"] += 1

    def say(self, phase: str, **numbers: float) -> None:
        self.figures = Figures(Snapshot(phase=phase, reason="success", numbers=numbers), queued=5, leased=3)

    def pods(self, role: str) -> list[PodView]:
        found = [parse_pod(o) for (kind, _), o in self.objects.items() if kind == "Pod"]
        return sorted((p for p in found if p.role == role), key=lambda p: p.name)

    def names(self, role: str) -> list[str]:
        return [pod.name for pod in self.pods(role)]

    def kinds(self) -> set[str]:
        return {kind for kind, _ in self.objects}

    def condition(self, type_: str) -> tuple[str, str]:
        (found,) = [c for c in self.body["status"]["conditions"] if c["type"] == type_]
        return found["status"], found["reason"]

    def message(self, type_: str) -> str:
        (found,) = [c for c in self.body["status"]["conditions"] if c["type"] == type_]
        return str(found["message"])


def workers(count: int, **more: Any) -> dict[str, Any]:
    return {"workers": {"replicas": count}, **more}


def running(spec: dict[str, Any] | None = None, **more: Any) -> Cluster:
    cluster = Cluster(spec, **more)
    cluster.settle()
    return cluster
