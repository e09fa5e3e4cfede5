"""A whole run on a real node: the chart, the images, training to success, and nothing left after it."""

from __future__ import annotations

import asyncio
import os
import time

import pytest
from real_cluster import ROOT, Cluster
from ruamel.yaml import YAML

from webgym.spec import KIND

pytestmark = pytest.mark.skipif(
    os.environ.get("WEBGYM_TEST_IMAGES") != "1",
    reason="needs the images on the nodes: make images, load them, and set WEBGYM_TEST_IMAGES=1",
)
VALUES = {
    "crds": {"enabled": False},
    "images": {"pullPolicy": "Never"},
    "operator": {"resyncSeconds": 5, "statusSeconds": 2, "logFormat": "json"},
}


async def test_an_agent_learns_and_everything_goes(cluster: Cluster) -> None:
    helm = pytest.importorskip("helm_python", reason="pip install helm-python-sdk")
    values = {**VALUES, "watchNamespaces": [cluster.namespace]}
    with helm.Config(namespace=cluster.namespace) as config:
        chart = str(ROOT / "charts" / "webgym")
        await asyncio.to_thread(config.install, chart, "webgym", values, wait="watcher", timeout=180)
        try:
            await train(cluster)
        finally:
            await asyncio.to_thread(config.uninstall, "webgym")


async def train(cluster: Cluster) -> None:
    example = YAML(typ="safe").load(ROOT / "examples" / "kubernetes" / "click-button.yaml")
    spec = {**example["spec"], "storage": {"size": "1Gi", "retain": False}}
    applied = time.monotonic()
    await cluster.apply("demo", spec)

    async def updates() -> bool:
        return bool(((await cluster.run("demo")).get("status") or {}).get("updates"))

    await cluster.until("the first gradient step", updates, 240)
    assert (await cluster.condition("demo", "Succeeded"))[:2] == ("Unknown", "Training")
    print(f"first gradient step seen {time.monotonic() - applied:.1f} s after apply")

    async def over() -> bool:
        return (await cluster.condition("demo", "Succeeded"))[0] in ("True", "False")

    await cluster.until("the run is over", over, 900)
    status, reason, message = await cluster.condition("demo", "Succeeded")
    assert (status, reason) == ("True", "Completed"), message
    assert (await cluster.run("demo"))["status"]["success"] >= 0.95
    deleted = time.monotonic()
    await cluster.api.delete(KIND, cluster.namespace, "demo")

    async def gone() -> bool:
        return await cluster.everything() == []

    await cluster.until("nothing is left", gone, 90)
    print(f"nothing left {time.monotonic() - deleted:.1f} s after deletion")
