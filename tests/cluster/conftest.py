"""A real cluster, named by KUBECONFIG; without one these tests skip, and say how to get one. With
WEBGYM_REQUIRE_CLUSTER=1 they fail instead.

What they make lies in a namespace of its own, which goes with them; the CustomResourceDefinition stays. With
WEBGYM_TEST_IMAGES=1 the images webgym-operator, webgym-worker and webgym-learner of the chart's version have to be on
the nodes (`make images`, then `kind load docker-image ...`), and whole runs are tried.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from real_cluster import Cluster

from webgym.crd import CRD_NAME, build_crd
from webgym_operator.api import Api, ApiError, connection

HOW = (
    "set KUBECONFIG to a cluster for tests; one of your own: kind create cluster, or k3d cluster create, "
    "and then KUBECONFIG=~/.kube/config make test-cluster"
)


def _without(why: str) -> None:
    if os.environ.get("WEBGYM_REQUIRE_CLUSTER") == "1":
        pytest.fail(why)
    pytest.skip(why)


async def _server_version(api: Api) -> tuple[int, int]:
    told = await api.request("GET", "/version")
    return int(told["major"]), int("".join(c for c in told["minor"] if c.isdigit()))


async def _install_definition(api: Api) -> None:
    crd = build_crd(cel=await _server_version(api) >= (1, 25))
    try:
        await api.create(crd)
    except ApiError as error:
        if error.status != 409:
            raise
        path = api.path("CustomResourceDefinition", None, CRD_NAME)
        await api.request("PATCH", path, crd, content_type="application/merge-patch+json")
    deadline = time.monotonic() + 30
    while not await api.exists("/apis/webgym.io/v1alpha1"):
        assert time.monotonic() < deadline, "the CustomResourceDefinition is not served"
        await asyncio.sleep(0.1)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    if not os.environ.get("KUBECONFIG"):
        _without(HOW)
    async with Api(connection) as api:
        try:
            await api.request("GET", "/version")
        except ApiError as error:
            _without(f"{error}; {HOW}")
        await _install_definition(api)
        name = f"webgym-test-{uuid.uuid4().hex[:8]}"
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await api.request("POST", "/api/v1/namespaces", namespace)
        try:
            yield Cluster(api, name, tmp_path)
        finally:
            with contextlib.suppress(ApiError):
                await api.request("DELETE", f"/api/v1/namespaces/{name}", {})
