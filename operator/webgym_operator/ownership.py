"""Volumes that come owned by root: who gives them to the user of our pods.

Drivers of volumes do that by ``fsGroup``. A few provisioners, those of plain folders of a node above all, do not, and
without more a pod that is not root could not write there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from webgym_operator.run import Object

__all__ = ["owner_container", "root_owned_classes"]

_WITHOUT_GROUP = frozenset({"kubernetes.io/host-path"})
"""Provisioners that make folders of root and ignore ``fsGroup``."""
_IS_DEFAULT = "storageclass.kubernetes.io/is-default-class"


def root_owned_classes(classes: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Names of the storage classes whose volumes stay root's; the empty name stands for the default class."""
    found: set[str] = set()
    for one in classes:
        if one.get("provisioner") in _WITHOUT_GROUP:
            metadata = one["metadata"]
            found.add(metadata["name"])
            if (metadata.get("annotations") or {}).get(_IS_DEFAULT) == "true":
                found.add("")
    return frozenset(found)


def owner_container(image: str, pull_policy: str, user: int, volume: str, folder: str) -> Object:
    """A container that runs before the others, as root with the right to change owners and no other.

    Args:
        image: any that has ``chown``.
        pull_policy: of the image.
        user: who is to have the volume; also the group.
        volume: its name in the pod.
        folder: where it is mounted.
    """
    return {
        "name": "owner",
        "image": image,
        "imagePullPolicy": pull_policy,
        "command": ["chown", f"{user}:{user}", folder],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], "add": ["CHOWN"]},
            "privileged": False,
            "readOnlyRootFilesystem": True,
            "runAsGroup": 0,
            "runAsNonRoot": False,
            "runAsUser": 0,
        },
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": volume, "mountPath": folder}],
    }
