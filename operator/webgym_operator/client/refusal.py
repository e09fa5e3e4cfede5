"""What an API server refuses, as one line that says what to do about it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from webgym.crd import GROUP, PLURAL
from webgym.errors import ExitCode, WebGymError

__all__ = ["ClusterError", "refusal", "unreachable"]

_FORBIDDEN = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]*)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]*)")?'
)


class ClusterError(WebGymError):
    """The API server refused, or cannot be reached (status 0)."""

    exit_code = ExitCode.FAILURE

    def __init__(
        self, status: int, reason: str, message: str, *, by_rights: bool = False, brief: str = ""
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        """As the server says it: NotFound, AlreadyExists, Conflict, Invalid, Forbidden, Expired, ..."""
        self.by_rights = by_rights
        """Whether it was the caller's rights that did not suffice, not a quota or a policy."""
        self.brief = brief or message
        """The message without what to do about it."""


def unreachable(server: str, where: str, why: str) -> ClusterError:
    """The server does not answer.

    Args:
        server: its address.
        where: the context or whatever else named it.
        why: what the connection met.
    """
    return ClusterError(
        0,
        "Unreachable",
        f"the API server {server} of {where} cannot be reached: {why}; is the cluster up, and is it the one you mean "
        "(--context, --kubeconfig)?",
    )


def refusal(status: int, answer: bytes, *, path: str, where: str) -> ClusterError:
    """The error for an answer that is none of 2xx.

    Args:
        status: of HTTP.
        answer: its body: a Status object, or text of whoever stands between.
        path: that was asked for.
        where: the context or whatever else named the cluster.
    """
    told = _status(answer)
    reason = str(told.get("reason") or f"HTTP {status}")
    message = str(told.get("message") or "no message")
    forbidden = _FORBIDDEN.search(message) if status == 403 else None
    if forbidden is not None:
        brief, mend = _no_right(forbidden)
        return ClusterError(status, reason, f"{brief}: {mend}", by_rights=True, brief=brief)
    if status == 401:
        return ClusterError(
            status,
            reason,
            f"the API server does not accept the credentials of {where}: log in again, or name another context by "
            "--context",
        )
    if status == 404 and path.startswith(f"/apis/{GROUP}/") and not told.get("details"):
        return ClusterError(
            status,
            "NoDefinition",
            f"the cluster does not know WebGymRun ({PLURAL}.{GROUP}): install the chart, helm install webgym "
            "charts/webgym --namespace webgym --create-namespace",
        )
    return ClusterError(status, reason, message)


def _no_right(found: re.Match[str]) -> tuple[str, str]:
    """Who may not do what, and what to do about it."""
    verb, resource, namespace = found["verb"], found["resource"], found["namespace"]
    full = resource + (f".{found['group']}" if found["group"] else "")
    where = f" in namespace {namespace}" if namespace else ""
    scope = f" --namespace {namespace}" if namespace else ""
    test = f"kubectl auth can-i {verb} {full}{scope}"
    return (
        f"{found['user']} may not {verb} {full}{where}",
        f"ask whoever runs the cluster for a role that may; {test} tells when it is so",
    )


def _status(answer: bytes) -> Mapping[str, Any]:
    try:
        told = json.loads(answer)
    except ValueError:
        told = None
    return told if isinstance(told, dict) else {"message": answer.decode(errors="replace").strip()[:500]}
