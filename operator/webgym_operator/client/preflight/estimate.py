"""What a run asks of a cluster, by the functions with which the operator makes its pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from webgym.spec import Quantity, RunManifest
from webgym_operator.client.preflight.finding import Finding, good
from webgym_operator.podspec import learner_pod, worker_pod
from webgym_operator.redis_objects import Passwords, redis_objects
from webgym_operator.resources import support_objects
from webgym_operator.run import Object, Run
from webgym_operator.settings import Settings
from webgym_operator.sizing import browsers_per_worker

__all__ = ["Needs", "PodNeed", "amount_text", "amounts", "needs_of", "pod_amounts", "total", "total_finding"]

Amounts = dict[str, Decimal]
"""Resource to amount: cores, bytes, pieces."""

_NO_UID = "00000000-0000-0000-0000-000000000000"
_NO_PASSWORDS = Passwords("0" * 64, "0" * 64, "0" * 64)


@dataclass(frozen=True)
class PodNeed:
    """Pods of one kind."""

    role: str
    count: int
    pod: Object
    """One of them, as the operator would create it."""

    @property
    def spec(self) -> Mapping[str, Any]:
        """Of the pod."""
        spec: Mapping[str, Any] = self.pod["spec"]
        return spec

    @property
    def requests(self) -> Amounts:
        """Of one pod, the pod itself counted as ``pods``."""
        return pod_amounts(self.spec, "requests") | {"pods": Decimal(1)}

    @property
    def limits(self) -> Amounts:
        """Of one pod."""
        return pod_amounts(self.spec, "limits")


@dataclass(frozen=True)
class Needs:
    """Everything that a run needs at the start."""

    pods: tuple[PodNeed, ...]
    claims: tuple[Object, ...]
    objects: tuple[Object, ...]
    """All objects but pods."""
    browsers: int


def needs_of(manifest: RunManifest, namespace: str, settings: Settings) -> Needs:
    """What the operator would make first.

    Args:
        manifest: of the run.
        namespace: that it is submitted to.
        settings: of the operator.
    """
    run = Run(manifest.metadata.name, namespace, _NO_UID, manifest=manifest)
    spec = manifest.spec
    workers = spec.workers.replicas
    if spec.workers.autoscaling.mode == "Learner":
        workers = min(max(workers, spec.workers.autoscaling.min), spec.workers.autoscaling.max)
    made: dict[str, Any] = {"incarnation": 0, "config": f"{run.name}-00000000", "template": "0"}
    pods: list[PodNeed] = []
    passwords = None
    if spec.redis.url is None:
        passwords = _NO_PASSWORDS
        stateful = redis_objects(run, settings, passwords, replicas=1)[-1]
        template = stateful["spec"]["template"]
        pod = {"apiVersion": "v1", "kind": "Pod", **template}
        pod["metadata"] = {**template["metadata"], "name": f"{run.redis_name}-0", "namespace": namespace}
        pods.append(PodNeed("redis", 1, pod))
    pods.append(PodNeed("learner", spec.learner.replicas, learner_pod(run, settings, rank=0, **made)))
    pods.append(PodNeed("worker", workers, worker_pod(run, settings, slot=0, **made)))
    objects = support_objects(run, settings, passwords, workers=workers)
    return Needs(
        pods=tuple(pods),
        claims=tuple(one for one in objects if one["kind"] == "PersistentVolumeClaim"),
        objects=tuple(objects),
        browsers=workers * browsers_per_worker(spec),
    )


def amounts(written: Mapping[str, Any]) -> Amounts:
    """Quantities as numbers; what is none counts as nothing."""
    found: Amounts = {}
    for name, text in written.items():
        try:
            found[name] = Quantity(text if isinstance(text, int) else str(text)).value
        except ValueError:
            continue
    return found


def pod_amounts(spec: Mapping[str, Any], key: str) -> Amounts:
    """Requests or limits of a pod: the sum of its containers, or its largest init container, whichever is more."""
    summed: Amounts = {}
    for container in spec.get("containers") or ():
        for name, amount in amounts((container.get("resources") or {}).get(key) or {}).items():
            summed[name] = summed.get(name, Decimal(0)) + amount
    for container in spec.get("initContainers") or ():
        for name, amount in amounts((container.get("resources") or {}).get(key) or {}).items():
            summed[name] = max(summed.get(name, Decimal(0)), amount)
    for name, amount in amounts(spec.get("overhead") or {}).items():
        summed[name] = summed.get(name, Decimal(0)) + amount
    return summed


def total(pods: Iterable[PodNeed]) -> Amounts:
    """Requests of all pods."""
    summed: Amounts = {}
    for need in pods:
        for name, amount in need.requests.items():
            summed[name] = summed.get(name, Decimal(0)) + amount * need.count
    return summed


def amount_text(name: str, amount: Decimal) -> str:
    """An amount of a resource for people: 1.5 cpu, 6.2 GiB memory, 1 nvidia.com/gpu."""
    if name.rpartition(".")[2] in ("memory", "ephemeral-storage", "storage"):
        gib = amount / 2**30
        return f"{gib:.1f} GiB {name}" if gib >= 1 else f"{amount / 2**20:.0f} MiB {name}"
    return f"{amount.normalize():f} {name}"


def total_finding(needs: Needs) -> Finding:
    """How much the run asks for in all."""
    summed = total(needs.pods)
    storage = sum(
        (amounts(claim["spec"]["resources"]["requests"])["storage"] for claim in needs.claims), Decimal(0)
    )
    parts = [f"{needs.browsers} browser{'' if needs.browsers == 1 else 's'}"]
    parts += [
        f"{need.count} {need.role}{'' if need.count == 1 else 's'}"
        for need in needs.pods
        if need.role != "redis"
    ]
    asked: Sequence[str] = [name for name in ("cpu", "memory") if name in summed]
    asked = [*asked, *sorted(name for name in summed if name not in ("cpu", "memory", "pods"))]
    parts += [amount_text(name, summed[name]) for name in asked]
    if storage:
        parts.append(amount_text("storage", storage))
    return good("asks for", ", ".join(parts))
