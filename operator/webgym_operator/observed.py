"""What is seen of a run's pods and other objects, reduced to what decisions need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from webgym.run.snapshot import Snapshot
from webgym_operator.podspec import TEMPLATE_LABEL
from webgym_operator.run import Object, seconds_of

__all__ = ["ContainerEnd", "Figures", "Life", "Observed", "PodView", "parse_pod", "sort_children"]

_DISRUPTIONS = frozenset(
    {"Evicted", "NodeAffinity", "NodeLost", "NodeShutdown", "Preempting", "Shutdown", "Terminated"}
    | {"UnexpectedAdmissionError", "OutOfcpu", "OutOfmemory", "OutOfpods"}
)
"""Reasons of a failed pod that name the node, not the program."""
_WAITING = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "ErrImageNeverPull", "ErrImagePull"}
    | {"ImageInspectError", "ImagePullBackOff", "InvalidImageName", "RunContainerError"}
)
"""Why a container is not started that will not mend by itself soon."""


@dataclass(frozen=True)
class ContainerEnd:
    """How a container ended."""

    exit_code: int
    reason: str = ""
    """As Kubernetes says it: Error, OOMKilled, ..."""
    message: str = ""
    """The program's last word, or the end of its log."""


class Life(Enum):
    """Where a pod is in its life, as far as counting goes."""

    LIVE = "live"
    ENDED = "ended"
    """Its containers ended; the object is still there."""
    LEAVING = "leaving"
    """Asked to go, and within its grace."""
    STUCK = "stuck"
    """Asked to go, its grace over, and still there: its node is gone or cannot kill it. Nobody waits for it."""


STUCK_AFTER = 15.0
"""Seconds beyond its grace after which a pod counts as stuck: a kubelet needs a few to report the end."""


@dataclass(frozen=True)
class PodView:
    """A pod of a run."""

    name: str
    uid: str
    role: str
    slot: int = 0
    incarnation: int = 0
    template: str = ""
    phase: str = "Pending"
    ready: bool = False
    scheduled: bool = False
    obstacle: str = ""
    """What keeps it from starting: a reason and a message, or nothing."""
    created_at: float = 0.0
    delete_by: float | None = None
    """When its grace ends, once it was asked to go; seconds since the epoch."""
    finished_at: float | None = None
    end: ContainerEnd | None = None
    disruption: str = ""
    """Why its node or the cluster ended it; empty where nobody did."""
    config: str = ""
    """The ConfigMap that it reads."""

    @property
    def program(self) -> str:
        """Its name in the run, such as worker-0."""
        return f"{self.role}-{self.slot}"

    def life(self, now: float) -> Life:
        """Where it is in its life."""
        if self.delete_by is not None:
            return Life.LEAVING if now <= self.delete_by + STUCK_AFTER else Life.STUCK
        return Life.ENDED if self.phase in ("Succeeded", "Failed") else Life.LIVE

    def ended_well(self, now: float, within: float) -> bool:
        """Whether it ended by itself and without a fault, less than ``within`` seconds ago."""
        return (
            self.end is not None
            and self.end.exit_code == 0
            and not self.disruption
            and self.life(now) is Life.ENDED
            and now - (self.finished_at or 0.0) < within
        )


@dataclass(frozen=True)
class Figures:
    """What the run's programs say of themselves through Redis."""

    snapshot: Snapshot = field(default_factory=Snapshot)
    queued: int | None = None
    """Episodes that wait for a browser."""
    leased: int | None = None
    """Episodes that are being played."""
    busy: Mapping[str, int] = field(default_factory=dict)
    """By worker: how many episodes it plays."""
    sandbox_obstacle: str | None = None
    """Why browsers run without Chromium's sandbox; empty: all run in it; None: no worker has told."""


@dataclass(frozen=True)
class Observed:
    """Everything seen of one run at one moment."""

    pods: tuple[PodView, ...] = ()
    objects: Mapping[tuple[str, str], Object] = field(default_factory=dict)
    """Other objects of this run, by kind and name."""
    remains: frozenset[str] = frozenset()
    """Names of objects, as ``Kind/name``, that an earlier run of the same name has yet to take with it."""
    figures: Figures | None = None
    """None while Redis cannot be asked."""
    figures_error: str = ""
    """Why not."""

    def of(self, role: str) -> list[PodView]:
        """The pods of a role, by slot and age."""
        return sorted((p for p in self.pods if p.role == role), key=lambda p: (p.slot, p.incarnation, p.name))

    @property
    def redis_ready(self) -> bool:
        """Whether the run's own Redis takes connections."""
        for (kind, _), made in self.objects.items():
            if kind == "StatefulSet":
                return bool((made.get("status") or {}).get("readyReplicas"))
        return False


