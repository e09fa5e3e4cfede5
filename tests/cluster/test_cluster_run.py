"""Whole runs on a real node: the chart, the images, training to success, faults, and nothing left after it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from real_cluster import ROOT, Cluster
from ruamel.yaml import YAML

from webgym.spec import KIND
from webgym_operator.api import ApiError

helm = pytest.importorskip("helm_python", reason="pip install helm-python-sdk")

pytestmark = pytest.mark.skipif(
    os.environ.get("WEBGYM_TEST_IMAGES") != "1",
    reason="needs the images on the nodes: make images, load them, and set WEBGYM_TEST_IMAGES=1",
)
VALUES = {
    "crds": {"enabled": False},
    "images": {"pullPolicy": "Never"},
    "operator": {"resyncSeconds": 5, "statusSeconds": 2, "logFormat": "json"},
}
TASK = {"task": {"name": "miniwob.click-button"}}
SMALL = {
    **TASK,
    "workers": {"maxBrowsers": 2, "memoryPerBrowser": "1Gi"},
    "storage": {"size": "1Gi", "retain": False},
}


class Release:
    """The chart, installed for the namespace of the test."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._config = helm.Config(namespace=cluster.namespace)

    async def install(self) -> None:
        values = {**VALUES, "watchNamespaces": [self._cluster.namespace]}
        chart = str(ROOT / "charts" / "webgym")
        await asyncio.to_thread(self._config.install, chart, "webgym", values, wait="watcher", timeout=180)

    async def test(self) -> Any:
        return await asyncio.to_thread(self._config.test, "webgym", timeout=120)

    async def uninstall(self) -> None:
        await asyncio.to_thread(self._config.uninstall, "webgym")

    def close(self) -> None:
        self._config.close()


@pytest.fixture
async def release(cluster: Cluster) -> AsyncIterator[Release]:
    release = Release(cluster)
    await release.install()
    try:
        yield release
    finally:
        names = [item["metadata"]["name"] for item in (await cluster.api.list(KIND, cluster.namespace))[0]]
        for name in names:
            await cluster.api.delete(KIND, cluster.namespace, name)
        with contextlib.suppress(helm.HelmError):  # the test may have done it
            await release.uninstall()
        release.close()


async def status(cluster: Cluster, name: str) -> dict[str, Any]:
    return (await cluster.run(name)).get("status") or {}


async def until_training(cluster: Cluster, name: str, more_than: int = 0) -> float:
    async def updates() -> bool:
        now = await status(cluster, name)
        assert (await cluster.condition(name, "Succeeded"))[0] != "False", now
        return now.get("updates", 0) > more_than

    return await cluster.until(f"the learner has made {more_than + 1} gradient steps", updates, 300)


async def until_over(cluster: Cluster, name: str, seconds: float) -> tuple[str, str, str]:
    """The verdict on a run, once there is one: its truth, reason and message."""

    async def over() -> bool:
        return (await cluster.condition(name, "Succeeded"))[0] in ("True", "False")

    await cluster.until("the run is over", over, seconds)
    return await cluster.condition(name, "Succeeded")


async def until_gone(cluster: Cluster, kept: tuple[str, ...] = ()) -> float:
    async def gone() -> bool:
        return [one for one in await cluster.everything() if one not in kept] == []

    return await cluster.until("nothing is left", gone, 120)


async def test_an_agent_learns_and_everything_goes(cluster: Cluster, release: Release) -> None:
    await release.test()
    example = YAML(typ="safe").load(ROOT / "examples" / "kubernetes" / "click-button.yaml")
    await cluster.apply("demo", example["spec"])
    print(f"first gradient step seen {await until_training(cluster, 'demo'):.1f} s after apply")
    assert (await cluster.condition("demo", "Succeeded"))[:2] == ("Unknown", "Training")
    assert (await cluster.condition("demo", "Ready"))[:2] == ("True", "Running")

    async def told() -> bool:
        return (await cluster.condition("demo", "BrowserSandbox"))[0] != "Unknown"

    await cluster.until("workers have told of their sandbox", told, 60)

    truth, reason, message = await until_over(cluster, "demo", 900)
    assert (truth, reason) == ("True", "Completed"), message
    assert (await status(cluster, "demo"))["success"] >= 0.95

    async def released() -> bool:
        pods, _ = await cluster.api.list("Pod", cluster.namespace, "webgym.io/run=demo")
        return all(pod["status"]["phase"] == "Succeeded" for pod in pods)

    await cluster.until("its pods are released", released, 60)
    claim = next(n for n in await cluster.names("PersistentVolumeClaim") if n != "demo-redis")
    began = time.monotonic()
    await cluster.api.delete(KIND, cluster.namespace, "demo")
    await until_gone(cluster, kept=(f"PersistentVolumeClaim/{claim}",))
    print(f"nothing left {time.monotonic() - began:.1f} s after deletion")
    assert await cluster.names("PersistentVolumeClaim") == [claim]


