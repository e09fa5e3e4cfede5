"""ResourceQuotas and LimitRanges of the namespace, held against what a run asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from webgym_operator.client.preflight.estimate import Amounts, Needs, PodNeed, amount_text, amounts
from webgym_operator.client.preflight.finding import Finding, bad, good

__all__ = ["limit_findings", "quota_findings"]

_ZERO = Decimal(0)
_PLURALS = {
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "Service": "services",
    "Secret": "secrets",
    "ConfigMap": "configmaps",
}


def quota_findings(
    quotas: Sequence[Mapping[str, Any]], ranges: Sequence[Mapping[str, Any]], needs: Needs
) -> list[Finding]:
    """Whether the run fits into what is left of the namespace's quotas.

    A quota for some pods alone (scopes, priority classes) is left to the server.

    Args:
        quotas: ResourceQuotas.
        ranges: LimitRanges, whose defaults fill in what a container does not say.
        needs: of the run.
    """
    defaults = _defaults(ranges)
    asked = _asked(needs, defaults)
    findings: list[Finding] = []
    for quota in quotas:
        name, spec, status = quota["metadata"]["name"], quota.get("spec") or {}, quota.get("status") or {}
        if spec.get("scopes") or spec.get("scopeSelector"):
            continue
        hard = amounts(status.get("hard") or spec.get("hard") or {})
        used = amounts(status.get("used") or {})
        wrong = [*_unsaid(name, hard, needs, defaults), *_exceeded(name, hard, used, asked)]
        findings += wrong or [good("quota", f"{name} has room for the run")]
    return findings


def _exceeded(quota: str, hard: Amounts, used: Amounts, asked: Amounts) -> Iterator[Finding]:
    for resource, most in hard.items():
        amount = asked.get(_canonical(resource), _ZERO)
        left = most - used.get(resource, _ZERO)
        if amount > left:
            yield bad(
                "quota",
                f"{quota} leaves {amount_text(resource, max(left, _ZERO))}, and the run asks for "
                f"{amount_text(resource, amount)}",
                "ask for a larger quota, end other runs, or lower spec.workers.replicas",
            )


def _unsaid(quota: str, hard: Amounts, needs: Needs, defaults: Mapping[str, Amounts]) -> Iterator[Finding]:
    """Under a quota for a resource, pods that do not say how much of it they want are refused."""
    for resource in hard:
        canonical = _canonical(resource)
        kind, _, name = canonical.partition(".")
        if kind not in ("requests", "limits") or name not in ("cpu", "memory"):
            continue
        for need in needs.pods:
            if need.count and any(name not in _of(one, kind, defaults) for one in _containers(need)):
                part = {"worker": "workers", "learner": "learner"}.get(need.role)
                mend = "have a LimitRange give a default to containers that say nothing"
                if part:
                    mend = f"give spec.{part}.resources.{kind}.{name}, or {mend}"
                yield bad(
                    "quota",
                    f"{quota} bounds {canonical}, of which {need.role} pods say nothing: they are refused",
                    mend,
                )


def limit_findings(ranges: Sequence[Mapping[str, Any]], needs: Needs) -> list[Finding]:
    """Whether containers, pods and volumes keep to the namespace's LimitRanges."""
    defaults = _defaults(ranges)
    findings: list[Finding] = []
    for one in ranges:
        name = one["metadata"]["name"]
        wrong: list[Finding] = []
        for rule in (one.get("spec") or {}).get("limits") or ():
            wrong += _broken(name, rule, needs, defaults)
        findings += wrong or [good("limits", f"{name} allows the run")]
    return findings


def _broken(
    name: str, rule: Mapping[str, Any], needs: Needs, defaults: Mapping[str, Amounts]
) -> Iterator[Finding]:
    least, most = amounts(rule.get("min") or {}), amounts(rule.get("max") or {})
    ratios = amounts(rule.get("maxLimitRequestRatio") or {})
    for who, requests, limits, mend in _subjects(rule.get("type"), needs, defaults):
        for resource, bound in least.items():
            if requests.get(resource, _ZERO) < bound:
                text = f"{name} wants at least {amount_text(resource, bound)} of {who}, which asks for"
                yield bad(
                    "limits",
                    f"{text} {amount_text(resource, requests.get(resource, _ZERO))}",
                    f"raise {mend}",
                )
        for resource, bound in most.items():
            given = max((of[resource] for of in (requests, limits) if resource in of), default=None)
            if given is None and rule.get("type") != "PersistentVolumeClaim":
                text = f"{name} bounds {resource}, for which {who} has no limit"
                yield bad("limits", text, f"give a limit in {mend}")
            elif given is not None and given > bound:
                text = f"{name} allows {amount_text(resource, bound)} to {who}, which asks for"
                yield bad("limits", f"{text} {amount_text(resource, given)}", f"lower {mend}")
        for resource, bound in ratios.items():
            low, high = requests.get(resource, _ZERO), limits.get(resource)
            if high is not None and (not low or high / low > bound):
                text = f"{name} allows a {resource} limit of {bound:f} times the request, and {who} has more"
                yield bad("limits", text, f"raise the request in {mend}")


