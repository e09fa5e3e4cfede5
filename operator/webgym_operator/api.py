"""A small client of the Kubernetes API: plain data in and out, one connection pool, errors with their reason.

The operator handles objects as plain data and needs six verbs; typed clients would cost it a hundred megabytes.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import aiohttp
import kopf

from webgym.crd import GROUP, PLURAL, VERSION
from webgym.errors import UsageError
from webgym.spec import KIND
from webgym_operator.resources import CHILD_KINDS
from webgym_operator.run import Object

__all__ = ["Api", "ApiError", "connection"]

logger = logging.getLogger(__name__)

_KINDS = {
    **CHILD_KINDS,
    KIND: (f"{GROUP}/{VERSION}", PLURAL),
    "Event": ("v1", "events"),
    "StorageClass": ("storage.k8s.io/v1", "storageclasses"),
    "CustomResourceDefinition": ("apiextensions.k8s.io/v1", "customresourcedefinitions"),
}
_PAGE = 500
_LOGIN_SECONDS = 60.0
"""A service account's token is renewed about hourly; the old one is good for a while after that."""


class ApiError(Exception):
    """The server refused, or could not be reached (status 0)."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        """As the server says it: NotFound, AlreadyExists, Conflict, Invalid, Forbidden, Expired, ..."""

    @property
    def permanent(self) -> bool:
        """Whether the same request will be refused again as long as nobody changes anything else."""
        return self.status in (400, 403, 405, 413, 415, 422)


def connection() -> kopf.ConnectionInfo:
    """How to reach the cluster that this process runs in, or the one that KUBECONFIG names.

    Raises:
        UsageError: there is neither, or no such file.
    """
    for login in (kopf.login_with_service_account, kopf.login_with_kubeconfig):
        try:
            info = login(logger=logger, settings=kopf.OperatorSettings())
        except OSError as error:
            raise UsageError(f"KUBECONFIG: {error.filename} cannot be read: {error.strerror}") from error
        if info is not None:
            return info
    raise UsageError("no Kubernetes cluster: run in a pod with a service account, or set KUBECONFIG")


class Api:
    """Requests to one server; an asynchronous context manager.

    Args:
        login: gives the address and credentials; called again as those of a pod change.
        timeout: seconds for one answer.
    """

    def __init__(
        self, login: Callable[[], kopf.ConnectionInfo] = connection, *, timeout: float = 20.0
    ) -> None:
        self._login = login
        self._info = login()
        self._logged_in_at = time.monotonic()
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._session: aiohttp.ClientSession | None = None
        self.writes = 0
        """Requests that changed or tried to change something."""

    async def __aenter__(self) -> Api:
        secure = self._info.server.startswith("https")
        connector = aiohttp.TCPConnector(limit=64, ssl=self._info.as_ssl_context() if secure else True)
        # The server names whoever changes a field after the beginning of this.
        self._session = aiohttp.ClientSession(connector=connector, headers={"User-Agent": "webgym-operator"})
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._session is not None:
            await self._session.close()

    # --- verbs -----------------------------------------------------------------------------------------------------

    async def list(
        self, kind: str, namespace: str | None = None, selector: str = ""
    ) -> tuple[list[Object], str]:
        """All objects of a kind that a label selector finds, and the version of that state.

        Raises:
            ApiError: refused, or not reached.
        """
        found: list[Object] = []
        query = {"limit": str(_PAGE), **({"labelSelector": selector} if selector else {})}
        while True:
            page = await self.request("GET", self.path(kind, namespace), query=query)
            found += [{"kind": kind, **item} for item in page.get("items") or ()]
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                return found, str(metadata.get("resourceVersion", ""))
            query["continue"] = metadata["continue"]

    async def get(self, kind: str, namespace: str | None, name: str) -> Object:
        """One object."""
        return {"kind": kind, **await self.request("GET", self.path(kind, namespace, name))}

    async def create(self, body: Object) -> Object:
        """Make an object; returns it as the server has it."""
        metadata = body["metadata"]
        return await self.request("POST", self.path(body["kind"], metadata.get("namespace")), body)

    async def patch(
        self, kind: str, namespace: str, name: str, body: Mapping[str, Any], *, status: bool = False
    ) -> Object:
        """Merge into an object, or into its status; returns it as the server has it."""
        path = self.path(kind, namespace, name) + ("/status" if status else "")
        return await self.request("PATCH", path, body, content_type="application/merge-patch+json")

    async def delete(
        self, kind: str, namespace: str, name: str, *, uid: str = "", grace_seconds: int | None = None
    ) -> Object:
        """Remove an object, or, with a uid, only that very one."""
        options: Object = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        return await self.request("DELETE", self.path(kind, namespace, name), options)

    async def watch(
        self, kind: str, namespace: str | None, selector: str, version: str
    ) -> AsyncIterator[tuple[str, Object]]:
        """Changes after a version: type (ADDED, MODIFIED, DELETED, BOOKMARK) and object, until the server ends it.

        Raises:
            ApiError: refused, not reached, or the version is too old (status 410).
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": "290",
            "labelSelector": selector,
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_read=330)
        async with self._respond("GET", self.path(kind, namespace), None, query, timeout=timeout) as response:
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in filter(None, lines):
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise _error(int(event["object"].get("code", 500)), event["object"])
                    yield event["type"], {"kind": kind, **event["object"]}

    async def exists(self, path: str) -> bool:
        """Whether the server knows a path, such as ``/apis/policy/v1``."""
        try:
            await self.request("GET", path)
        except ApiError as error:
            if error.status in (403, 404):
                return error.status == 403
            raise
        return True

    # --- beneath ---------------------------------------------------------------------------------------------------

    @staticmethod
    def path(kind: str, namespace: str | None, name: str = "") -> str:
        """Where objects of a kind are."""
        version, plural = _KINDS[kind]
        parts = ["apis" if "/" in version else "api", version]
        if namespace is not None:
            parts += ["namespaces", namespace]
        return "/" + "/".join([*parts, plural, *([name] if name else [])])

    async def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        """One request, and the object in its answer.

        Raises:
            ApiError: refused, or not reached.
        """
        if method != "GET":
            self.writes += 1
        async with self._respond(method, path, body, query, content_type=content_type) as response:
            answer: Object = await response.json(content_type=None)
            return answer

    @contextlib.asynccontextmanager
    async def _respond(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        query: Mapping[str, str] | None,
        *,
        content_type: str = "application/json",
        timeout: aiohttp.ClientTimeout | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._session is None:
            raise RuntimeError("the client was not entered")
        if time.monotonic() - self._logged_in_at > _LOGIN_SECONDS:
            self._info, self._logged_in_at = self._login(), time.monotonic()
        try:
            async with self._session.request(
                method,
                self._info.server.rstrip("/") + path,
                params=query,
                data=None if body is None else json.dumps(body),
                headers={**self._info.as_http_headers(), "Content-Type": content_type},
                timeout=timeout or self._timeout,
            ) as response:
                if response.status >= 400:
                    if response.status == 401:
                        self._logged_in_at = float("-inf")
                    raise _error(response.status, await _told(response))
                yield response
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            said = str(error) or type(error).__name__
            raise ApiError(0, "Unreachable", f"the API server cannot be reached: {said}") from error


async def _told(response: aiohttp.ClientResponse) -> Object:
    text = await response.text(errors="replace")
    try:
        told = json.loads(text)
    except ValueError:
        told = None
    return told if isinstance(told, dict) else {"message": text[:500]}


def _error(status: int, told: Mapping[str, Any]) -> ApiError:
    return ApiError(
        status, str(told.get("reason") or f"HTTP {status}"), str(told.get("message") or "no message")
    )
