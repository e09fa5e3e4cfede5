"""What a run consists of on a cluster: pure functions from its spec to Kubernetes objects."""

from __future__ import annotations

import copy
import hashlib
import json
from dataclasses import dataclass

from webgym_operator.network import network_policies
from webgym_operator.podspec import (
    METRICS_PORT,
    RANK_PORT,
    learner_pod,
    manifest_text,
    template_hash,
    worker_pod,
)
from webgym_operator.redis_objects import Passwords, redis_objects
from webgym_operator.run import Object, Run
from webgym_operator.settings import Settings

__all__ = ["APPLIED", "CHILD_KINDS", "PodTemplate", "config_map", "pod_template", "support_objects"]

APPLIED = "webgym.io/applied"
"""Annotation: hash of the object as it was last applied, which tells whether it has to be applied again."""

CHILD_KINDS = {
    "Pod": ("v1", "pods"),
    "Secret": ("v1", "secrets"),
    "ConfigMap": ("v1", "configmaps"),
    "Service": ("v1", "services"),
    "PersistentVolumeClaim": ("v1", "persistentvolumeclaims"),
    "StatefulSet": ("apps/v1", "statefulsets"),
    "NetworkPolicy": ("networking.k8s.io/v1", "networkpolicies"),
    "PodDisruptionBudget": ("policy/v1", "poddisruptionbudgets"),
}
"""Kind to API version and plural of everything that is made for a run."""


@dataclass(frozen=True)
class PodTemplate:
    """What the pods of one role have in common at the present spec."""

    run: Run
    settings: Settings
    role: str
    config: str
    hash: str

    def pod(self, slot: int, incarnation: int) -> Object:
        """The pod of one slot; for learners the slot is their rank."""
        if self.role == "worker":
            return worker_pod(
                self.run,
                self.settings,
                slot=slot,
                incarnation=incarnation,
                config=self.config,
                template=self.hash,
            )
        return learner_pod(
            self.run,
            self.settings,
            rank=slot,
            incarnation=incarnation,
            config=self.config,
            template=self.hash,
        )


def pod_template(run: Run, settings: Settings, role: str, config: str, secret: str) -> PodTemplate:
    """The template of a role; its hash takes in the pod, the part of the manifest that the role reads, and passwords.

    Args:
        run: with a valid spec.
        settings: of the installation.
        role: worker or learner.
        config: name of the ConfigMap with the manifest, which is not part of the hash.
        secret: fingerprint of the passwords; empty where the run brings no Redis.
    """
    bare = PodTemplate(run, settings, role, "", "")
    return PodTemplate(run, settings, role, config, template_hash(run, role, bare.pod(0, 0)["spec"], secret))


def config_map(run: Run, workers: int) -> Object:
    """The manifest that programs read. Named by its content and never changed: a pod reads what it was made with."""
    text = manifest_text(run, workers)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return _finished(
        run,
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": f"{run.name}-{digest}",
                "namespace": run.namespace,
                "labels": run.labels("manifest"),
            },
            "immutable": True,
            "data": {"run.yaml": text},
        },
    )


def support_objects(
    run: Run,
    settings: Settings,
    passwords: Passwords | None,
    *,
    workers: int,
    redis_replicas: int = 1,
    disruption_budgets: bool = True,
) -> list[Object]:
    """Everything but pods and their manifest, in the order in which it is wanted.

    Args:
        run: with a valid spec.
        settings: of the installation.
        passwords: of the run's own Redis; None where it brings none.
        workers: how many there are to be.
        redis_replicas: 0 while the run is suspended.
        disruption_budgets: whether the server knows policy/v1.
    """
    objects: list[Object] = []
    if passwords is not None:
        objects += redis_objects(run, settings, passwords, replicas=redis_replicas)
    objects += network_policies(run, settings)
    objects.append(_learner_service(run))
    claim = _claim(run)
    if claim is not None:
        objects.append(claim)
    if disruption_budgets:
        objects.append(_disruption_budget(run, workers))
    return [_finished(run, one) for one in objects]


def _claim(run: Run) -> Object | None:
    storage = run.spec.storage
    if storage.existing_claim is not None:
        return None
    spec: Object = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": str(storage.size)}},
    }
    if storage.storage_class_name is not None:
        spec["storageClassName"] = storage.storage_class_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": run.claim_name,
            "namespace": run.namespace,
            "labels": {**run.labels("learner"), "webgym.io/run-uid": run.uid},
            # Without an owner it outlives the run.
            **({"ownerReferences": []} if storage.retain else {}),
        },
        "spec": spec,
    }


def _learner_service(run: Run) -> Object:
    ports: list[Object] = [
        {"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics", "protocol": "TCP"}
    ]
    if run.spec.learner.replicas > 1:
        ports.append({"name": "ranks", "port": RANK_PORT, "targetPort": "ranks", "protocol": "TCP"})
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": run.learner_name,
            "namespace": run.namespace,
            "labels": run.labels("learner"),
        },
        "spec": {
            "clusterIP": "None",
            # Ranks look for each other before any of them is ready.
            "publishNotReadyAddresses": True,
            "selector": run.selector("learner"),
            "ports": ports,
        },
    }


def _disruption_budget(run: Run, workers: int) -> Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": run.worker_name,
            "namespace": run.namespace,
            "labels": run.labels("worker"),
        },
        "spec": {
            # A number and not maxUnavailable, which the cluster cannot work out for pods that it does not count itself.
            "minAvailable": workers // 2,
            "selector": {"matchLabels": run.selector("worker")},
        },
    }


def _finished(run: Run, made: Object) -> Object:
    """With its owner, unless it is to have none, and with the hash of all that is in it."""
    made = copy.deepcopy(made)
    metadata = made["metadata"]
    if "ownerReferences" not in metadata:
        metadata["ownerReferences"] = [run.owner()]
    digest = hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()[:16]
    metadata.setdefault("annotations", {})[APPLIED] = digest
    return made
