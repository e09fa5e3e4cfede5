"""The operator of a cluster, as its Deployment tells: whether it is alive, where it looks, which images it uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from webgym.errors import UsageError
from webgym_operator.client.access import Cluster
from webgym_operator.client.refusal import ClusterError
from webgym_operator.run import Object
from webgym_operator.settings import Settings

__all__ = ["Installation", "installation", "parse_installation"]

_SELECTOR = "app.kubernetes.io/name=webgym,app.kubernetes.io/component=operator"


@dataclass(frozen=True)
class Installation:
    """What is known of the operator that looks after a namespace."""

    settings: Settings | None = None
    """None where they are not known."""
    name: str = ""
    """Namespace and name of its Deployment; empty: none was found."""
    alive: bool = False
    trouble: str = ""
    """Why nothing is known, or what is wrong with it."""
    unsure: bool = False
    """Whether there may be an operator that the caller cannot see."""
    others: tuple[str, ...] = ()
    """Further operators that look after the same namespace."""


def installation(cluster: Cluster) -> Installation:
    """The operator that looks after the cluster's namespace, as far as the caller may see it."""
    try:
        found = cluster.list("Deployment", selector=_SELECTOR, namespace="")
        everywhere = True
    except ClusterError as error:
        if not error.by_rights:
            raise
        everywhere = False
        try:
            found = cluster.list("Deployment", selector=_SELECTOR)
        except ClusterError as refused:
            if not refused.by_rights:
                raise
            return Installation(trouble=error.brief, unsure=True)
    return choose(found, cluster.namespace, everywhere=everywhere)


def choose(deployments: list[Object], namespace: str, *, everywhere: bool) -> Installation:
    """Of several operators the one that looks after a namespace.

    Args:
        deployments: of operators.
        namespace: of the run.
        everywhere: whether these are all of the cluster.
    """
    parsed = [parse_installation(one) for one in deployments]
    fitting = [one for one in parsed if one.settings is None or _watches(one.settings, namespace)]
    if fitting:
        best = max(fitting, key=lambda one: (one.alive, one.settings is not None))
        others = tuple(one.name for one in fitting if one is not best)
        return Installation(best.settings, best.name, best.alive, best.trouble, False, others)
    if parsed:
        names = ", ".join(one.name for one in parsed)
        return Installation(
            trouble=f"{names} looks after other namespaces: add {namespace} to watchNamespaces of the chart",
            unsure=not everywhere,
        )
    return Installation(
        trouble="no operator is installed: helm install webgym charts/webgym --namespace webgym --create-namespace",
        unsure=not everywhere,
    )


def parse_installation(deployment: Mapping[str, Any]) -> Installation:
    """What a Deployment of the chart tells."""
    metadata, status = deployment["metadata"], deployment.get("status") or {}
    name = f"{metadata['namespace']}/{metadata['name']}"
    alive = bool(status.get("availableReplicas"))
    trouble = ""
    if not alive:
        conditions = {c.get("type"): c for c in status.get("conditions") or ()}
        available = conditions.get("Available", {})
        why = available.get("message") if available.get("status") == "False" else ""
        why = (
            "it is scaled to no pod"
            if deployment["spec"].get("replicas") == 0
            else why or "it has no ready pod"
        )
        trouble = f"{why}; kubectl logs -n {metadata['namespace']} deploy/{metadata['name']}"
    environment: dict[str, str] = {}
    for container in deployment["spec"]["template"]["spec"]["containers"]:
        for variable in container.get("env") or ():
            if "value" in variable:
                environment[variable["name"]] = str(variable["value"])
            elif "fieldRef" in (variable.get("valueFrom") or {}):
                environment[variable["name"]] = metadata["namespace"]
    try:
        return Installation(Settings.from_env(environment), name, alive, trouble)
    except UsageError as error:
        return Installation(None, name, alive, trouble or str(error))


def _watches(settings: Settings, namespace: str) -> bool:
    return not settings.watch_namespaces or namespace in settings.watch_namespaces
