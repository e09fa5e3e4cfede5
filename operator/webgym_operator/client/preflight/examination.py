"""``webgym submit --dry-run``: everything that can be known of a run before it is submitted, one finding a line."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import TypeVar
from urllib.parse import urlsplit

from webgym import __version__
from webgym.broker import redact_url
from webgym.crd import CRD_NAME
from webgym.errors import ExitCode
from webgym.printable import printable
from webgym.spec import RunManifest
from webgym_operator.client.access import Cluster
from webgym_operator.client.installation import Installation, installation
from webgym_operator.client.preflight.estimate import Needs, needs_of, total_finding
from webgym_operator.client.preflight.finding import Finding, bad, good, unknown, warn
from webgym_operator.client.preflight.images import image_findings
from webgym_operator.client.preflight.nodes import NodeView, node_findings, parse_nodes
from webgym_operator.client.preflight.quotas import limit_findings, quota_findings
from webgym_operator.client.preflight.storage import claim_finding, references, storage_findings
from webgym_operator.client.refusal import ClusterError
from webgym_operator.run import Object
from webgym_operator.schema_check import missing_fields
from webgym_operator.settings import Settings

__all__ = ["preflight", "print_findings"]

_ASSUMED = Settings(
    f"webgym-worker:{__version__}", f"webgym-learner:{__version__}", f"webgym-operator:{__version__}"
)
"""The chart's own defaults, where the operator's settings are not known."""
_WORDS = {"ok": "ok", "warning": "warn", "unknown": "?", "bad": "BAD"}
T = TypeVar("T")


def preflight(cluster: Cluster, manifest: RunManifest, body: Object, *, replace: bool) -> list[Finding]:
    """Look at everything that the run needs.

    Args:
        cluster: that it is for.
        manifest: of the run.
        body: that would be created.
        replace: whether a run of the same name would be deleted first.

    Raises:
        ClusterError: the server is not reached, or does not know who asks.
    """
    findings = [good("cluster", f"{cluster.server} of {cluster.where}, namespace {cluster.namespace}")]
    defined = _definition(cluster)
    findings.append(defined)
    found = installation(cluster)
    findings += _operator(found, manifest)
    if defined.level != "bad":
        findings += _admission(cluster, body, replace=replace)
    settings = found.settings or _ASSUMED
    needs = needs_of(manifest, cluster.namespace, settings)
    findings.append(total_finding(needs))
    findings += _gpu(manifest)
    leaving = manifest.metadata.name if replace else ""
    findings += _looked(lambda: _placement(cluster, needs, settings, leaving), "nodes")
    findings += _looked(lambda: _quotas(cluster, needs), "quota")
    findings += _looked(lambda: _storage(cluster, manifest, needs), "storage")
    findings += _looked(lambda: _redis(cluster, manifest), "Redis")
    findings += _looked(lambda: _references(cluster, manifest, settings), "references")
    findings += _pods(cluster, needs)
    return findings


def print_findings(findings: list[Finding], manifest: RunManifest, namespace: str, *, as_json: bool) -> int:
    """A line for each finding, its mend behind it; returns the exit code."""
    wrong = sum(finding.level == "bad" for finding in findings)
    if as_json:
        listed = [{"subject": f.subject, "level": f.level, "text": f.text, "mend": f.mend} for f in findings]
        found = {"run": manifest.metadata.name, "namespace": namespace, "ok": not wrong, "findings": listed}
        print(json.dumps(found, indent=2))
    else:
        width = max(len(finding.subject) for finding in findings)
        for finding in findings:
            mend = f"; {finding.mend}" if finding.mend else ""
            word = _WORDS[finding.level].ljust(4)
            print(printable(f"{word}  {finding.subject.ljust(width)}  {finding.text}{mend}"))
        name = manifest.metadata.name
        many = f"{wrong} thing{'' if wrong == 1 else 's'}"
        print(
            printable(
                f"run {name} could not work here: {many} to mend" if wrong else f"run {name} can be submitted"
            )
        )
    return int(ExitCode.FAILURE if wrong else ExitCode.OK)


def _looked(look: Callable[[], list[Finding]], subject: str) -> list[Finding]:
    """What a look finds, or that the caller may not look."""
    try:
        return look()
    except ClusterError as error:
        if not error.by_rights:
            raise
        return [unknown(subject, f"not looked at: {error.brief}")]


def _or_none(ask: Callable[[], T]) -> T | None:
    """An answer; None where the caller may not ask, or there is nothing."""
    try:
        return ask()
    except ClusterError as error:
        if error.status == 404 or error.by_rights:
            return None
        raise


def _definition(cluster: Cluster) -> Finding:
    subject = "definition"
    try:
        installed = cluster.get("CustomResourceDefinition", CRD_NAME, "")
    except ClusterError as error:
        if error.status == 404:
            return bad(
                subject,
                f"the cluster does not know {CRD_NAME}",
                "helm install webgym charts/webgym --namespace webgym --create-namespace",
            )
        if not error.by_rights:
            raise
        return unknown(subject, f"its age is not known: {error.brief}")
    missing = missing_fields(installed)
    if missing:
        listed = ", ".join(missing[:5]) + (" and more" if len(missing) > 5 else "")
        return bad(
            subject,
            f"{CRD_NAME} is older than webgym {__version__}: it lacks {listed}",
            "helm upgrade with the chart of this version, or use the webgym of that one",
        )
    return good(subject, f"{CRD_NAME} knows all fields of webgym {__version__}")


def _operator(found: Installation, manifest: RunManifest) -> Iterator[Finding]:
    subject = "operator"
    if manifest.spec.managed_by is not None:
        yield warn(
            subject,
            f"spec.managedBy is {manifest.spec.managed_by}: WebGym's operator leaves the run alone to it",
        )
    elif not found.name:
        say = unknown if found.unsure else bad
        yield say(subject, found.trouble)
    elif not found.alive:
        yield bad(subject, f"{found.name} is not alive: {found.trouble}")
    else:
        yield good(subject, f"{found.name} is alive")
    if found.others:
        yield warn(
            subject, f"{', '.join(found.others)} looks after the namespace, too", "one operator is enough"
        )
    if found.settings is None:
        yield unknown(
            "settings", "the operator's are not known; those that the chart has by default are taken for them"
        )


def _admission(cluster: Cluster, body: Object, *, replace: bool) -> list[Finding]:
    """Have the server itself judge the object, rules and webhooks included."""
    subject = "the run"
    name = body["metadata"]["name"]
    try:
        cluster.create(body, dry=True)
    except ClusterError as error:
        if error.reason == "AlreadyExists":
            if replace:
                return [good(subject, f"{name} exists and would be replaced")]
            return [
                bad(
                    subject,
                    f"a run {name} exists in the namespace",
                    "--replace deletes it first; or rename this one",
                )
            ]
        if error.status == 404:
            return [
                bad(
                    subject,
                    f"there is no namespace {cluster.namespace}",
                    f"kubectl create namespace {cluster.namespace}",
                )
            ]
        if error.status == 0 or error.status == 401 or error.status >= 500:
            raise
        return [bad(subject, f"the API server refuses it: {error}")]
    return [good(subject, f"the API server takes {name}")]


def _gpu(manifest: RunManifest) -> list[Finding]:
    learner = manifest.spec.learner
    asked = {**learner.resources.requests, **learner.resources.limits}
    gpus = {name: amount for name, amount in asked.items() if name.endswith("/gpu") and int(amount)}
    if gpus:
        if learner.device == "cpu":
            return [
                warn(
                    "GPU",
                    f"{', '.join(gpus)} is asked for, and learner.device is cpu",
                    "leave one of them out",
                )
            ]
        return []  # whether a node has it is said with the nodes
    if learner.device == "cuda":
        mend = 'give spec.learner.resources.limits "nvidia.com/gpu": 1'
        return [
            warn(
                "GPU",
                "learner.device is cuda, and no GPU is asked for: most clusters show none to such a pod",
                mend,
            )
        ]
    return [good("GPU", "none asked for: the learner computes on CPUs")]


def _placement(cluster: Cluster, needs: Needs, settings: Settings, leaving: str) -> list[Finding]:
    """Where pods can run.

    Args:
        cluster: that is looked at.
        needs: of the run.
        settings: of the operator.
        leaving: a run that is deleted first, whose pods take no room; or nothing.
    """
    nodes = cluster.list("Node", namespace="")
    pods = _or_none(lambda: cluster.list("Pod", namespace=""))
    if leaving and pods is not None:
        pods = [pod for pod in pods if not _is_of(pod, leaving, cluster.namespace)]
    views: list[NodeView] = parse_nodes(nodes, pods)
    findings = node_findings(views, needs.pods, autoscaled=_autoscaled(cluster))
    if pods is None:
        findings.append(
            unknown("nodes", "you may not list the pods of all namespaces: every node counts as empty")
        )
    return findings + image_findings(views, needs.pods, settings.image_pull_policy)


def _is_of(pod: Object, run: str, namespace: str) -> bool:
    metadata = pod["metadata"]
    return metadata["namespace"] == namespace and (metadata.get("labels") or {}).get("webgym.io/run") == run


def _autoscaled(cluster: Cluster) -> bool:
    """Whether something adds nodes: the cluster autoscaler leaves its state in a ConfigMap, Karpenter has an API."""
    status = _or_none(
        lambda: cluster.get("ConfigMap", "cluster-autoscaler-status", "kube-system", metadata_only=True)
    )
    return status is not None or _or_none(lambda: cluster.request("GET", "/apis/karpenter.sh")) is not None


def _quotas(cluster: Cluster, needs: Needs) -> list[Finding]:
    quotas, ranges = cluster.list("ResourceQuota"), cluster.list("LimitRange")
    findings = quota_findings(quotas, ranges, needs) + limit_findings(ranges, needs)
    return findings or [good("quota", "the namespace has no ResourceQuota and no LimitRange")]


def _storage(cluster: Cluster, manifest: RunManifest, needs: Needs) -> list[Finding]:
    findings: list[Finding] = []
    name = manifest.spec.storage.existing_claim
    if name is not None:
        try:
            findings.append(claim_finding(cluster.get("PersistentVolumeClaim", name), name))
        except ClusterError as error:
            if error.status != 404:
                raise
            findings.append(claim_finding(None, name))
    if needs.claims:
        classes = cluster.list("StorageClass", namespace="")
        volumes = _or_none(lambda: cluster.list("PersistentVolume", namespace=""))
        findings += storage_findings(needs.claims, classes, volumes)
    return findings


def _redis(cluster: Cluster, manifest: RunManifest) -> list[Finding]:
    """Of a Redis that the run does not bring: what can be told of it without being in the cluster."""
    subject, url = "Redis", manifest.spec.redis.url
    if url is None:
        return []
    name, *rest = (urlsplit(url).hostname or "").split(".")
    if len(rest) >= 2 and rest[1] == "svc":
        try:
            cluster.get("Service", name, rest[0], metadata_only=True)
        except ClusterError as error:
            if error.status != 404:
                raise
            return [
                bad(
                    subject,
                    f"there is no Service {name} in namespace {rest[0]}, which redis.url names",
                    "create it, or correct the URL",
                )
            ]
    return [
        unknown(
            subject, f"{redact_url(url)} is not tried from here; the operator and the pods have to reach it"
        )
    ]


def _references(cluster: Cluster, manifest: RunManifest, settings: Settings) -> list[Finding]:
    findings: list[Finding] = []
    for kind, name, where in references(manifest, settings.image_pull_secrets):
        try:
            cluster.get(kind, name, metadata_only=True)
        except ClusterError as error:
            if error.status != 404:
                raise
            findings.append(bad("references", f"there is no {kind} {name}, which {where} names", "create it"))
    return findings


def _pods(cluster: Cluster, needs: Needs) -> list[Finding]:
    """Have the server judge the pods, too: Pod Security, quotas and policies refuse them only when they are made."""
    findings: list[Finding] = []
    for need in needs.pods:
        metadata = {k: v for k, v in need.pod["metadata"].items() if k != "ownerReferences"}
        metadata["name"] = f"{metadata['name'][:200]}-dry-{int(time.time())}"
        try:
            cluster.create({**need.pod, "kind": "Pod", "metadata": metadata}, dry=True)
        except ClusterError as error:
            if error.by_rights or error.status == 404:
                return findings  # the operator may, which is enough
            if error.status == 0 or error.status >= 500:
                raise
            text = f"the API server refuses the {need.role} pod: {error}"
            findings.append(bad("admission", text, "see the policies of the namespace"))
    return findings or [good("admission", "the API server takes the pods")]
