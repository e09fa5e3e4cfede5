"""Pods of workers and learners: one container each, confined as far as a browser can bear."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from webgym.spec import PodSettings
from webgym_operator.ownership import owner_container
from webgym_operator.run import Object, Run
from webgym_operator.settings import Settings
from webgym_operator.sizing import browsers_per_worker, learner_size, shared_memory_bytes, worker_size

__all__ = [
    "GRACE_SECONDS",
    "METRICS_PORT",
    "REDIS_PORT",
    "TEMPLATE_LABEL",
    "USER",
    "learner_pod",
    "manifest_of_pods",
    "manifest_text",
    "pod_security",
    "template_hash",
    "worker_pod",
]

METRICS_PORT = 9090
REDIS_PORT = 6379
RANK_PORT = 29500
"""Where rank 0 of several learners gathers the others (torch.distributed)."""
USER = 10001
GRACE_SECONDS = 20
"""From SIGTERM to SIGKILL when a run is deleted. A single pod is given more when it is drained; see reconcile."""
TEMPLATE_LABEL = "webgym.io/template"
SPEC_FOLDER, RUN_FOLDER, DATA_FOLDER, TLS_FOLDER = (
    "/etc/webgym",
    "/run/webgym",
    "/var/lib/webgym",
    "/etc/webgym-redis",
)
LAST_WORD = f"{RUN_FOLDER}/last-word"

_UNREACHABLE_SECONDS = 30
"""How long a pod stays on a node that is lost, instead of the cluster's usual five minutes."""
_NOT_FOR_PROGRAMS = (
    "suspend",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "managedBy",
    "storage",
)
_POD_ONLY = ("image", "env", "resources", "nodeSelector", "tolerations")
_TRAINING_ONLY = (
    *("learningRate", "batchSize", "targetUpdateInterval", "gradientClip", "averageDecay", "replay"),
    *(
        "replayRatio",
        "publishInterval",
        "checkpoint",
        "device",
        "precision",
        "compile",
        "threads",
        "replicas",
    ),
)


def manifest_of_pods(run: Run, workers: int) -> Object:
    """The manifest that programs in pods read: without what concerns the operator alone.

    Args:
        run: with a valid spec.
        workers: how many there are to be; exploration is spread over that many.
    """
    data = run.data
    spec = data["spec"]
    for key in _NOT_FOR_PROGRAMS:
        spec.pop(key, None)
    for part in (spec["workers"], spec["learner"]):
        for key in _POD_ONLY:
            part.pop(key, None)
    spec["workers"].pop("autoscaling", None)
    spec["workers"]["replicas"] = workers
    spec["workers"]["maxBrowsers"] = browsers_per_worker(run.spec)
    tls = run.spec.redis.tls
    if tls is not None and tls.secret_name is not None:
        files = {"caFile": f"{TLS_FOLDER}/ca.crt"}
        if tls.server_name is not None:
            files["serverName"] = tls.server_name
        if run.client_certificate:
            files |= {"certFile": f"{TLS_FOLDER}/tls.crt", "keyFile": f"{TLS_FOLDER}/tls.key"}
        spec["redis"]["tls"] = files
    data["metadata"] = {"name": run.name, "namespace": run.namespace}
    return data


def manifest_text(run: Run, workers: int) -> str:
    """The same as text: JSON, which is YAML too, and written ten times faster."""
    return json.dumps(manifest_of_pods(run, workers), indent=1)


