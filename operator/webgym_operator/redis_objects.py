"""The Redis that a run brings along: who may log in, what each may touch, and where it runs."""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from webgym.keys import Keys
from webgym_operator.ownership import owner_container
from webgym_operator.podspec import (
    CONTAINER_SECURITY,
    GRACE_SECONDS,
    REDIS_PORT,
    USER,
    pod_security,
)
from webgym_operator.run import Object, Run
from webgym_operator.settings import Settings
from webgym_operator.sizing import redis_size

__all__ = ["Passwords", "acl", "has_volume", "redis_objects"]

ROLES = ("learner", "worker", "operator")
_ACL_FOLDER, _DATA = "/etc/webgym-redis", "/data"
_VOLUME = "webgym.io/redis-volume"
"""Annotation of what :func:`has_volume` tells: the operator remembers no more of a StatefulSet than its metadata."""


@dataclass(frozen=True, repr=False)
class Passwords:
    """One password for each role that logs in."""

    learner: str
    worker: str
    operator: str

    @classmethod
    def generate(cls) -> Passwords:
        """New ones, 256 bits each, hexadecimal: a URL can hold them."""
        return cls(*(secrets.token_hex(32) for _ in ROLES))

    @classmethod
    def parse(cls, secret: Mapping[str, object]) -> Passwords | None:
        """Those of a Secret; None where it is damaged."""
        data = secret.get("data")
        if not isinstance(data, Mapping):
            return None
        found = []
        for role in ROLES:
            try:
                text = base64.b64decode(str(data.get(f"{role}-password", "")), validate=True).decode("ascii")
            except (binascii.Error, UnicodeDecodeError):
                return None
            if len(text) < 32 or not text.isalnum():
                return None
            found.append(text)
        return cls(*found)

    @property
    def fingerprint(self) -> str:
        """Tells whether pods hold these; gives nothing away."""
        text = f"{self.learner}{self.worker}{self.operator}"
        return hashlib.sha256(f"webgym passwords {text}".encode()).hexdigest()[:12]


def acl(uid: str, passwords: Passwords) -> str:
    """The server's users.

    A worker runs next to pages that nobody vouches for: it may read parameters and play episodes, but neither write
    parameters nor touch what the learner and the operator say.
    """
    keys = Keys(uid)
    everything = keys.everything
    common = "-@all +@connection"
    writes = "+@read +@write +@pubsub +@scripting -@admin -@dangerous -script|flush -script|kill +time +info"
    worker_reads = (keys.of("params:*"), keys.control, keys.progress)
    worker_writes = (
        *(keys.of("queue:*"), keys.results, keys.counters, keys.members),
        *(keys.experience, keys.of("experience:*"), keys.film, keys.of("film:*"), keys.of("turns:*")),
    )
    worker_keys = " ".join(
        [*(f"%R~{name}" for name in worker_reads), *(f"~{name}" for name in worker_writes)]
    )
    # The check of a server before a run, which may be made by any of them.
    probe = "~webgym:{probe}:* &webgym:{probe}:*"

    def user(role: str, rules: str) -> str:
        digest = hashlib.sha256(getattr(passwords, role).encode()).hexdigest()
        return f"user {role} on #{digest} resetkeys resetchannels {rules}"

    lines = [
        "user default off resetpass resetkeys resetchannels -@all",
        user("learner", f"~{everything} &{everything} {probe} {common} {writes}"),
        user("worker", f"{worker_keys} &{everything} {probe} {common} {writes}"),
        user("operator", f"%R~{everything} {common} +@read -@dangerous"),
    ]
    return "\n".join(lines) + "\n"


