"""Runs whose pods no node takes, and what is seen of their workers."""

from __future__ import annotations

from typing import Any

from real_cluster import Cluster

from webgym.spec import KIND

__all__ = ["NOWHERE", "TASK", "change", "pool", "settled", "until_workers", "workers"]

TASK = {"task": {"name": "miniwob.click-button"}}
NOWHERE = {"nodeSelector": {"webgym.io/test": "nowhere"}}
"""Pods that no node takes: nothing happens to them but what the operator does."""


def pool(replicas: int, **workers: Any) -> dict[str, Any]:
    outside = {"url": "redis://127.0.0.1:1"}
    return {
        **TASK,
        "redis": outside,
        "learner": NOWHERE,
        "workers": {"replicas": replicas, **NOWHERE, **workers},
    }


async def workers(cluster: Cluster, run: str) -> dict[str, dict[str, Any]]:
    """Worker pods of a run by uid, without those that leave."""
    found, _ = await cluster.api.list("Pod", cluster.namespace, f"webgym.io/run={run},webgym.io/role=worker")
    return {pod["metadata"]["uid"]: pod for pod in found if not pod["metadata"].get("deletionTimestamp")}


async def until_workers(cluster: Cluster, run: str, number: int) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}

    async def there() -> bool:
        nonlocal found
        found = await workers(cluster, run)
        assert len(found) <= 4, "more worker pods than ever were asked for"
        return len(found) == number

    await cluster.until(f"{run} has {number} worker pods", there)
    return found


async def change(cluster: Cluster, run: str, **of_workers: Any) -> None:
    await cluster.api.patch(KIND, cluster.namespace, run, {"spec": {"workers": of_workers}})


async def settled(cluster: Cluster, run: str) -> None:
    async def seen() -> bool:
        body = await cluster.run(run)
        return bool((body.get("status") or {}).get("observedGeneration") == body["metadata"]["generation"])

    await cluster.until(f"{run} is looked after as it is now", seen)
