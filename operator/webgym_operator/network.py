"""One NetworkPolicy for each role of a run: who may talk to it, and whom it may talk to."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from webgym_operator.podspec import METRICS_PORT, REDIS_PORT
from webgym_operator.run import Object, Run
from webgym_operator.settings import Settings

__all__ = ["network_policies"]

_LOCAL_DNS = "169.254.20.10/32"
"""Where a node-local DNS cache listens."""
_OPERATOR = {"app.kubernetes.io/name": "webgym", "app.kubernetes.io/component": "operator"}


def network_policies(run: Run, settings: Settings) -> list[Object]:
    """The policies; without a Redis of the run's own, one fewer."""
    own_redis = run.spec.redis.url is None
    to_redis = _to_redis(run)
    public = _public(settings)
    scraped = [{"from": [{"namespaceSelector": {}}], "ports": [_tcp(METRICS_PORT)]}]
    worker_egress = [_dns(), *to_redis]
    if run.spec.browser.egress != "Offline":
        worker_egress.append({"to": public})
    learner_ingress = list(scraped)
    learner_egress = [_dns(), *to_redis, {"to": public, "ports": [_tcp(443)]}]
    if run.spec.learner.replicas > 1:
        peers = [_pods(run.selector("learner"))]
        # torch.distributed agrees on further ports by itself.
        learner_ingress.append({"from": peers})
        learner_egress.append({"to": peers})
    found = [
        _policy(run, "worker", run.worker_name, scraped, worker_egress),
        _policy(run, "learner", run.learner_name, learner_ingress, learner_egress),
    ]
    if own_redis:
        clients = [
            _pods(run.selector("worker")),
            _pods(run.selector("learner")),
            {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": settings.namespace}},
                "podSelector": {"matchLabels": _OPERATOR},
            },
        ]
        found.append(
            _policy(run, "redis", run.redis_name, [{"from": clients, "ports": [_tcp(REDIS_PORT)]}], [])
        )
    return found


def _policy(run: Run, role: str, name: str, ingress: list[Object], egress: list[Object]) -> Object:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": run.namespace, "labels": run.labels(role)},
        "spec": {
            "podSelector": {"matchLabels": run.selector(role)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            "egress": egress,
        },
    }


def _to_redis(run: Run) -> list[Object]:
    url = run.spec.redis.url
    if url is None:
        return [{"to": [_pods(run.selector("redis"))], "ports": [_tcp(REDIS_PORT)]}]
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or REDIS_PORT
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        # Policies know no names: that port is open towards every address, and the browsers' own proxy
        # keeps pages from it.
        return [{"ports": [_tcp(port)]}]
    block = f"{address}/{address.max_prefixlen}"
    return [{"to": [{"ipBlock": {"cidr": block}}], "ports": [_tcp(port)]}]


def _public(settings: Settings) -> list[Object]:
    networks = [ipaddress.ip_network(network) for network in settings.private_networks]

    def block(everything: str, version: int) -> Object:
        excepted = [str(network) for network in networks if network.version == version]
        return {"ipBlock": {"cidr": everything, "except": excepted}}

    return [block("0.0.0.0/0", 4), block("::/0", 6)]


def _dns() -> Object:
    servers = {
        "namespaceSelector": {},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    }
    return {
        "to": [servers, {"ipBlock": {"cidr": _LOCAL_DNS}}],
        "ports": [{"protocol": "UDP", "port": 53}, _tcp(53)],
    }


def _pods(labels: dict[str, str]) -> Object:
    return {"podSelector": {"matchLabels": labels}}


def _tcp(port: int) -> Object:
    return {"protocol": "TCP", "port": port}