async def test_a_task_that_nobody_knows_ends_the_run_with_the_reason(
    cluster: Cluster, release: Release
) -> None:
    """The programs tell so by their exit codes, under the Python of the images."""
    await cluster.apply("demo", {**SMALL, "task": {"name": "miniwob.no-such-task"}})
    truth, reason, message = await until_over(cluster, "demo", 180)
    assert (truth, reason) == ("False", "InvalidConfiguration"), message
    assert "no-such-task" in message


async def test_a_run_outlives_what_a_cluster_does_to_it(cluster: Cluster, release: Release) -> None:
    await cluster.apply("demo", {**SMALL, "stop": {"seconds": 3600}})
    await until_training(cluster, "demo")

    # A worker pod goes in mid-episode: its successor acts, and the run goes on.
    (before,) = await pods_of(cluster, "demo", "worker")
    (name,) = await cluster.names("Pod", "webgym.io/run=demo,webgym.io/role=worker")
    await cluster.api.delete("Pod", cluster.namespace, name, grace_seconds=0)

    async def replaced() -> bool:
        # By unique names: where nothing is left of the pod, its successor may bear its name.
        now = await status(cluster, "demo")
        workers = await pods_of(cluster, "demo", "worker")
        return workers != set() and before not in workers and now.get("readyReplicas") == 1

    await cluster.until("another worker acts", replaced, 120)
    assert (await status(cluster, "demo"))["restarts"] == 0

    # What somebody deletes comes back, and nobody had to start again for it.
    learner = await pods_of(cluster, "demo", "learner")
    for kind in ("Service", "Secret"):
        await cluster.api.delete(kind, cluster.namespace, "demo-redis")

        async def back(kind: str = kind) -> bool:
            return "demo-redis" in await cluster.names(kind)

        await cluster.until(f"the {kind} is there again", back, 60)
    assert await pods_of(cluster, "demo", "learner") == learner

    # Suspended, all its pods go; resumed, it goes on from its checkpoint.
    steps = (await status(cluster, "demo"))["updates"]
    await cluster.api.patch(KIND, cluster.namespace, "demo", {"spec": {"suspend": True}})

    async def suspended() -> bool:
        return (await cluster.condition("demo", "Suspended"))[0] == "True"

    await cluster.until("it is suspended", suspended, 120)
    assert await cluster.names("Pod") == []
    await cluster.api.patch(KIND, cluster.namespace, "demo", {"spec": {"suspend": False}})
    await until_training(cluster, "demo", steps)

    # The chart goes while the run is alive; then the run goes, and nobody is there to help.
    await release.uninstall()
    began = time.monotonic()
    await cluster.api.delete(KIND, cluster.namespace, "demo")
    await until_gone(cluster)
    print(f"nothing left {time.monotonic() - began:.1f} s after deletion, without an operator")


async def test_a_learner_without_memory_is_named_as_such(cluster: Cluster, release: Release) -> None:
    little = {"resources": {"limits": {"memory": "96Mi"}}}
    await cluster.apply("demo", {**SMALL, "learner": little, "backoffLimit": 0})

    truth, reason, message = await until_over(cluster, "demo", 180)
    assert truth == "False"
    assert reason == "BackoffLimitExceeded"
    assert "out of memory" in message
    assert "learner.resources.limits.memory" in message


KILLS, KILL_SECONDS = 18, 10.0


async def test_an_operator_killed_again_and_again_costs_a_run_nothing(
    cluster: Cluster, release: Release
) -> None:
    await cluster.apply("demo", {**SMALL, "stop": {"seconds": 200}, "evaluation": {"episodes": 50}})
    await until_training(cluster, "demo")
    before = await pods_of(cluster, "demo")
    selector = "app.kubernetes.io/name=webgym,app.kubernetes.io/component=operator"
    killed: set[str] = set()
    began = time.monotonic()
    for number in range(KILLS):
        await asyncio.sleep(max(0.0, began + number * KILL_SECONDS - time.monotonic()))
        for name in await cluster.names("Pod", selector):
            killed.add(name)
            with contextlib.suppress(ApiError):  # a pod that was dying already
                await cluster.api.delete("Pod", cluster.namespace, name, grace_seconds=0)
    assert len(killed) >= KILLS - 2
    assert await pods_of(cluster, "demo") == before

    truth, reason, message = await until_over(cluster, "demo", 400)
    assert (truth, reason) == ("True", "Completed"), message
    now = await status(cluster, "demo")
    assert now["restarts"] == 0
    assert now["success"] >= 0.95
    print(f"{len(killed)} operators were killed; {now['steps']} steps, success {now['success']}")


async def pods_of(cluster: Cluster, run: str, role: str = "") -> set[str]:
    """Unique names of a run's pods: one that was replaced by another of the same name differs."""
    selector = f"webgym.io/run={run}" + (f",webgym.io/role={role}" if role else "")
    pods, _ = await cluster.api.list("Pod", cluster.namespace, selector)
    return {pod["metadata"]["uid"] for pod in pods}