def redis_objects(run: Run, settings: Settings, passwords: Passwords, *, replicas: int) -> list[Object]:
    """Secret, volume, Service and StatefulSet, in the order in which they are wanted.

    Args:
        run: with a valid spec and no server of its own.
        settings: of the installation.
        passwords: in use.
        replicas: 1, or 0 while the run is suspended.
    """
    metadata: Object = {"name": run.redis_name, "namespace": run.namespace, "labels": run.labels("redis")}
    secret: Object = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": "Opaque",
        "data": {
            **{f"{role}-password": _base64(getattr(passwords, role)) for role in ROLES},
            "users.acl": _base64(acl(run.uid, passwords)),
        },
    }
    service: Object = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "type": "ClusterIP",
            "selector": run.selector("redis"),
            "ports": [{"name": "redis", "port": REDIS_PORT, "targetPort": "redis", "protocol": "TCP"}],
        },
    }
    claim: Object = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            # The file is rewritten beside the old one, and grows to twice the memory before it is.
            "resources": {
                "requests": {"storage": f"{max(1024, 4 * (int(run.spec.redis.max_memory) >> 20))}Mi"}
            },
            **_storage_class(run),
        },
    }
    objects = [secret, service, _stateful_set(run, settings, passwords, replicas)]
    return [claim, *objects] if settings.redis_persistent else objects


def has_volume(stateful_set: Object) -> bool | None:
    """Whether what a Redis holds that was made before outlives its pod; None where that is not noted on it."""
    noted = (stateful_set["metadata"].get("annotations") or {}).get(_VOLUME)
    return None if noted is None else noted == "true"


def _storage_class(run: Run) -> Object:
    name = run.spec.storage.storage_class_name
    return {} if name is None else {"storageClassName": name}


def _stateful_set(run: Run, settings: Settings, passwords: Passwords, replicas: int) -> Object:
    data: Object = (
        {"persistentVolumeClaim": {"claimName": run.redis_name}}
        if settings.redis_persistent
        else {"emptyDir": {}}
    )
    port: Object = {"tcpSocket": {"port": "redis"}, "timeoutSeconds": 3}
    arguments = [
        *("--port", str(REDIS_PORT), "--bind", "*", "--protected-mode", "yes", "--daemonize", "no"),
        *("--aclfile", f"{_ACL_FOLDER}/users.acl", "--databases", "1", "--dir", _DATA, "--save", ""),
        *("--appendonly", "yes", "--appendfsync", "everysec"),
        *("--maxmemory", str(int(run.spec.redis.max_memory)), "--maxmemory-policy", "noeviction"),
    ]
    spec: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": pod_security({"type": "RuntimeDefault"}),
        "containers": [
            {
                "name": "redis",
                "image": settings.redis_image,
                "imagePullPolicy": settings.image_pull_policy,
                "command": ["valkey-server"],
                "args": arguments,
                "ports": [{"name": "redis", "containerPort": REDIS_PORT, "protocol": "TCP"}],
                "resources": redis_size(run.spec).as_object(),
                "startupProbe": {**port, "periodSeconds": 1, "failureThreshold": 300},
                "readinessProbe": {**port, "periodSeconds": 5},
                "livenessProbe": {**port, "periodSeconds": 15, "failureThreshold": 4},
                "securityContext": CONTAINER_SECURITY,
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "volumeMounts": [
                    {"name": "data", "mountPath": _DATA},
                    {"name": "users", "mountPath": _ACL_FOLDER, "readOnly": True},
                ],
            }
        ],
        "volumes": [
            {"name": "data", **data},
            {
                "name": "users",
                "secret": {
                    "secretName": run.redis_name,
                    # The server needs no password, only what it is compared with.
                    "items": [{"key": "users.acl", "path": "users.acl"}],
                },
            },
        ],
    }
    if settings.redis_persistent and settings.gives_volume(run.spec.storage.storage_class_name):
        spec["initContainers"] = [
            owner_container(settings.redis_image, settings.image_pull_policy, USER, "data", _DATA)
        ]
    if settings.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in settings.image_pull_secrets]
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": run.redis_name,
            "namespace": run.namespace,
            "labels": run.labels("redis"),
            "annotations": {_VOLUME: str(settings.redis_persistent).lower()},
        },
        "spec": {
            "replicas": replicas,
            "serviceName": run.redis_name,
            "selector": {"matchLabels": run.selector("redis")},
            "template": {
                "metadata": {
                    "labels": run.labels("redis"),
                    # A file of users is read at the start alone: other passwords mean another server.
                    "annotations": {"webgym.io/passwords": passwords.fingerprint},
                },
                "spec": spec,
            },
        },
    }


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