def template_hash(run: Run, role: str, pod_spec: Mapping[str, Any], secret: str) -> str:
    """Changes exactly when pods of that role have to be replaced.

    Args:
        run: with a valid spec.
        role: worker or learner.
        pod_spec: of slot 0, rendered.
        secret: fingerprint of the Redis passwords in use.
    """
    spec = manifest_of_pods(run, 0)["spec"]
    if role == "learner":
        # Its env and resources are in the pod; how many browsers there are is not its affair.
        spec.pop("workers")
    else:
        spec.pop("stop")
        spec.pop("evaluation")
        spec["learner"] = {k: v for k, v in spec["learner"].items() if k not in _TRAINING_ONLY}
    text = json.dumps([spec, pod_spec, secret], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def pod_security(seccomp: Mapping[str, str]) -> Object:
    """Security context of a pod."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": dict(seccomp),
    }


CONTAINER_SECURITY: Object = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "privileged": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
}


def worker_pod(
    run: Run, settings: Settings, *, slot: int, incarnation: int, config: str, template: str
) -> Object:
    """A worker pod.

    Args:
        run: with a valid spec.
        settings: of the installation.
        slot: its place among the workers.
        incarnation: how many pods the slot had before.
        config: name of the ConfigMap that holds the manifest.
        template: hash that tells whether the pod is of the present spec.
    """
    pod = _pod(run, settings, "worker", run.spec.workers, slot, incarnation, config, template)
    spec = pod["spec"]
    container = spec["containers"][0]
    container["resources"] = worker_size(run.spec).as_object()
    container["volumeMounts"] += [
        {"name": "data", "mountPath": DATA_FOLDER},
        {"name": "shm", "mountPath": "/dev/shm"},
    ]
    spec["volumes"] += [
        {"name": "data", "emptyDir": {"sizeLimit": "2Gi"}},
        {
            "name": "shm",
            "emptyDir": {"medium": "Memory", "sizeLimit": f"{shared_memory_bytes(run.spec) >> 20}Mi"},
        },
    ]
    container["env"].append({"name": "WEBGYM_OUT", "value": DATA_FOLDER})
    spec["securityContext"] = pod_security(settings.worker_seccomp)
    # Workers that share a node die together with it.
    spec["topologySpreadConstraints"] = [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": run.selector("worker")},
        }
    ]
    return pod


def learner_pod(
    run: Run, settings: Settings, *, rank: int, incarnation: int, config: str, template: str
) -> Object:
    """A learner pod; rank 0 has the volume, and the others meet it there.

    Args: as for :func:`worker_pod`, and
        rank: 0 up to learner.replicas - 1.
    """
    learner = run.spec.learner
    pod = _pod(run, settings, "learner", learner, rank, incarnation, config, template)
    spec = pod["spec"]
    container = spec["containers"][0]
    container["resources"] = learner_size(run.spec).as_object()
    container["volumeMounts"].append({"name": "data", "mountPath": DATA_FOLDER})
    out = f"{DATA_FOLDER}/{run.folder_name}"
    container["env"].append({"name": "WEBGYM_OUT", "value": out})
    claim: Object = {"persistentVolumeClaim": {"claimName": run.claim_name}}
    spec["volumes"].append({"name": "data", **(claim if rank == 0 else {"emptyDir": {}})})
    spec["subdomain"] = run.learner_name
    spec["initContainers"] = []
    storage = run.spec.storage
    existing = storage.existing_claim is not None
    if rank == 0 and settings.gives_volume(storage.storage_class_name, existing=existing):
        spec["initContainers"].append(
            owner_container(container["image"], settings.image_pull_policy, USER, "data", DATA_FOLDER)
        )
    spec["initContainers"].append(
        {
            "name": "folder",
            "image": container["image"],
            "imagePullPolicy": settings.image_pull_policy,
            "command": ["mkdir", "-p", out],
            "securityContext": CONTAINER_SECURITY,
            "resources": {
                "requests": {"cpu": "10m", "memory": "16Mi"},
                "limits": {"memory": "64Mi"},
            },
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "volumeMounts": [{"name": "data", "mountPath": DATA_FOLDER}],
        }
    )
    if learner.replicas > 1:
        container["ports"].append({"name": "ranks", "containerPort": RANK_PORT, "protocol": "TCP"})
        container["env"] += [
            {"name": "MASTER_ADDR", "value": f"learner-0.{run.learner_name}"},
            {"name": "MASTER_PORT", "value": str(RANK_PORT)},
            {"name": "WORLD_SIZE", "value": str(learner.replicas)},
            {"name": "RANK", "value": str(rank)},
        ]
    return pod


def _pod(
    run: Run,
    settings: Settings,
    role: str,
    part: PodSettings,
    slot: int,
    incarnation: int,
    config: str,
    template: str,
) -> Object:
    image = part.image or (settings.worker_image if role == "worker" else settings.learner_image)
    volumes: list[Object] = [
        {"name": "spec", "configMap": {"name": config}},
        {"name": "run", "emptyDir": {"sizeLimit": "16Mi"}},
        {"name": "tmp", "emptyDir": {"sizeLimit": "4Gi"}},
    ]
    mounts: list[Object] = [
        {"name": "spec", "mountPath": SPEC_FOLDER, "readOnly": True},
        {"name": "run", "mountPath": RUN_FOLDER},
        {"name": "tmp", "mountPath": "/tmp"},
    ]
    tls = run.spec.redis.tls
    if tls is not None and tls.secret_name is not None:
        volumes.append({"name": "redis-tls", "secret": {"secretName": tls.secret_name}})
        mounts.append({"name": "redis-tls", "mountPath": TLS_FOLDER, "readOnly": True})
    health: Object = {"httpGet": {"path": "/healthz", "port": "metrics"}, "timeoutSeconds": 5}
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": run.pod_name(role, slot, incarnation),
            "namespace": run.namespace,
            "labels": {
                **run.labels(role),
                "webgym.io/slot": str(slot),
                "webgym.io/incarnation": str(incarnation),
                TEMPLATE_LABEL: template,
            },
            "annotations": {
                # An episode in a browser would be lost; spot nodes and drains take pods all the same.
                "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
                "kubectl.kubernetes.io/default-container": role,
            },
            "ownerReferences": [run.owner()],
        },
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "restartPolicy": "Never",
            "hostname": f"{role}-{slot}",
            "terminationGracePeriodSeconds": GRACE_SECONDS,
            "securityContext": pod_security({"type": "RuntimeDefault"}),
            "containers": [
                {
                    "name": role,
                    "image": image,
                    "imagePullPolicy": settings.image_pull_policy,
                    "args": [role],
                    "env": [*_environment(run, role, slot), *_own_environment(part)],
                    "ports": [{"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"}],
                    "startupProbe": {**health, "periodSeconds": 2, "failureThreshold": 300},
                    "readinessProbe": {**health, "periodSeconds": 5, "failureThreshold": 2},
                    "livenessProbe": {**health, "periodSeconds": 15, "failureThreshold": 6},
                    "securityContext": CONTAINER_SECURITY,
                    "terminationMessagePath": LAST_WORD,
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                    "volumeMounts": mounts,
                }
            ],
            "volumes": volumes,
            "tolerations": [
                *(
                    {"key": f"node.kubernetes.io/{taint}", **_BRIEFLY}
                    for taint in ("not-ready", "unreachable")
                ),
                *(t.model_dump(mode="json", by_alias=True, exclude_none=True) for t in part.tolerations),
            ],
        },
    }
    if part.node_selector:
        pod["spec"]["nodeSelector"] = dict(part.node_selector)
    if settings.image_pull_secrets:
        pod["spec"]["imagePullSecrets"] = [{"name": name} for name in settings.image_pull_secrets]
    return pod


_BRIEFLY: Object = {
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": _UNREACHABLE_SECONDS,
}


def _environment(run: Run, role: str, slot: int) -> list[Object]:
    redis = run.spec.redis
    variables: list[Object] = []
    if redis.url is None:
        variables.append(_from_secret("WEBGYM_REDIS_PASSWORD", run.redis_name, f"{role}-password"))
        # The kubelet puts the password in; it is hexadecimal, so a URL can hold it as it is.
        url = f"redis://{role}:$(WEBGYM_REDIS_PASSWORD)@{run.redis_name}:{REDIS_PORT}/0"
    else:
        url = redis.url
        source = redis.password_from
        if source is not None and source.secret_key_ref is not None:
            ref = source.secret_key_ref
            variables.append(_from_secret("WEBGYM_REDIS_PASSWORD", ref.name, ref.key))
    values = {
        "WEBGYM_SPEC": f"{SPEC_FOLDER}/run.yaml",
        "WEBGYM_RUN_UID": run.uid,
        "WEBGYM_REDIS_URL": url,
        "WEBGYM_ID": f"{role}-{slot}",
        "WEBGYM_TERMINATION_LOG": LAST_WORD,
        "WEBGYM_METRICS_HOST": "0.0.0.0",
        "WEBGYM_METRICS_PORT": str(METRICS_PORT),
        "WEBGYM_LOG": "json",
        "HOME": "/tmp",
    }
    return variables + [{"name": name, "value": value} for name, value in values.items()]


def _from_secret(variable: str, name: str, key: str) -> Object:
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": name, "key": key}}}


def _own_environment(part: PodSettings) -> list[Object]:
    return [variable.model_dump(mode="json", by_alias=True, exclude_none=True) for variable in part.env]
