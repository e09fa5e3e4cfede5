"""What whoever installs the operator decides, for all runs: images, scope, security, timing."""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from webgym.errors import UsageError

__all__ = ["PRIVATE_NETWORKS", "Settings"]

PRIVATE_NETWORKS = (
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "100.64.0.0/10",
    "169.254.0.0/16",
    "fc00::/7",
    "fe80::/10",
)
"""What pages may never reach: private, shared, link-local."""

_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_OWNERSHIPS = ("Auto", "Always", "Never")


@dataclass(frozen=True)
class Settings:
    """Settings of one installation; :meth:`from_env` reads those that the chart sets."""

    worker_image: str
    """``WEBGYM_WORKER_IMAGE``: image of worker pods whose run names none."""
    learner_image: str
    """``WEBGYM_LEARNER_IMAGE``: likewise of learner pods."""
    redis_image: str
    """``WEBGYM_REDIS_IMAGE``: image with ``valkey-server`` on its PATH."""
    namespace: str = "default"
    """``WEBGYM_NAMESPACE``: where the operator itself runs; it alone may reach the Redis of each run."""
    watch_namespaces: tuple[str, ...] = ()
    """``WEBGYM_WATCH_NAMESPACES``: comma-separated; empty: the whole cluster."""
    image_pull_policy: str = "IfNotPresent"
    """``WEBGYM_IMAGE_PULL_POLICY``."""
    image_pull_secrets: tuple[str, ...] = ()
    """``WEBGYM_IMAGE_PULL_SECRETS``: comma-separated names of Secrets in the namespaces of the runs."""
    private_networks: tuple[str, ...] = PRIVATE_NETWORKS
    """:data:`PRIVATE_NETWORKS`, and ``WEBGYM_PRIVATE_NETWORKS``: comma-separated further networks that pages may not
    reach, such as a cluster's pods and Services with public addresses."""
    worker_seccomp: Mapping[str, str] = field(default_factory=lambda: {"type": "RuntimeDefault"})
    """``WEBGYM_WORKER_SECCOMP``: JSON, the seccomp profile of worker pods. Chromium's own sandbox needs user
    namespaces, which the default profile of most container runtimes forbids."""
    redis_persistent: bool = True
    """``WEBGYM_REDIS_PERSISTENT``: whether the append-only file lies on a volume of its own, or ends with the pod."""
    volume_ownership: str = "Auto"
    """``WEBGYM_VOLUME_OWNERSHIP``: whether a container of root's gives a new volume to the pods' user first: Always,
    Never, or Auto, where its storage class is known to leave it to root."""
    root_owned_classes: frozenset[str] = frozenset()
    """Storage classes that are known for that; see :func:`webgym_operator.ownership.root_owned_classes`."""
    metrics_host: str = "0.0.0.0"
    """``WEBGYM_METRICS_HOST``."""
    metrics_port: int = 8080
    """``WEBGYM_METRICS_PORT``: where the operator serves /healthz and /metrics."""
    resync_seconds: float = 30.0
    """``WEBGYM_RESYNC_SECONDS``: between two looks at everything, whatever was or was not heard meanwhile."""
    status_seconds: float = 10.0
    """``WEBGYM_STATUS_SECONDS``: least time between two writes of a run's figures."""

    def gives_volume(self, storage_class: str | None, *, existing: bool = False) -> bool:
        """Whether a volume has to be given to the pods' user by a container of root's.

        Args:
            storage_class: of the claim; None for the cluster's default.
            existing: the claim is the user's, of a class that nobody told.
        """
        if self.volume_ownership == "Auto":
            return not existing and (storage_class or "") in self.root_owned_classes
        return self.volume_ownership == "Always"

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> Settings:
        """Read and check the environment.

        Raises:
            UsageError: a variable is missing or wrong; the message names it.
        """

        def required(name: str, meaning: str) -> str:
            value = environ.get(name, "").strip()
            if not value:
                raise UsageError(f"environment variable {name} is not set: it must hold {meaning}")
            return value

        def listed(name: str) -> tuple[str, ...]:
            return tuple(part.strip() for part in environ.get(name, "").split(",") if part.strip())

        policy = environ.get("WEBGYM_IMAGE_PULL_POLICY") or "IfNotPresent"
        if policy not in _PULL_POLICIES:
            raise UsageError(
                f"environment variable WEBGYM_IMAGE_PULL_POLICY is {policy!r}: "
                f"it must be one of {', '.join(_PULL_POLICIES)}"
            )
        ownership = environ.get("WEBGYM_VOLUME_OWNERSHIP") or "Auto"
        if ownership not in _OWNERSHIPS:
            raise UsageError(
                f"environment variable WEBGYM_VOLUME_OWNERSHIP is {ownership!r}: "
                f"it must be one of {', '.join(_OWNERSHIPS)}"
            )
        further = listed("WEBGYM_PRIVATE_NETWORKS")
        for network in further:
            try:
                ipaddress.ip_network(network)
            except ValueError as error:
                raise UsageError(f"environment variable WEBGYM_PRIVATE_NETWORKS: {error}") from None
        return cls(
            worker_image=required("WEBGYM_WORKER_IMAGE", "the image of worker pods"),
            learner_image=required("WEBGYM_LEARNER_IMAGE", "the image of learner pods"),
            redis_image=required("WEBGYM_REDIS_IMAGE", "the image of the Redis pods"),
            namespace=environ.get("WEBGYM_NAMESPACE") or "default",
            watch_namespaces=listed("WEBGYM_WATCH_NAMESPACES"),
            image_pull_policy=policy,
            image_pull_secrets=listed("WEBGYM_IMAGE_PULL_SECRETS"),
            private_networks=tuple(dict.fromkeys((*PRIVATE_NETWORKS, *further))),
            worker_seccomp=_seccomp(environ.get("WEBGYM_WORKER_SECCOMP", "")),
            redis_persistent=_boolean(environ, "WEBGYM_REDIS_PERSISTENT", default=True),
            volume_ownership=ownership,
            metrics_host=environ.get("WEBGYM_METRICS_HOST") or "0.0.0.0",
            metrics_port=int(_number(environ, "WEBGYM_METRICS_PORT", 8080, 0, 65535)),
            resync_seconds=_number(environ, "WEBGYM_RESYNC_SECONDS", 30, 1, 3600),
            status_seconds=_number(environ, "WEBGYM_STATUS_SECONDS", 10, 1, 3600),
        )