def _subjects(
    kind: object, needs: Needs, defaults: Mapping[str, Amounts]
) -> Iterator[tuple[str, Amounts, Amounts, str]]:
    """Who a rule of a kind is for: words, requests, limits, and where they are said."""
    if kind == "PersistentVolumeClaim":
        for claim in needs.claims:
            size = amounts(claim["spec"]["resources"]["requests"])
            of_redis = claim["metadata"]["labels"].get("webgym.io/role") == "redis"
            yield (
                f"volume {claim['metadata']['name']}",
                size,
                size,
                "redis.maxMemory" if of_redis else "storage.size",
            )
        return
    for need in needs.pods:
        where = {"worker": "workers.resources", "learner": "learner.resources"}.get(
            need.role, "redis.maxMemory"
        )
        if kind == "Pod":
            yield f"a {need.role} pod", need.requests, need.limits, where
        elif kind == "Container":
            for container in _containers(need):
                requests, limits = _of(container, "requests", defaults), _of(container, "limits", defaults)
                yield f"container {container['name']} of a {need.role} pod", requests, limits, where


def _containers(need: PodNeed) -> list[Mapping[str, Any]]:
    return [*(need.spec.get("initContainers") or ()), *need.spec["containers"]]


def _defaults(ranges: Sequence[Mapping[str, Any]]) -> dict[str, Amounts]:
    found: dict[str, Amounts] = {"requests": {}, "limits": {}}
    for one in ranges:
        for rule in (one.get("spec") or {}).get("limits") or ():
            if rule.get("type") == "Container":
                found["limits"] |= amounts(rule.get("default") or {})
                found["requests"] |= amounts(rule.get("defaultRequest") or {})
    return found


def _of(container: Mapping[str, Any], key: str, defaults: Mapping[str, Amounts]) -> Amounts:
    """Requests or limits of a container, with what a LimitRange fills in."""
    own = amounts((container.get("resources") or {}).get(key) or {})
    if key == "limits":
        return defaults["limits"] | own
    # A limit of its own is a request, too, before any default is.
    limits = amounts((container.get("resources") or {}).get("limits") or {})
    return defaults["limits"] | defaults["requests"] | limits | own


def _canonical(resource: str) -> str:
    """A quota's key in one spelling: ``cpu`` and ``requests.cpu`` are the same."""
    if resource in ("cpu", "memory", "ephemeral-storage"):
        return f"requests.{resource}"
    if resource.startswith("count/"):
        return resource.removeprefix("count/").partition(".")[0]
    return resource


def _asked(needs: Needs, defaults: Mapping[str, Amounts]) -> Amounts:
    found: Counter[str] = Counter()
    asked: Amounts = {}

    def add(key: str, amount: Decimal) -> None:
        asked[key] = asked.get(key, _ZERO) + amount

    for need in needs.pods:
        for kind, own in (("requests", need.requests), ("limits", need.limits)):
            filled = {n: a for c in need.spec["containers"] for n, a in _of(c, kind, defaults).items()}
            for name, amount in (filled | own).items():
                if name != "pods":
                    add(f"{kind}.{name}", amount * need.count)
        add("pods", Decimal(need.count))
    for made in needs.objects:
        found[_PLURALS.get(made["kind"], f"{made['kind'].lower()}s")] += 1
    found["configmaps"] += 1  # the manifest
    for key, count in found.items():
        add(key, Decimal(count))
    for claim in needs.claims:
        size = amounts(claim["spec"]["resources"]["requests"])["storage"]
        add("requests.storage", size)
        class_name = claim["spec"].get("storageClassName")
        if class_name:
            add(f"{class_name}.storageclass.storage.k8s.io/requests.storage", size)
            add(f"{class_name}.storageclass.storage.k8s.io/persistentvolumeclaims", Decimal(1))
    return asked
