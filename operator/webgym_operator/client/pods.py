"""The pods of a run."""

from __future__ import annotations

from webgym_operator.client.access import Cluster
from webgym_operator.observed import PodView, parse_pod
from webgym_operator.run import Object

__all__ = ["ROLES", "pod_objects", "pods_of"]

ROLES = ("learner", "worker", "redis")
"""In the order in which people ask for them."""


def pod_objects(cluster: Cluster, run: str) -> list[Object]:
    """The pods of a run of that name, learners first, each role by slot and age."""
    found = cluster.list("Pod", selector=f"webgym.io/run={run}")
    return sorted(found, key=lambda body: _order(parse_pod(body)))


def pods_of(cluster: Cluster, run: str) -> list[PodView]:
    """The same, reduced to what matters."""
    return [parse_pod(body) for body in pod_objects(cluster, run)]


def _order(pod: PodView) -> tuple[object, ...]:
    role = ROLES.index(pod.role) if pod.role in ROLES else len(ROLES)
    return role, pod.slot, pod.incarnation, pod.name