def _seccomp(text: str) -> Mapping[str, str]:
    if not text:
        return {"type": "RuntimeDefault"}
    wrong = UsageError(
        f"environment variable WEBGYM_WORKER_SECCOMP is {text!r}: it must be JSON such as "
        '{"type": "RuntimeDefault"} or {"type": "Localhost", "localhostProfile": "chromium.json"}'
    )
    try:
        profile: Any = json.loads(text)
    except ValueError:
        raise wrong from None
    if not isinstance(profile, dict) or profile.get("type") not in (
        "RuntimeDefault",
        "Localhost",
        "Unconfined",
    ):
        raise wrong
    if (profile["type"] == "Localhost") != bool(profile.get("localhostProfile")):
        raise wrong
    return {key: str(value) for key, value in profile.items() if key in ("type", "localhostProfile")}


def _number(environ: Mapping[str, str], name: str, default: float, least: float, most: float) -> float:
    text = environ.get(name) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not least <= value <= most:
        raise UsageError(
            f"environment variable {name} is {text!r}: it must be a number from {least:g} to {most:g}"
        )
    return value


def _boolean(environ: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = environ.get(name) or str(default)
    if text.lower() not in ("true", "false"):
        raise UsageError(f"environment variable {name} is {text!r}: it must be true or false")
    return text.lower() == "true"
