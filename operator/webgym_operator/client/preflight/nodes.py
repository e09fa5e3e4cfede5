"""Which nodes can take a run's pods: by labels and taints, by size, and by what is free at the moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from webgym_operator.client.preflight.estimate import Amounts, PodNeed, amount_text, amounts, pod_amounts
from webgym_operator.client.preflight.finding import Finding, bad, good, warn

__all__ = ["NodeView", "fitting_nodes", "node_findings", "parse_nodes"]

_ZERO = Decimal(0)
_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True)
class NodeView:
    """A node as the scheduler sees it."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Mapping[str, Any], ...]
    ready: bool
    allocatable: Amounts
    free: Amounts
    """Allocatable less the requests of the pods there."""
    images: frozenset[str]
    """Names of images that it has, as far as it lists them (50 at most, by default)."""
    lists_all_images: bool = True


def parse_nodes(
    nodes: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]] | None
) -> list[NodeView]:
    """Nodes and what is free on them.

    Args:
        nodes: of the API server.
        pods: of all namespaces; None where they are not known, and everything counts as free.
    """
    used: dict[str, Amounts] = {}
    for pod in pods or ():
        node = (pod.get("spec") or {}).get("nodeName")
        if not node or (pod.get("status") or {}).get("phase") in _ENDED:
            continue
        there = used.setdefault(node, {})
        for name, amount in (pod_amounts(pod["spec"], "requests") | {"pods": Decimal(1)}).items():
            there[name] = there.get(name, _ZERO) + amount
    return [_view(node, used.get(node["metadata"]["name"], {})) for node in nodes]


def _view(node: Mapping[str, Any], used: Amounts) -> NodeView:
    spec, status = node.get("spec") or {}, node.get("status") or {}
    conditions = {c.get("type"): c.get("status") for c in status.get("conditions") or ()}
    taints = list(spec.get("taints") or ())
    if spec.get("unschedulable") and not any(
        t.get("key") == "node.kubernetes.io/unschedulable" for t in taints
    ):
        taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
    allocatable = amounts(status.get("allocatable") or {})
    images = status.get("images") or ()
    return NodeView(
        name=node["metadata"]["name"],
        labels=node["metadata"].get("labels") or {},
        taints=tuple(taints),
        ready=conditions.get("Ready") == "True",
        allocatable=allocatable,
        free={name: amount - used.get(name, _ZERO) for name, amount in allocatable.items()},
        images=frozenset(name for image in images for name in image.get("names") or ()),
        lists_all_images=len(images) < 50,
    )


def _refuses(node: NodeView, spec: Mapping[str, Any]) -> str:
    """Why a node never takes such a pod, however empty it is; empty where it may."""
    if not node.ready:
        return "is not ready"
    for key, value in (spec.get("nodeSelector") or {}).items():
        if node.labels.get(key) != value:
            return f"lacks the label {key}={value}"
    for taint in node.taints:
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not any(
            _tolerates(one, taint) for one in spec.get("tolerations") or ()
        ):
            value = f"={taint['value']}" if taint.get("value") else ""
            return f"has the taint {taint.get('key')}{value}:{taint['effect']}"
    return ""


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    key = toleration.get("key") or ""
    if toleration.get("operator") == "Exists":
        return key in ("", taint.get("key"))
    return key == taint.get("key") and (toleration.get("value") or "") == (taint.get("value") or "")


def _lacks(there: Amounts, requests: Amounts) -> list[str]:
    return [name for name, amount in requests.items() if amount > there.get(name, _ZERO)]


def fitting_nodes(nodes: Iterable[NodeView], spec: Mapping[str, Any]) -> list[NodeView]:
    """Nodes that labels and taints let a pod onto."""
    return [node for node in nodes if not _refuses(node, spec)]


def node_findings(nodes: Sequence[NodeView], pods: Sequence[PodNeed], *, autoscaled: bool) -> list[Finding]:
    """For each kind of pods, where it can run.

    Args:
        nodes: of the cluster.
        pods: wanted, those first that have to be placed first.
        autoscaled: whether something adds nodes when pods cannot be placed.
    """
    findings = [_impossible(nodes, need, autoscaled=autoscaled) for need in pods]
    now = {node.name: dict(node.free) for node in nodes}
    most = _most(nodes, [need for need, wrong in zip(pods, findings, strict=True) if wrong is None])
    for at, need in enumerate(pods):
        if findings[at] is None:
            allowed = fitting_nodes(nodes, need.spec)
            short = _short(allowed, need, now)
            placed = _place(allowed, need, need.count, now, tight=False)
            findings[at] = _placing(need, placed, most[need.role], short, autoscaled=autoscaled)
    return [finding for finding in findings if finding is not None]


