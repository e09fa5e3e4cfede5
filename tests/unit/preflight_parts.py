"""What ``webgym submit --dry-run`` looks at: a run's needs, a node, a storage class, an operator."""

from __future__ import annotations

from typing import Any

from operator_runs import SETTINGS, make_run

from webgym_operator.client.preflight.estimate import Needs, needs_of
from webgym_operator.client.preflight.finding import Finding
from webgym_operator.run import Object

SMALL = {
    "workers": {"maxBrowsers": 3, "memoryPerBrowser": "1Gi", "resources": {"requests": {"cpu": "2"}}},
    "learner": {"replay": {"capacityBytes": "512Mi"}},
}


def needs(spec: dict[str, Any] | None = None) -> Needs:
    run = make_run({**SMALL, **(spec or {})})
    assert run.manifest is not None
    return needs_of(run.manifest, "lab", SETTINGS)


def node(name: str = "n", cpu: str = "16", memory: str = "64Gi", **more: Any) -> Object:
    images = more.pop("images", ["docker.io/library/worker:1", "learner:1", "docker.io/library/redis:1"])
    allocatable = {"cpu": cpu, "memory": memory, "pods": "110", **more.pop("resources", {})}
    return {
        "metadata": {"name": name, "namespace": "", "uid": name, "labels": more.pop("labels", {})},
        "spec": more,
        "status": {
            "allocatable": allocatable,
            "conditions": [{"type": "Ready", "status": "True"}],
            "images": [{"names": [image]} for image in images],
        },
    }


def level(findings: list[Finding], subject: str) -> tuple[str, str]:
    return next((f.level, f"{f.text}; {f.mend}") for f in findings if f.subject == subject)


# --- images, storage, references -------------------------------------------------------------------------------------


def storage_class(name: str, *, default: bool = False) -> Object:
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    return {"metadata": {"name": name, "annotations": annotations}}


# --- the operator ----------------------------------------------------------------------------------------------------


def deployment(*, alive: bool = True, watches: str = "", name: str = "webgym") -> Object:
    environment = {
        "WEBGYM_WORKER_IMAGE": "worker:1",
        "WEBGYM_LEARNER_IMAGE": "learner:1",
        "WEBGYM_REDIS_IMAGE": "redis:1",
        "WEBGYM_WATCH_NAMESPACES": watches,
        "WEBGYM_IMAGE_PULL_POLICY": "Never",
    }
    listed: list[Object] = [{"name": key, "value": value} for key, value in environment.items()]
    listed.append(
        {"name": "WEBGYM_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}
    )
    labels = {"app.kubernetes.io/name": "webgym", "app.kubernetes.io/component": "operator"}
    return {
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "webgym", "uid": name, "labels": labels},
        "spec": {"template": {"spec": {"containers": [{"name": "operator", "env": listed}]}}},
        "status": {"availableReplicas": 1} if alive else {},
    }
