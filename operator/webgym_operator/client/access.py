"""Access to a cluster through the official client: plain data in and out, and errors of one line.

The client brings what is hard about it: kubeconfigs with all their ways of logging in, certificates, proxies, and the
streams of ``exec``. Its typed objects are left out: the operator's functions, which are used here, take plain data.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from webgym.crd import GROUP, PLURAL, VERSION
from webgym.errors import UsageError
from webgym.spec import KIND
from webgym_operator.client.refusal import ClusterError, refusal, unreachable
from webgym_operator.resources import CHILD_KINDS
from webgym_operator.run import Object

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

__all__ = ["Cluster", "open_cluster"]

_KINDS = {
    **CHILD_KINDS,
    KIND: (f"{GROUP}/{VERSION}", PLURAL),
    "CustomResourceDefinition": ("apiextensions.k8s.io/v1", "customresourcedefinitions"),
    "Deployment": ("apps/v1", "deployments"),
    "LimitRange": ("v1", "limitranges"),
    "Namespace": ("v1", "namespaces"),
    "Node": ("v1", "nodes"),
    "PersistentVolume": ("v1", "persistentvolumes"),
    "ResourceQuota": ("v1", "resourcequotas"),
    "StorageClass": ("storage.k8s.io/v1", "storageclasses"),
}
_PAGE = 500
_CONNECT_SECONDS, _READ_SECONDS = 10.0, 60.0
_IN_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@contextmanager
def open_cluster(args: argparse.Namespace) -> Iterator[Cluster]:
    """The cluster that the options, the environment or the surrounding pod name.

    Raises:
        UsageError: none of them does, or what they name is not there.
    """
    from kubernetes.client import ApiClient, Configuration

    configuration = Configuration()
    namespace, where = _log_in(configuration, args.kubeconfig, args.context)
    with ApiClient(configuration) as client:
        yield Cluster(client, args.namespace or namespace, where)


def _log_in(configuration: Any, file: Path | None, context: str | None) -> tuple[str, str]:
    """Fill the configuration; returns the namespace that goes with it, and words for it."""
    from kubernetes import config as untyped
    from kubernetes.config.config_exception import ConfigException

    listed = os.environ.get("KUBECONFIG", "")
    files = [file] if file else [Path(part) for part in listed.split(os.pathsep) if part]
    named = bool(files)
    files = files or [Path.home() / ".kube" / "config"]
    present = [path for path in files if path.is_file()]
    if present:
        return _log_in_by(present, context, configuration)
    if named:
        raise UsageError(
            f"{files[0]}: there is no such kubeconfig; correct {'--kubeconfig' if file else 'KUBECONFIG'}"
        )
    if context is not None:
        raise UsageError(
            f"--context {context}: there is no kubeconfig; name one by --kubeconfig or KUBECONFIG"
        )
    try:
        load: Any = untyped.load_incluster_config
        load(client_configuration=configuration)
        return _IN_POD.read_text().strip() or "default", "this pod's service account"
    except (ConfigException, OSError):
        raise UsageError(
            f"no Kubernetes cluster: {files[0]} does not exist; name a kubeconfig by --kubeconfig or KUBECONFIG"
        ) from None


def _log_in_by(files: list[Path], context: str | None, configuration: Any) -> tuple[str, str]:
    from kubernetes import config as untyped
    from kubernetes.config.config_exception import ConfigException

    joined = os.pathsep.join(map(str, files))
    try:
        list_contexts: Any = untyped.list_kube_config_contexts
        contexts, current = list_contexts(joined)
        names = [one["name"] for one in contexts]
        if context is not None and context not in names:
            raise UsageError(f"--context {context}: {joined} has {', '.join(names) or 'no context'}")
        load: Any = untyped.load_kube_config
        load(joined, context=context, client_configuration=configuration)
    except UsageError:
        raise
    except ConfigException as error:
        raise UsageError(f"{joined}: {' '.join(str(error).split())}") from None
    except Exception as error:  # whatever its parser meets in a file that is no kubeconfig
        kind = type(error).__name__
        raise UsageError(
            f"{joined}: is no kubeconfig: {' '.join(str(error).split())[:300] or kind}"
        ) from error
    chosen = next((one for one in contexts if one["name"] == context), current)
    return chosen["context"].get("namespace") or "default", f"context {chosen['name']}"


class Cluster:
    """Requests to one API server.

    Args:
        client: logged in.
        namespace: where runs are looked for and made.
        where: words for messages: which context, or whose service account.
    """

    def __init__(self, client: ApiClient, namespace: str, where: str) -> None:
        self.client = client
        self.namespace = namespace
        self.where = where

    # --- verbs -----------------------------------------------------------------------------------------------------

    def get(
        self, kind: str, name: str, namespace: str | None = None, *, metadata_only: bool = False
    ) -> Object:
        """One object; in the cluster's namespace unless another is given. ``""`` is for kinds that have none.

        Args:
            kind: of the object.
            name: of the object.
            namespace: where it is.
            metadata_only: leave out what is in it, as befits a Secret that need only exist.
        """
        accept = "application/json"
        if metadata_only:
            accept += ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        return {"kind": kind, **self.request("GET", self.path(kind, name, namespace), accept=accept)}

    def list(self, kind: str, *, selector: str = "", namespace: str | None = None) -> list[Object]:
        """All objects that a label selector finds; ``namespace=""`` looks through all."""
        found: list[Object] = []
        query = {"limit": str(_PAGE), **({"labelSelector": selector} if selector else {})}
        while True:
            page = self.request("GET", self.path(kind, "", namespace), query=query)
            found += [{"kind": kind, **item} for item in page.get("items") or ()]
            follows = (page.get("metadata") or {}).get("continue")
            if not follows:
                return found
            query["continue"] = follows

    def create(self, body: Object, *, dry: bool = False) -> Object:
        """Make an object in the cluster's namespace, or have the server only say whether it would."""
        query = {"dryRun": "All"} if dry else {}
        return self.request("POST", self.path(body["kind"], ""), body=body, query=query)

    def patch(self, kind: str, name: str, body: Mapping[str, Any]) -> Object:
        """Merge into an object."""
        path = self.path(kind, name)
        return self.request("PATCH", path, body=body, content_type="application/merge-patch+json")

    def delete(self, kind: str, name: str, *, uid: str, grace_seconds: int | None = None) -> None:
        """Remove that very object; it is well if it is gone already."""
        options: Object = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": "Background",
            "preconditions": {"uid": uid},
        }
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        try:
            self.request("DELETE", self.path(kind, name), body=options)
        except ClusterError as error:
            if error.status not in (404, 409):
                raise

    def watch(
        self, kind: str, version: str, *, selector: str = "", seconds: float = 60.0
    ) -> Iterator[tuple[str, Object]]:
        """Changes in the cluster's namespace after a version, until the server ends it.

        Raises:
            ClusterError: refused, not reached, or the version is too old (status 410).
        """
        query = {
            "watch": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(max(1, round(seconds))),
            **({"labelSelector": selector} if selector else {}),
        }
        for line in self.lines(self.path(kind, ""), query, read_seconds=seconds + 30):
            event = json.loads(line)
            if event["type"] == "ERROR":
                told = event["object"]
                raise ClusterError(
                    int(told.get("code", 500)), str(told.get("reason")), str(told.get("message"))
                )
            yield event["type"], {"kind": kind, **event["object"]}

    def allowed(self, verb: str, kind: str, subresource: str = "") -> bool:
        """Whether the caller may do something to objects of a kind in the namespace."""
        version, plural = _KINDS[kind]
        attributes = {
            "namespace": self.namespace,
            "verb": verb,
            "group": version.rpartition("/")[0],
            "resource": plural,
            "subresource": subresource,
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        return bool(self.request("POST", path, body=review).get("status", {}).get("allowed"))

    # --- beneath ---------------------------------------------------------------------------------------------------

    def path(self, kind: str, name: str, namespace: str | None = None) -> str:
        """Where objects of a kind are; ``namespace=""`` is for all namespaces, and for kinds that have none."""
        version, plural = _KINDS[kind]
        parts = ["apis" if "/" in version else "api", version]
        namespace = self.namespace if namespace is None else namespace
        if namespace:
            parts += ["namespaces", namespace]
        return "/" + "/".join([*parts, plural, *([name] if name else [])])

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Object:
        """One request, and the object in its answer.

        Raises:
            ClusterError: refused, or not reached.
        """
        with (
            self._respond(method, path, body, query, content_type, accept, _READ_SECONDS) as response,
            self._reached(),
        ):
            data = response.read()
        try:
            answer = json.loads(data)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise unreachable(self.server, self.where, "what answers there is no API server of Kubernetes")
        return answer

    def lines(
        self, path: str, query: Mapping[str, str], *, read_seconds: float | None = None
    ) -> Iterator[bytes]:
        """The lines of an answer as they come, without their ends.

        Args:
            path: as of :meth:`path`, and further.
            query: of the request.
            read_seconds: longest wait for the next bytes; None: for ever.
        """
        with self._respond("GET", path, None, query, "", "*/*", read_seconds) as response:
            rest = b""
            chunks = response.stream(65536, decode_content=True)
            while True:
                with self._reached():
                    chunk = next(chunks, None)
                if chunk is None:
                    break
                *whole, rest = (rest + chunk).split(b"\n")
                yield from whole
            if rest:
                yield rest

    @property
    def server(self) -> str:
        """Address of the API server."""
        return str(self.client.configuration.host)

    @contextmanager
    def _respond(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        query: Mapping[str, str] | None,
        content_type: str,
        accept: str,
        read_seconds: float | None,
    ) -> Iterator[Any]:
        import urllib3

        headers = {"Accept": accept, "User-Agent": "webgym", **self._credentials()}
        if body is not None:
            headers["Content-Type"] = content_type
        url = self.server.rstrip("/") + path + (f"?{urlencode(query)}" if query else "")
        with self._reached():
            response = self.client.rest_client.pool_manager.request(
                method,
                url,
                body=None if body is None else json.dumps(body),
                headers=headers,
                timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=read_seconds),
                retries=False,
                preload_content=False,
            )
        try:
            if response.status >= 300:
                with self._reached():
                    told = response.read()
                raise refusal(response.status, told, path=path, where=self.where)
            yield response
        finally:
            response.close()  # what was not read of it must not be taken for the next answer
            response.release_conn()

    def _credentials(self) -> dict[str, str]:
        """Asked for each time: tokens are renewed meanwhile."""
        settings = self.client.configuration.auth_settings()
        return {
            one["key"]: one["value"] for one in settings.values() if one["in"] == "header" and one["value"]
        }

    @contextmanager
    def _reached(self) -> Iterator[None]:
        import urllib3

        try:
            yield
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise unreachable(self.server, self.where, _cause(error)) from error


def _cause(error: BaseException) -> str:
    """What is at the bottom of an error of urllib3, without the objects that it quotes."""
    while True:
        inner = getattr(error, "reason", None)
        if not isinstance(inner, BaseException):
            inner = error.__cause__
        if inner is None or inner is error:
            break
        error = inner
    text = str(getattr(error, "strerror", None) or error)
    return text.rpartition(">: ")[2].rpartition("): ")[2] or type(error).__name__
