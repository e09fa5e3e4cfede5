"""Measure the operator with many idle runs on a real cluster: memory, processor, writes, and how soon it acts.

The operator runs here, outside of the cluster that KUBECONFIG names; everything lies in a namespace that goes with it.
Idle runs are active ones whose pods no node can take, so nothing happens to them although all of their objects are
there; with --suspended they have none.

    python bench/idle_runs.py --runs 200 --seconds 120

Writes are counted twice: by the operator itself, and by the API server for all resources that the operator writes; its
count holds other clients' writes, too. The CustomResourceDefinition must be installed (make crds; kubectl apply).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import socket
import statistics
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import psutil

from webgym.errors import UsageError
from webgym.spec import KIND
from webgym_operator.api import Api, ApiError, connection
from webgym_operator.outside import operator_process
from webgym_operator.resources import CHILD_KINDS

NOWHERE = {"nodeSelector": {"webgym.io/bench": "nowhere"}}
SPEC: dict[str, Any] = {
    "task": {"name": "miniwob.click-button"},
    "redis": {"url": "redis://127.0.0.1:1"},
    "workers": {"replicas": 1, **NOWHERE},
    "learner": NOWHERE,
}
ROLE = "app.kubernetes.io/managed-by=webgym-operator"
CHANGES = 10
CHANGE_SECONDS = 60.0
_COUNTED = re.compile(r"^apiserver_request_total\{(?P<labels>[^}]*)\} (?P<value>\S+)$", re.MULTILINE)
_WRITTEN = frozenset({"webgymruns", "events", *(plural for _, plural in CHILD_KINDS.values())})


async def server_writes(api: Api) -> float:
    """Requests so far that changed what the operator may change; the kubelet's and scheduler's pod status aside."""
    url = api._info.server.rstrip("/") + "/metrics"
    assert api._session is not None
    async with api._session.get(url, headers=dict(api._info.as_http_headers())) as response:
        response.raise_for_status()
        text = await response.text()
    total = 0.0
    for found in _COUNTED.finditer(text):
        labels = dict(re.findall(r'(\w+)="([^"]*)"', found["labels"]))
        ours = labels["resource"] in _WRITTEN and labels["group"] != "events.k8s.io"
        if labels["subresource"] == "status" and labels["resource"] != "webgymruns":
            ours = False
        if ours and labels["verb"] in ("POST", "PUT", "PATCH", "DELETE", "APPLY"):
            total += float(found["value"])
    return total


def own_writes(port: int) -> float:
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    found = re.search(r"^\w*operator_api_writes\S* (\S+)$", text, re.MULTILINE)
    if found is None:
        raise UsageError("the operator's /metrics has no operator_api_writes")
    return float(found[1])


async def quiet(api: Api, seconds: float = 45.0, deadline: float = 900.0) -> None:
    """Wait until nothing was written for a while, longer than a resync and a look at figures."""
    end, since, last = time.monotonic() + deadline, time.monotonic(), await server_writes(api)
    while time.monotonic() - since < seconds:
        if time.monotonic() > end:
            raise UsageError(f"after {deadline:g} s something still writes")
        await asyncio.sleep(1.0)  # a count that the server gives to whoever asks
        now = await server_writes(api)
        if now != last:
            since, last = time.monotonic(), now


async def change(api: Api, namespace: str, name: str, replicas: int) -> float:
    """Ask one run for another number of workers; seconds until the pods are as many."""
    selector = f"webgym.io/run={name},webgym.io/role=worker"
    pods, version = await api.list("Pod", namespace, selector)
    names = {pod["metadata"]["name"] for pod in pods}
    began = time.monotonic()
    await api.patch(KIND, namespace, name, {"spec": {"workers": {"replicas": replicas}}})
    async with contextlib.aclosing(api.watch("Pod", namespace, selector, version)) as news:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CHANGE_SECONDS):
                async for type_, body in news:
                    if type_ == "DELETED":
                        names.discard(body["metadata"]["name"])
                    elif type_ != "BOOKMARK":
                        names.add(body["metadata"]["name"])
                    if len(names) == replicas:
                        return time.monotonic() - began
    raise UsageError(f"{name} has not {replicas} worker pods after {CHANGE_SECONDS:g} s")


async def watch_idly(
    api: Api, namespace: str, port: int, pid: int, runs: int, seconds: float, suspended: bool
) -> dict[str, Any]:
    """What the operator with that pid and port for its figures takes for its runs, and how soon it acts."""
    await quiet(api)
    children = sum([len((await api.list(kind, namespace, ROLE))[0]) for kind in ("Pod", "Service")])
    one = psutil.Process(pid)
    own, server = own_writes(port), await server_writes(api)
    began, used, resident = time.monotonic(), sum(one.cpu_times()[:2]), []
    while time.monotonic() - began < seconds:
        resident.append(one.memory_info().rss)
        await asyncio.sleep(1.0)
    share = (sum(one.cpu_times()[:2]) - used) / (time.monotonic() - began)
    await asyncio.sleep(6.0)  # the operator refreshes its own count every 5 s
    writes = {"operator": own_writes(port) - own, "server": await server_writes(api) - server}
    changes = 0 if suspended else min(CHANGES, runs)
    took = [await change(api, namespace, f"idle-{number}", 2) for number in range(changes)]
    return {
        "runs": runs, "suspended": suspended, "pods_and_services": children, "seconds": seconds,
        "rss_mb": round(max(resident) / 1e6, 1), "cpu_percent": round(100 * share, 2), "writes": writes,
        "change_seconds_median": round(statistics.median(took), 2) if took else None,
        "change_seconds_max": round(max(took), 2) if took else None,
        "load": os.getloadavg()[0],
    }  # fmt: skip


async def measure(runs: int, seconds: float, suspended: bool) -> dict[str, Any]:
    namespace = f"webgym-bench-{os.getpid()}"
    spec = {**SPEC, "suspend": True} if suspended else SPEC
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    log = Path(tempfile.gettempdir()) / f"{namespace}.log"
    async with Api(connection) as api:
        await api.request(
            "POST", "/api/v1/namespaces", {"kind": "Namespace", "metadata": {"name": namespace}}
        )
        try:
            for number in range(runs):
                metadata = {"name": f"idle-{number}", "namespace": namespace}
                body = {"apiVersion": "webgym.io/v1alpha1", "kind": KIND, "metadata": metadata, "spec": spec}
                await api.create(body)
            with log.open("wb") as out:
                environment = {"WEBGYM_WATCH_NAMESPACES": namespace, "WEBGYM_METRICS_PORT": str(port)}
                async with operator_process(out, **environment) as process:
                    found = await watch_idly(api, namespace, port, process.pid, runs, seconds, suspended)
            return found | {"log": str(log)}
        finally:
            with contextlib.suppress(ApiError):
                await api.request("DELETE", f"/api/v1/namespaces/{namespace}", {})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--suspended", action="store_true", help="runs that have no objects")
    args = parser.parse_args()
    print(json.dumps(asyncio.run(measure(args.runs, args.seconds, args.suspended)), indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
