"""Faults against a real API server: operators that die or are two, connections that break, runs that come again."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from real_cluster import Cluster
from worker_pools import NOWHERE, TASK, change, pool, settled, until_workers, workers

from webgym.spec import KIND
from webgym_operator.api import ApiError, connection


async def test_a_change_touches_what_it_concerns_and_a_deleted_pod_comes_back(cluster: Cluster) -> None:
    async with cluster.operator():
        await cluster.apply("pool", pool(4))
        first = await until_workers(cluster, "pool", 4)
        await change(cluster, "pool", replicas=3)
        fewer = await until_workers(cluster, "pool", 3)
        assert fewer.keys() <= first.keys(), "scaling down by one made others anew"
        gone = next(iter(fewer))
        await cluster.api.delete("Pod", cluster.namespace, fewer[gone]["metadata"]["name"], grace_seconds=0)

        async def back() -> bool:
            now = await workers(cluster, "pool")
            return gone not in now and len(now) == 3

        await cluster.until("another pod is in its place", back)
        assert len((await workers(cluster, "pool")).keys() & fewer.keys()) == 2
        await change(
            cluster, "pool", image="webgym.invalid/worker:1", env=[{"name": "COLOUR", "value": "blue"}]
        )

        async def renewed() -> bool:
            containers = [pod["spec"]["containers"][0] for pod in (await workers(cluster, "pool")).values()]
            return len(containers) == 3 and all(
                one["image"] == "webgym.invalid/worker:1"
                and {"name": "COLOUR", "value": "blue"} in one["env"]
                for one in containers
            )

        await cluster.until("all pods have the new image and variable", renewed)


async def test_operators_that_are_killed_and_two_at_a_time_make_what_one_would(cluster: Cluster) -> None:
    await cluster.apply("pool", pool(3))
    for seconds in (1.5, 2.0, 2.5, 3.0):  # killed in starting, in the first look, in making things
        async with cluster.operator() as process:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), seconds)
    async with cluster.operator(), cluster.operator():
        first = await until_workers(cluster, "pool", 3)
        await settled(cluster, "pool")
        # The manifest that new pods read is another one; there is a ConfigMap more for a while.
        before = {one for one in await cluster.everything() if not one.startswith("ConfigMap/")}
        await change(cluster, "pool", replicas=4)
        assert (await until_workers(cluster, "pool", 4)).keys() >= first.keys()
        await settled(cluster, "pool")
        after = {one for one in await cluster.everything() if not one.startswith("ConfigMap/")}
        assert before < after
        assert len(after) == len(before) + 1
        assert not (await cluster.run("pool"))["status"].get("restarts")


@contextlib.asynccontextmanager
async def relay(folder: Path) -> AsyncIterator[tuple[Path, asyncio.Event]]:
    """A kubeconfig whose connections can be cut: while the event is set they are, and new ones are refused."""
    info, down = connection(), asyncio.Event()
    server = urlsplit(info.server)
    open_ones: set[asyncio.StreamWriter] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if down.is_set():
            writer.close()
            return
        there, back = await asyncio.open_connection(server.hostname, server.port or 443)
        both = {writer, back}
        open_ones.update(both)
        cut = asyncio.create_task(down.wait())
        pumps = [asyncio.create_task(pump(reader, back)), asyncio.create_task(pump(there, writer))]
        await asyncio.wait([cut, *pumps], return_when=asyncio.FIRST_COMPLETED)
        for one in both:
            one.close()
        for task in (cut, *pumps):
            task.cancel()
        await asyncio.gather(cut, *pumps, return_exceptions=True)
        open_ones.difference_update(both)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    cluster: dict[str, Any] = {
        "server": f"{server.scheme}://127.0.0.1:{port}",
        "insecure-skip-tls-verify": True,
    }
    user: dict[str, Any] = {}
    for key, path, data in (
        ("client-certificate", info.certificate_path, info.certificate_data),
        ("client-key", info.private_key_path, info.private_key_data),
    ):
        if path:
            user[key] = str(path)
        elif data:
            user[f"{key}-data"] = data.decode() if isinstance(data, bytes) else data
    if info.token:
        user["token"] = info.token
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "relay",
        "contexts": [{"name": "relay", "context": {"cluster": "relay", "user": "relay"}}],
        "clusters": [{"name": "relay", "cluster": cluster}],
        "users": [{"name": "relay", "user": user}],
    }
    path = folder / "relay.kubeconfig"
    path.write_text(json.dumps(config))
    path.chmod(0o600)
    async with listening:
        try:
            yield path, down
        finally:
            down.set()
            listening.close()
            async with asyncio.timeout(10):
                while open_ones:
                    await asyncio.sleep(0.01)


async def test_what_happens_while_the_server_cannot_be_reached_is_caught_up_with(cluster: Cluster) -> None:
    async with (
        relay(cluster.folder) as (kubeconfig, down),
        cluster.operator(KUBECONFIG=str(kubeconfig)) as process,
    ):
        await cluster.apply("pool", pool(2))
        before = await until_workers(cluster, "pool", 2)
        down.set()
        for pod in before.values():
            await cluster.api.delete("Pod", cluster.namespace, pod["metadata"]["name"], grace_seconds=0)
        await change(cluster, "pool", replicas=3)
        await cluster.apply("later", pool(1))
        assert await workers(cluster, "pool") == {}
        down.clear()
        assert not (await until_workers(cluster, "pool", 3)).keys() & before.keys()
        await until_workers(cluster, "later", 1)
        assert process.returncode is None


async def test_a_namespace_goes_although_no_operator_runs(cluster: Cluster) -> None:
    async with cluster.operator():
        await cluster.apply("pool", {**TASK, "workers": {"replicas": 2, **NOWHERE}})

        async def made() -> bool:
            return "pool-redis" in await cluster.names("StatefulSet")

        await cluster.until("the StatefulSet is there", made)
    path = f"/api/v1/namespaces/{cluster.namespace}"
    await cluster.api.request("DELETE", path, {})

    async def gone() -> bool:
        return not await cluster.api.exists(path)

    await cluster.until("the namespace is gone", gone)


async def test_a_run_that_comes_again_has_nothing_of_the_old_one(cluster: Cluster) -> None:
    async def things(owner: str = "") -> dict[str, str]:
        """Identities by kind and name; of what one run owns, where its uid is given."""
        found = {}
        for kind in ("Secret", "StatefulSet", "Service", "PersistentVolumeClaim"):
            items, _ = await cluster.api.list(kind, cluster.namespace, "webgym.io/run=again")
            for item in items:
                if owner and owner not in {one["uid"] for one in item["metadata"].get("ownerReferences", ())}:
                    continue
                found[f"{kind}/{item['metadata']['name']}"] = str(item["metadata"]["uid"])
        return found

    async with cluster.operator():
        await cluster.apply("again", {**TASK, "learner": NOWHERE, "workers": NOWHERE})

        async def made() -> bool:
            return "StatefulSet/again-redis" in await things()

        await cluster.until("the StatefulSet is there", made)
        old = await things()
        password = (await cluster.api.get("Secret", cluster.namespace, "again-redis"))["data"]
        await cluster.api.delete(KIND, cluster.namespace, "again")
        await cluster.apply("again", {**TASK, "learner": NOWHERE, "workers": NOWHERE})

        # Not any StatefulSet: before the operator hears of the deletion it may mend what the cluster removes first.
        uid = str((await cluster.run("again"))["metadata"]["uid"])

        async def anew() -> bool:
            return "StatefulSet/again-redis" in await things(uid)

        await cluster.until("the StatefulSet is another one", anew)
        now = await things()
        kept = {name for name in now if now[name] in old.values()}
        assert kept <= {name for name in now if name.startswith("PersistentVolumeClaim/again-")}
        assert f"PersistentVolumeClaim/again-{uid}" not in old
        assert (await cluster.api.get("Secret", cluster.namespace, "again-redis"))["data"] != password


async def test_an_outside_autoscaler_is_left_alone(cluster: Cluster) -> None:
    async with cluster.operator():
        await cluster.apply("pool", pool(1, autoscaling={"mode": "External", "min": 1, "max": 4}))
        await until_workers(cluster, "pool", 1)
        path = cluster.api.path(KIND, cluster.namespace, "pool") + "/scale"
        # As autoscalers do it that retry a conflict: the operator may write the status at the same moment.
        wanted = {"spec": {"replicas": 3}}
        await cluster.api.request("PATCH", path, wanted, content_type="application/merge-patch+json")
        await until_workers(cluster, "pool", 3)

        async def told() -> bool:
            seen = await cluster.api.request("GET", path)
            return bool(seen["status"]["replicas"] == 3)

        await cluster.until("the scale tells of three", told)
        assert (await cluster.run("pool"))["spec"]["workers"]["replicas"] == 3


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, r"spec\.task"),
        ({**TASK, "workers": {"replicas": -1}}, r"spec\.workers\.replicas.*greater than or equal to 0"),
        ({**TASK, "mode": "Fast"}, r"spec\.mode.*Asynchronous"),
        ({**TASK, "workers": {"autoscaling": {"mode": "Auto"}}}, r"spec\.workers\.autoscaling\.mode"),
        ({**TASK, "seed": "seven"}, r"spec\.seed.*integer"),
    ],
)
async def test_what_the_schema_forbids_is_refused_by_name(
    cluster: Cluster, spec: dict[str, Any], said: str
) -> None:
    with pytest.raises(ApiError, match=said) as refusal:
        await cluster.apply("wrong", spec)
    assert refusal.value.status == 422
