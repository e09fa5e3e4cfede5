"""A server that keeps objects as the Kubernetes API does, as far as the operator relies on it.

Versions, label selectors, conflicts, preconditions, merge patches, the status subresource, watches that begin at a
version: real requests over a socket. What it does not have is validation, defaults and controllers.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable

import kopf
from aiohttp import web
from operator_cluster import merged

from webgym_operator.api import _KINDS as _OPERATOR_KINDS
from webgym_operator.client.access import _KINDS as _CLIENT_KINDS
from webgym_operator.run import Object, time_text

_KINDS = {**_OPERATOR_KINDS, **_CLIENT_KINDS}
PLURALS = {plural: kind for kind, (_, plural) in _KINDS.items()}
CLUSTER_KINDS = frozenset(
    {"CustomResourceDefinition", "Namespace", "Node", "PersistentVolume", "StorageClass"}
)


def failure(status: int, reason: str, message: str, **more: object) -> web.Response:
    body = {"kind": "Status", "code": status, "reason": reason, "message": message, **more}
    return web.json_response(body, status=status)


class Server:
    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Object] = {}
        self.log: list[tuple[int, str, Object]] = []
        self.requests: Counter[str] = Counter()
        self.refuse: Callable[[str, str, Object], web.Response | None] = lambda verb, kind, body: None
        self.deaf = False
        """Watches say nothing."""
        self.oldest = 0
        """Watches from before this version get 410."""
        self.subresources: dict[str, Callable[[web.Request, Object], Awaitable[web.StreamResponse]]] = {}
        """What answers for ``log``, ``exec`` and their like; given the request and the object."""
        self._versions = itertools.count(1)
        self._news = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self) -> Server:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def stop(self) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    def login(self) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=self.url, token="token")

    # --- what tests and clusters do --------------------------------------------------------------------------------

    def put(self, body: Object, type_: str = "MODIFIED") -> Object:
        version = next(self._versions)
        metadata = body["metadata"] | {"resourceVersion": str(version)}
        body = body | {"metadata": metadata}
        self.objects[body["kind"], metadata["namespace"], metadata["name"]] = body
        self.log.append((version, type_, body))
        self._news.set()
        return body

    def drop(self, kind: str, name: str, namespace: str = "lab") -> None:
        body = self.objects.pop((kind, namespace, name))
        version = next(self._versions)
        gone = body | {"metadata": body["metadata"] | {"resourceVersion": str(version)}}
        self.log.append((version, "DELETED", gone))
        self._news.set()

    def of(self, kind: str) -> list[Object]:
        return [body for (k, _, _), body in sorted(self.objects.items()) if k == kind]

    def names(self, kind: str) -> list[str]:
        return [body["metadata"]["name"] for body in self.of(kind)]

    def start_pods(self) -> None:
        """What the rest of a cluster would do."""
        for made in self.of("StatefulSet"):
            if not made.get("status"):
                self.put(made | {"status": {"readyReplicas": 1}})
        for made in self.of("Service"):
            if made["spec"].get("clusterIP") is None:
                self.put(made | {"spec": made["spec"] | {"clusterIP": "127.0.0.1"}})
        for made in self.of("Pod"):
            if "deletionTimestamp" in made["metadata"]:
                self.drop("Pod", made["metadata"]["name"], made["metadata"]["namespace"])
            elif not made.get("status"):
                conditions = [{"type": t, "status": "True"} for t in ("PodScheduled", "Ready")]
                status = {"phase": "Running", "conditions": conditions}
                self.put(made | {"status": status, "spec": made["spec"] | {"nodeName": "node"}})

    @property
    def writes(self) -> int:
        return sum(count for verb, count in self.requests.items() if not verb.startswith(("GET", "WATCH")))

    # --- requests --------------------------------------------------------------------------------------------------

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        parts = request.path.strip("/").split("/")
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        namespace = None
        if len(rest) > 2 and rest[0] == "namespaces":
            namespace, rest = rest[1], rest[2:]
        if not rest:
            return self._discovery(request.path)
        if rest[0] not in PLURALS:
            return failure(404, "NotFound", request.path)
        kind, name, sub = PLURALS[rest[0]], *([*rest[1:], "", ""])[:2]
        body = json.loads(await request.text() or "{}")
        watching = request.query.get("watch") == "true"
        verb = "WATCH" if watching else request.method
        self.requests[f"{verb} {kind}{'/' + sub if sub else ''}"] += 1
        refused = self.refuse(verb, kind, body)
        if refused is not None:
            return refused
        if watching:
            return await self._watch(request, kind, namespace)
        if not name:
            return self._collection(request, kind, namespace, body)
        key = (kind, namespace or "", name)
        if key not in self.objects:
            return failure(404, "NotFound", f"{kind} {name} not found", details={"name": name})
        if sub in self.subresources:
            return await self.subresources[sub](request, self.objects[key])
        return self._one(request.method, key, sub, body)

    @staticmethod
    def _discovery(path: str) -> web.Response:
        """What the server has, as clients ask before anything else."""
        if path == "/api":
            return web.json_response({"versions": ["v1"]})
        if path == "/apis":
            versions = sorted({v for v, _ in _KINDS.values() if "/" in v})
            groups = [
                {"name": group, "versions": [{"version": version}], "preferredVersion": {"version": version}}
                for group, _, version in (v.partition("/") for v in versions)
            ]
            return web.json_response({"groups": groups})
        found = [
            {
                "name": plural + sub,
                "kind": kind,
                "namespaced": kind not in CLUSTER_KINDS,
                "singularName": kind.lower(),
                "verbs": ["get", "list", "watch", "create", "patch", "delete"],
            }
            for kind, (version, plural) in _KINDS.items()
            if path.endswith(f"/{version}")
            for sub in ("", "/status")
        ]
        return web.json_response({"resources": found}) if found else failure(404, "NotFound", path)

    def _collection(
        self, request: web.Request, kind: str, namespace: str | None, body: Object
    ) -> web.Response:
        if request.method == "GET":
            selector = request.query.get("labelSelector", "")
            items = [b for b in self.of(kind) if self._selected(b, namespace, selector)]
            return web.json_response({"items": items, "metadata": {"resourceVersion": str(self._latest())}})
        assert namespace is not None
        metadata = body["metadata"]
        metadata.setdefault("name", f"{metadata.get('generateName', '')}{self._latest()}")
        if (kind, namespace, metadata["name"]) in self.objects:
            return failure(409, "AlreadyExists", f"{kind} {metadata['name']} already exists")
        if "dryRun" in request.query:
            return web.json_response(body, status=201)
        body["metadata"] = {
            "generation": 1,
            "namespace": namespace,
            "uid": f"uid-{self._latest()}",
            "creationTimestamp": time_text(time.time()),
            **metadata,
        }
        return web.json_response(self.put(body, "ADDED"), status=201)

    def _one(self, method: str, key: tuple[str, str, str], sub: str, body: Object) -> web.Response:
        before = self.objects[key]
        if method == "GET":
            return web.json_response(before)
        if method == "DELETE":
            uid = body.get("preconditions", {}).get("uid")
            if uid not in (None, before["metadata"]["uid"]):
                return failure(409, "Conflict", "the uid does not match")
            if key[0] == "Pod" and before.get("spec", {}).get("nodeName"):
                grace = body.get("gracePeriodSeconds", 20)
                ends = {"deletionTimestamp": time_text(time.time() + grace)}
                return web.json_response(self.put(before | {"metadata": before["metadata"] | ends}))
            self.drop(key[0], key[2], key[1])
            return web.json_response({"kind": "Status", "status": "Success"})
        version = body.get("metadata", {}).pop("resourceVersion", None)
        if version not in (None, before["metadata"]["resourceVersion"]):
            return failure(409, "Conflict", "the object has been modified")
        if sub == "status":
            after = before | {"status": merged(before.get("status", {}), body.get("status", {}))}
        else:
            after = merged(before, {k: v for k, v in body.items() if k != "status"})
        return web.json_response(before if after == before else self.put(after))

    async def _watch(self, request: web.Request, kind: str, namespace: str | None) -> web.StreamResponse:
        after = int(request.query["resourceVersion"])
        response = web.StreamResponse()
        await response.prepare(request)
        if after < self.oldest:
            status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
            await response.write(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
            return response
        selector = request.query.get("labelSelector", "")
        ends = time.monotonic() + float(request.query.get("timeoutSeconds", "inf"))
        while True:
            self._news.clear()
            for version, type_, body in self.log:
                if version > after and body["kind"] == kind and self._selected(body, namespace, selector):
                    if self.deaf:
                        return response
                    await response.write(json.dumps({"type": type_, "object": body}).encode() + b"\n")
            after = max(after, self._latest())
            left = ends - time.monotonic()
            if left <= 0:
                return response
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), None if left == float("inf") else left)

    def _latest(self) -> int:
        return self.log[-1][0] if self.log else 0

    @staticmethod
    def _selected(body: Object, namespace: str | None, selector: str) -> bool:
        labels = body["metadata"].get("labels") or {}
        wanted = [part.partition("=") for part in selector.split(",") if part]
        fits = all(labels.get(k) == v if eq else k in labels for k, eq, v in wanted)
        return fits and namespace in (None, body["metadata"]["namespace"])
