"""The operator against a real API server: what it makes is accepted, kept, changed, and goes with its run."""

from __future__ import annotations

from real_cluster import Cluster

from webgym.spec import KIND
from webgym_operator.api import ApiError

TASK = {"task": {"name": "miniwob.click-button"}}


async def test_everything_of_a_run_is_accepted_and_goes_with_it(cluster: Cluster) -> None:
    async with cluster.operator():
        await cluster.apply("demo", {**TASK, "storage": {"retain": False, "size": "1Gi"}})

        async def made() -> bool:
            return "demo-redis" in await cluster.names("StatefulSet")

        await cluster.until("the StatefulSet is there", made)

        async def told() -> bool:
            return (await cluster.condition("demo", "Ready"))[1] == "RedisNotReady"

        await cluster.until("the status says that Redis is not ready", told)
        wanted = {
            "NetworkPolicy/demo-worker",
            "NetworkPolicy/demo-redis",
            "Service/demo-redis",
            "Secret/demo-redis",
        }
        assert wanted <= set(await cluster.everything())
        run = await cluster.run("demo")
        assert "finalizers" not in run["metadata"]
        assert run["status"]["observedGeneration"] == 1
        await cluster.api.delete(KIND, cluster.namespace, "demo")

        async def gone() -> bool:
            return await cluster.everything() == []

        await cluster.until("nothing is left", gone)


async def test_pods_that_cannot_start_are_as_many_as_asked_for_and_named(cluster: Cluster) -> None:
    async with cluster.operator():
        spec = {**TASK, "redis": {"url": "redis://127.0.0.1:1"}, "workers": {"replicas": 2, "maxBrowsers": 1}}
        await cluster.apply("stuck", spec)

        async def obstacle() -> bool:
            return (await cluster.condition("stuck", "Progressing"))[1] in (
                *("ErrImageNeverPull", "ImagePullBackOff", "ErrImagePull", "Unschedulable"),
            )

        await cluster.until("the obstacle is named", obstacle)
        assert len(await cluster.names("Pod", "webgym.io/run=stuck,webgym.io/role=worker")) == 2
        await cluster.api.patch(KIND, cluster.namespace, "stuck", {"spec": {"workers": {"replicas": 1}}})

        async def one() -> bool:
            return len(await cluster.names("Pod", "webgym.io/run=stuck,webgym.io/role=worker")) == 1

        await cluster.until("one worker is left", one)


async def test_what_somebody_deletes_comes_back(cluster: Cluster) -> None:
    async with cluster.operator():
        await cluster.apply("demo", TASK)
        for kind in ("Service", "Secret", "StatefulSet", "NetworkPolicy"):

            async def there(kind: str = kind) -> bool:
                return "demo-redis" in await cluster.names(kind)

            await cluster.until(f"the {kind} is there", there)
            await cluster.api.delete(kind, cluster.namespace, "demo-redis")
            await cluster.until(f"the {kind} is there again", there)


async def test_a_run_deleted_while_no_operator_runs_goes_all_the_same(cluster: Cluster) -> None:
    async with cluster.operator():
        await cluster.apply("demo", {**TASK, "storage": {"retain": False}})

        async def made() -> bool:
            return "demo-redis" in await cluster.names("StatefulSet")

        await cluster.until("the StatefulSet is there", made)
    await cluster.api.delete(KIND, cluster.namespace, "demo")

    async def gone() -> bool:
        return await cluster.everything() == []

    await cluster.until("nothing is left", gone)


async def test_an_invalid_spec_is_refused_or_said(cluster: Cluster) -> None:
    async with cluster.operator():
        refusal = ""
        try:
            await cluster.apply("wrong", {**TASK, "workers": {"autoscaling": {"min": 5, "max": 2}}})
        except ApiError as error:
            refusal = str(error)
        if refusal:  # the server knows the rule
            assert "min may not exceed max" in refusal
            return

        async def said() -> bool:
            return (await cluster.condition("wrong", "Succeeded"))[1] == "InvalidSpec"

        await cluster.until("the condition says so", said)


async def test_a_suspended_run_makes_nothing_and_its_scale_can_be_read(cluster: Cluster) -> None:
    async with cluster.operator():
        await cluster.apply("later", {**TASK, "suspend": True})

        async def suspended() -> bool:
            return (await cluster.condition("later", "Suspended"))[0] == "True"

        await cluster.until("it is suspended", suspended)
        assert await cluster.everything() == []
        path = cluster.api.path(KIND, cluster.namespace, "later") + "/scale"
        scale = await cluster.api.request("GET", path)
        assert scale["spec"]["replicas"] == 1
        assert scale["status"]["selector"] == "webgym.io/role=worker,webgym.io/run=later"
