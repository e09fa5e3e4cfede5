"""What the operator gets over against a real API server: forgotten watches, faults of its own, pods that cannot go."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from forgetful_gateway import Gateway
from real_cluster import Cluster
from worker_pools import change, pool, until_workers, workers

from webgym_operator.observed import STUCK_AFTER


async def test_watches_that_come_too_late_are_made_up_for_without_a_resync(cluster: Cluster) -> None:
    async with Gateway(cluster.folder).open() as gateway:
        through = {"KUBECONFIG": str(gateway.kubeconfig), "WEBGYM_RESYNC_SECONDS": "600"}
        async with cluster.operator(**through) as process:
            await cluster.apply("pool", pool(2))
            before = await until_workers(cluster, "pool", 2)
            gateway.forget()
            gone = next(iter(before))
            name = before[gone]["metadata"]["name"]
            await cluster.api.delete("Pod", cluster.namespace, name, grace_seconds=0)
            await change(cluster, "pool", replicas=3)
            await cluster.apply("later", pool(1))
            now = await until_workers(cluster, "pool", 3)
            assert gone not in now
            await until_workers(cluster, "later", 1)
            assert {"pods", "webgymruns"} <= {path.rpartition("/")[2] for path in gateway.expired}
            assert process.returncode is None


FAULTY = """
import webgym_operator.controller as controller

sound = controller.reconcile


def faulty(run, observed, world):
    if run.spec.seed == 13 and run.spec.workers.replicas == 1:
        raise ZeroDivisionError("by design")
    return sound(run, observed, world)


controller.reconcile, controller._TRIES = faulty, 3
"""
"""A fault that one run meets, and only as it was first."""


async def test_a_fault_of_the_operator_ends_in_a_condition_and_concerns_one_run(cluster: Cluster) -> None:
    folder = cluster.folder / "faulty"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(FAULTY)
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    async with cluster.operator(PYTHONPATH=path) as process:
        await cluster.apply("unlucky", {**pool(1), "seed": 13})
        await cluster.apply("other", pool(1))
        await until_workers(cluster, "other", 1)

        async def said() -> bool:
            return (await cluster.condition("unlucky", "Ready"))[1] == "InternalError"

        await cluster.until("the condition tells of it", said, 40)
        truth, _, message = await cluster.condition("unlucky", "Ready")
        assert truth == "False"
        assert "ZeroDivisionError: by design; it tried 3 times" in message
        assert await workers(cluster, "unlucky") == {}
        assert tries(cluster.folder) == 3
        version = (await cluster.run("unlucky"))["metadata"]["resourceVersion"]
        await change(cluster, "other", replicas=2)
        await until_workers(cluster, "other", 2)
        assert (await cluster.run("unlucky"))["metadata"]["resourceVersion"] == version
        assert tries(cluster.folder) == 3
        await change(cluster, "unlucky", replicas=2)
        await until_workers(cluster, "unlucky", 2)
        assert process.returncode is None


def tries(folder: Path) -> int:
    (log,) = folder.glob("operator-*.log")
    return log.read_text().count("/unlucky: reconciliation ")


async def test_a_pod_that_cannot_go_keeps_no_successor_waiting_for_ever(cluster: Cluster) -> None:
    """As on a node that was drained and is lost: asked to go, and still there when its grace is over."""
    async with cluster.operator():
        await cluster.apply("pool", pool(2))
        before = await until_workers(cluster, "pool", 2)
        stuck = next(pod for pod in before.values() if pod["metadata"]["name"].endswith("-worker-0-0"))
        name = stuck["metadata"]["name"]
        await hold(cluster, name, ["webgym.io/test"])
        try:
            await cluster.api.delete("Pod", cluster.namespace, name)
            asked = time.monotonic()
            # Within its grace it counts: there are no more pods than asked for.
            left = await until_workers(cluster, "pool", 1)
            after = await until_workers(cluster, "pool", 2)
            assert time.monotonic() - asked > STUCK_AFTER - 5
            assert after.keys() > left.keys()
            assert stuck["metadata"]["uid"] not in after
            still = await cluster.api.get("Pod", cluster.namespace, name)
            assert still["metadata"]["uid"] == stuck["metadata"]["uid"]
            await change(cluster, "pool", replicas=3)
            assert (await until_workers(cluster, "pool", 3)).keys() > after.keys()
        finally:
            await hold(cluster, name, None)
        assert (await cluster.run("pool"))["status"].get("restarts", 0) == 0


async def hold(cluster: Cluster, pod: str, finalizers: list[str] | None) -> None:
    change: dict[str, Any] = {"metadata": {"finalizers": finalizers}}
    await cluster.api.patch("Pod", cluster.namespace, pod, change)