def _impossible(nodes: Sequence[NodeView], need: PodNeed, *, autoscaled: bool) -> Finding | None:
    """That no node can ever take such a pod; None where one can."""
    subject = f"{need.role} nodes"
    allowed = fitting_nodes(nodes, need.spec)
    say = warn if autoscaled else bad
    unless = "; an autoscaler may add nodes that can" if autoscaled else ""
    if not allowed:
        why = Counter(_refuses(node, need.spec) for node in nodes)
        reasons = ", ".join(f"{count} {reason}" for reason, count in why.most_common(3)) or "there is none"
        part = "learner" if need.role == "learner" else "workers"
        mend = f"correct spec.{part}.nodeSelector and tolerations, or label a node"
        if need.role == "redis":
            mend = "Redis goes to nodes without taints: keep one, or name a server in redis.url"
        return say(subject, f"no node takes a {need.role} pod: of {len(nodes)}, {reasons}{unless}", mend)
    if not all(_lacks(node.allocatable, need.requests) for node in allowed):
        return None
    short = Counter(name for node in allowed for name in _lacks(node.allocatable, need.requests))
    name = max(short, key=lambda n: (short[n], n))
    largest = max((node.allocatable.get(name, _ZERO) for node in allowed), default=_ZERO)
    text = (
        f"a {need.role} pod asks for {amount_text(name, need.requests[name])}, and the largest node that would take it "
        f"has {amount_text(name, largest)}{unless}"
    )
    return say(subject, text, _smaller(need.role, name))


def _smaller(role: str, resource: str) -> str:
    if resource not in ("cpu", "memory", "pods"):
        return f"a node with {resource} and its device plugin is needed; or leave it out of spec.{role}.resources"
    return {
        "worker": "lower spec.workers.maxBrowsers, memoryPerBrowser or resources, and raise replicas instead",
        "learner": "lower spec.learner.replay.capacityBytes, threads or resources",
    }.get(role, "lower spec.redis.maxMemory")


def _most(nodes: Sequence[NodeView], pods: Sequence[PodNeed]) -> dict[str, int]:
    """By role: how many pods nodes could hold if nothing but the run were there, and it was placed well.

    One of each kind comes first, for without it there is no run; large ones before small ones, onto nodes that they
    fill best. If that leaves no room for one of a kind, it is told of the last in the order of `pods`.
    """
    by_size = sorted(pods, key=lambda need: need.requests.get("cpu", _ZERO), reverse=True)
    found = _packed(nodes, by_size)
    return found if all(found[need.role] for need in pods if need.count) else _packed(nodes, pods)


def _packed(nodes: Sequence[NodeView], pods: Sequence[PodNeed]) -> Counter[str]:
    free = {node.name: dict(node.allocatable) for node in nodes}
    found: Counter[str] = Counter()
    for rest in (False, True):
        for need in pods:
            count = need.count - 1 if rest else min(need.count, 1)
            placed = _place(fitting_nodes(nodes, need.spec), need, count, free, tight=True)
            found[need.role] += sum(placed.values())
    return found


def _place(
    allowed: Sequence[NodeView], need: PodNeed, count: int, free: dict[str, Amounts], *, tight: bool
) -> Counter[str]:
    """Place as many of so many pods as fit, taking from `free`; returns how many where.

    Args:
        allowed: nodes that take such a pod.
        need: the pods.
        count: how many.
        free: by node.
        tight: onto the fullest nodes; else spread, onto the emptiest, as schedulers do.
    """
    placed: Counter[str] = Counter()
    requests = need.requests
    for _ in range(count):
        able = [node.name for node in allowed if not _lacks(free[node.name], requests)]
        if not able:
            break
        if tight:
            name = min(able, key=lambda n: free[n].get("cpu", _ZERO))
        else:
            name = max(able, key=lambda n: (-placed[n], free[n].get("cpu", _ZERO)))
        placed[name] += 1
        for resource, amount in requests.items():
            free[name][resource] -= amount
    return placed


def _short(allowed: Sequence[NodeView], need: PodNeed, free: Mapping[str, Amounts]) -> str:
    """What most nodes have too little of for one more pod; cpu where none is short of anything."""
    lacking = Counter(name for node in allowed for name in _lacks(free[node.name], need.requests))
    return max(lacking, key=lambda name: (lacking[name], name), default="cpu")


def _placing(need: PodNeed, placed: Counter[str], ever: int, short: str, *, autoscaled: bool) -> Finding:
    """How many pods can be placed.

    Args:
        need: the pods.
        placed: how many fit now, by node.
        ever: how many would fit beside the run's other pods if nothing else ran anywhere.
        short: the resource that there is too little of.
        autoscaled: whether something adds nodes.
    """
    subject = f"{need.role} nodes"
    count = sum(placed.values())
    where = ", ".join(f"{n} on {name}" if need.count > 1 else name for name, n in placed.most_common(3))
    where += ", ..." if len(placed) > 3 else ""
    each = " and ".join(amount_text(n, a) for n, a in sorted(need.requests.items()) if n != "pods")
    if count >= need.count:
        return good(subject, f"{need.count} of {each}: {where}" if need.count else "none wanted")
    many = f"{count} of {need.count} {need.role} pods fit now{f' ({where})' if where else ''}, each of {each}"
    mend = _smaller(need.role, short)
    if autoscaled:
        return warn(subject, f"{many}; an autoscaler adds nodes, or they wait", mend)
    if ever == 0:
        text = f"no {need.role} pod, of {each}, fits beside the run's other pods, even if nothing else ran"
        return bad(subject, text, mend)
    if ever < need.count:
        return warn(subject, f"{many}; more than {ever} never fit", mend)
    return warn(subject, f"{many}; they wait until there is room", mend)
