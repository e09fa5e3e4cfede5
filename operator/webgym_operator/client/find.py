"""Finding a run by its name, and saying where else it may be when it is not there."""

from __future__ import annotations

import difflib

from webgym.errors import UsageError
from webgym.spec import KIND
from webgym_operator.client.access import Cluster
from webgym_operator.client.refusal import ClusterError
from webgym_operator.run import Object

__all__ = ["find_run"]


def find_run(cluster: Cluster, name: str) -> Object:
    """The run of that name, as the server has it.

    Raises:
        UsageError: there is none; the message names the nearest.
        ClusterError: refused, or not reached.
    """
    try:
        return cluster.get(KIND, name)
    except ClusterError as error:
        if error.status != 404 or error.reason == "NoDefinition":
            raise
    raise _not_there(cluster, name)


def _not_there(cluster: Cluster, name: str) -> UsageError:
    here = f"there is no run {name} in namespace {cluster.namespace}"
    if _lacks_namespace(cluster):
        return UsageError(f"there is no namespace {cluster.namespace} in the cluster of {cluster.where}")
    elsewhere = _namespaces_of(cluster, name)
    if elsewhere:
        return UsageError(f"{here}, but one in {' and '.join(elsewhere)}: add --namespace {elsewhere[0]}")
    names = [run["metadata"]["name"] for run in cluster.list(KIND)]
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return UsageError(f"{here}; did you mean {close[0]}?")
    remains = cluster.list("PersistentVolumeClaim", selector=f"webgym.io/run={name}")
    if remains:
        volumes = ", ".join(claim["metadata"]["name"] for claim in remains)
        return UsageError(f"{here} any more; its volume is still there: {volumes}")
    if not names:
        return UsageError(f"{here}, nor any other; --namespace names another namespace")
    listed = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return UsageError(f"{here}; there {'are' if len(names) > 1 else 'is'} {listed}")


def _lacks_namespace(cluster: Cluster) -> bool:
    try:
        cluster.get("Namespace", cluster.namespace, "")
    except ClusterError as error:
        return error.status == 404
    return False


def _namespaces_of(cluster: Cluster, name: str) -> list[str]:
    """Where else a run of that name is, as far as the caller may look."""
    try:
        runs = cluster.list(KIND, namespace="")
    except ClusterError:
        return []
    return sorted(run["metadata"]["namespace"] for run in runs if run["metadata"]["name"] == name)