def parse_pod(body: Mapping[str, Any]) -> PodView:
    """A pod of the API server; never raises for what is missing."""
    metadata = body["metadata"]
    labels = metadata.get("labels") or {}
    spec = body.get("spec") or {}
    status = body.get("status") or {}
    conditions = {c.get("type"): c for c in status.get("conditions") or ()}
    scheduled = conditions.get("PodScheduled", {})
    end, finished_at = _end(status)
    return PodView(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        role=labels.get("webgym.io/role", ""),
        slot=_number(labels.get("webgym.io/slot")),
        incarnation=_number(labels.get("webgym.io/incarnation")),
        template=labels.get(TEMPLATE_LABEL, ""),
        phase=status.get("phase", "Pending"),
        ready=conditions.get("Ready", {}).get("status") == "True",
        scheduled=scheduled.get("status") == "True" or bool(spec.get("nodeName")),
        obstacle=_obstacle(status, scheduled),
        created_at=seconds_of(metadata.get("creationTimestamp")) or 0.0,
        delete_by=seconds_of(metadata.get("deletionTimestamp")),
        finished_at=finished_at,
        end=end,
        disruption=_disruption(status, conditions),
        config=next((v["configMap"]["name"] for v in spec.get("volumes") or () if "configMap" in v), ""),
    )


def sort_children(
    run_uid: str, children: Iterable[Mapping[str, Any]]
) -> tuple[tuple[PodView, ...], dict[tuple[str, str], Object], frozenset[str]]:
    """Pods, other objects, and the remains of another run of the same name."""
    pods: list[PodView] = []
    objects: dict[tuple[str, str], Object] = {}
    remains: set[str] = set()
    for child in children:
        metadata = child["metadata"]
        owners = metadata.get("ownerReferences") or ()
        uid = (metadata.get("labels") or {}).get("webgym.io/run-uid")
        ours = any(owner.get("uid") == run_uid for owner in owners) or uid == run_uid
        # A StatefulSet's pod belongs to the StatefulSet. One of an earlier run is gone before that is.
        by_set = any(owner.get("kind") == "StatefulSet" for owner in owners)
        if child["kind"] == "Pod" and (ours or by_set):
            pods.append(parse_pod(child))
        elif ours:
            objects[child["kind"], metadata["name"]] = dict(child)
        elif owners:
            remains.add(f"{child['kind']}/{metadata['name']}")
    return tuple(_with_volumes(pod, objects) for pod in pods), objects, frozenset(remains)


def _with_volumes(pod: PodView, objects: Mapping[tuple[str, str], Object]) -> PodView:
    """The scheduler says that a pod waits for a volume; which one, and of which storage class, is added."""
    if "PersistentVolumeClaim" not in pod.obstacle:
        return pod
    waiting = [
        f"{name} of {_class_of(made)} is not bound, kubectl describe pvc {name} tells why"
        for (kind, name), made in sorted(objects.items())
        if kind == "PersistentVolumeClaim"
        and (made["metadata"].get("labels") or {}).get("webgym.io/role") == pod.role
        and (made.get("status") or {}).get("phase") == "Pending"
    ]
    return replace(pod, obstacle=f"{pod.obstacle} ({'; '.join(waiting)})") if waiting else pod


def _class_of(claim: Mapping[str, Any]) -> str:
    name = (claim.get("spec") or {}).get("storageClassName")
    if name is None:
        return "no storage class (spec.storage.storageClassName names none, and the cluster has no default)"
    return f"storage class {name}"


def _end(status: Mapping[str, Any]) -> tuple[ContainerEnd | None, float | None]:
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    found: tuple[ContainerEnd | None, float | None] = (None, None)
    for container in containers:
        ended = (container.get("state") or {}).get("terminated")
        if ended is None:
            continue
        end = ContainerEnd(
            int(ended.get("exitCode", 0)),
            ended.get("reason") or "",
            (ended.get("message") or "").strip(),
        )
        found = (end, seconds_of(ended.get("finishedAt")))
        if end.exit_code != 0:
            break
    return found


def _disruption(status: Mapping[str, Any], conditions: Mapping[str, Any]) -> str:
    target = conditions.get("DisruptionTarget", {})
    if target.get("status") == "True":
        return str(target.get("reason") or "DisruptionTarget")
    reason = status.get("reason") or ""
    return reason if reason in _DISRUPTIONS else ""


def _obstacle(status: Mapping[str, Any], scheduled: Mapping[str, Any]) -> str:
    if scheduled.get("status") == "False":
        return f"{scheduled.get('reason') or 'Unschedulable'}: {scheduled.get('message') or ''}"
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    for container in containers:
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in _WAITING:
            return f"{waiting['reason']}: {waiting.get('message') or container.get('image', '')}"
    return ""


def _number(text: object) -> int:
    return int(text) if isinstance(text, str) and text.isdecimal() else 0
