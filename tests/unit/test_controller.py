"""The layer around the decision: watches, writes, retries, time; over real requests to a server in memory."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from operator_runs import SETTINGS, run_body
from operator_server import Server, failure

from webgym.crd import build_crd
from webgym.run.snapshot import Snapshot
from webgym.spec import KIND
from webgym.spec.status import RunStatus
from webgym_operator import controller as module
from webgym_operator.api import Api
from webgym_operator.cache import Cache
from webgym_operator.controller import Controller
from webgym_operator.events import notes_of
from webgym_operator.figures import busy_workers
from webgym_operator.observed import Figures
from webgym_operator.plan import Create, Delete, Plan
from webgym_operator.resources import CHILD_KINDS
from webgym_operator.run import Run
from webgym_operator.schema_check import missing_fields
from webgym_operator.watching import Resync, watch_children

QUICK = dataclasses.replace(SETTINGS, status_seconds=0.2, resync_seconds=0.5)


class Says:
    """Figures as a test wants them."""

    def __init__(self) -> None:
        self.figures: Figures | None = None

    async def read(self, run: Run) -> tuple[Figures | None, str]:
        return self.figures, ""

    async def forget(self, key: tuple[str, str]) -> None:
        pass


class Operator:
    def __init__(self, server: Server, api: Api) -> None:
        self.server, self.api = server, api
        self.cache = Cache()
        self.says = Says()
        self.controller = Controller(api, self.cache, QUICK, self.says)
        self.resync = Resync(api, self.cache, self.controller, (), QUICK.resync_seconds)

    async def runs(self) -> None:
        await self.resync.once()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.controller.work())
            group.create_task(self.resync.forever())
            for kind in CHILD_KINDS:
                group.create_task(watch_children(self.api, self.cache, kind, None, self.controller.mark))


@contextlib.asynccontextmanager
async def operating(server: Server) -> AsyncIterator[Operator]:
    async with Api(server.login) as api:
        operator = Operator(server, api)
        task = asyncio.create_task(operator.runs())
        try:
            yield operator
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = await Server().start()
    yield made
    await made.stop()


async def until(check: Callable[[], Any], server: Server | None = None, seconds: float = 30.0) -> None:
    """Wait for something, while the rest of the cluster does its work."""
    try:
        async with asyncio.timeout(seconds):
            while not check():
                if server is not None:
                    server.start_pods()
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"did not come to pass: {check}") from None


def run_of(server: Server, name: str = "demo") -> Any:
    return server.objects[KIND, "lab", name]


def condition(server: Server, type_: str) -> tuple[str, str, str]:
    for one in run_of(server).get("status", {}).get("conditions", ()):
        if one["type"] == type_:
            return one["status"], one["reason"], one["message"]
    return "", "", ""


def ready(server: Server) -> Callable[[], bool]:
    return lambda: condition(server, "Ready")[0] == "True"


async def test_a_run_comes_up_and_then_nothing_is_written(server: Server) -> None:
    server.put(run_body({"workers": {"replicas": 3}}), "ADDED")
    async with operating(server):
        # A run is ready before the last of its workers is.
        await until(lambda: run_of(server).get("status", {}).get("readyReplicas") == 3, server)
        await until(ready(server), server)
        await asyncio.sleep(0.5)
        before = server.writes
        await asyncio.sleep(1.1)  # two resyncs
        assert server.writes == before
        assert len(server.names("Pod")) == 4
        assert RunStatus.model_validate(run_of(server)["status"], by_alias=True).ready_replicas == 3
        assert "PodsCreated" in {event["reason"] for event in server.of("Event")}


async def test_no_pod_is_made_twice_while_watches_are_silent(server: Server) -> None:
    server.deaf = True
    server.put(run_body({"workers": {"replicas": 5}}), "ADDED")
    async with operating(server):
        await until(ready(server), server)
        for _ in range(20):
            server.put(run_of(server))
            await asyncio.sleep(0.02)
    assert server.requests["POST Pod"] == 6


async def test_two_operators_do_no_harm(server: Server) -> None:
    server.put(run_body({"workers": {"replicas": 4}}), "ADDED")
    async with operating(server), operating(server):
        await until(ready(server), server)
        await asyncio.sleep(0.5)
    assert len(server.names("Pod")) == 5
    assert len(server.names("Secret")) == 1


async def test_a_watch_that_is_cut_or_too_old_is_made_up_for(server: Server) -> None:
    server.put(run_body(), "ADDED")
    async with operating(server):
        await until(ready(server), server)
        server.oldest = 10**9
        server.deaf = True
        server.drop("Service", "demo-redis")
        await until(lambda: "demo-redis" in server.names("Service"))


async def test_an_operator_that_comes_back_goes_on_where_the_last_one_was(server: Server) -> None:
    server.put(run_body({"workers": {"replicas": 2}}), "ADDED")
    for _ in range(8):  # killed in the midst of whatever it does
        async with operating(server):
            await asyncio.sleep(0.07)
            server.start_pods()
    secret = server.of("Secret")
    async with operating(server):
        await until(ready(server), server)
    assert len(server.names("Pod")) == 3
    assert [one["data"] for one in secret] == [one["data"] for one in server.of("Secret")][: len(secret)]


async def test_what_the_server_refuses_is_a_condition(server: Server) -> None:
    def quota(verb: str, kind: str, body: Any) -> web.Response | None:
        if (verb, kind) == ("POST", "Pod"):
            return failure(403, "Forbidden", "pods is forbidden: exceeded quota: small")
        return None

    server.refuse = quota
    server.put(run_body(), "ADDED")
    async with operating(server):
        await until(lambda: condition(server, "Progressing")[1] == "QuotaExceeded", server)
        assert "exceeded quota: small" in condition(server, "Progressing")[2]
        server.refuse = lambda verb, kind, body: None
        await until(ready(server), server)


async def test_a_server_that_is_busy_is_asked_again(server: Server) -> None:
    asked = 0

    def busy(verb: str, kind: str, body: Any) -> web.Response | None:
        nonlocal asked
        asked += verb not in ("GET", "WATCH")
        chosen = verb not in ("GET", "WATCH") and asked % 3 == 1
        return failure(500, "InternalError", "etcd is busy") if chosen else None

    server.put(run_body(), "ADDED")
    async with operating(server):
        server.refuse = busy
        await until(lambda: asked > 20 or ready(server)(), server, seconds=60)
        await until(ready(server), server, seconds=60)


async def test_a_fault_of_ours_ends_in_a_condition_after_a_few_tries(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    def faulty(*args: object) -> Plan:
        nonlocal tries
        tries += 1
        raise ZeroDivisionError("by design")

    server.put(run_body(), "ADDED")
    async with Api(server.login) as api:
        operator = Operator(server, api)
        await operator.resync.once()
        with monkeypatch.context() as patched:
            patched.setattr(module, "reconcile", faulty)
            for _ in range(10):
                await operator.controller.reconcile(("lab", "demo"))
        assert tries == 5
        assert condition(server, "Ready")[:2] == ("False", "InternalError")
        assert "ZeroDivisionError: by design" in condition(server, "Ready")[2]
        changed = run_of(server)
        server.put(changed | {"metadata": changed["metadata"] | {"generation": 2}})
        await operator.resync.once()
        await operator.controller.reconcile(("lab", "demo"))
        assert "StatefulSet" in {kind for kind, _, _ in server.objects}


async def test_another_writer_s_status_is_not_overwritten_unseen(server: Server) -> None:
    server.put(run_body(), "ADDED")
    async with Api(server.login) as api:
        operator = Operator(server, api)
        await operator.resync.once()
        mine = run_of(server)
        server.put(mine | {"status": {"restarts": 3}})
        await operator.controller.reconcile(("lab", "demo"))
        assert run_of(server)["status"] == {"restarts": 3}
        await operator.controller.reconcile(("lab", "demo"))
        assert run_of(server)["status"]["restarts"] == 3
        assert run_of(server)["status"]["conditions"]


async def test_figures_are_written_at_intervals_and_changes_at_once(server: Server) -> None:
    server.put(run_body(), "ADDED")
    async with operating(server) as operator:
        await until(ready(server), server)
        for steps in range(100):
            operator.says.figures = Figures(Snapshot("train", numbers={"steps": steps}))
            operator.controller._runs["lab", "demo"].figures_at = float("-inf")
            operator.controller.mark(("lab", "demo"))
            await asyncio.sleep(0.01)
        assert server.requests[f"PATCH {KIND}/status"] < 20
        await until(lambda: run_of(server)["status"].get("steps") == 99)


async def test_a_run_that_is_gone_is_left_alone(server: Server) -> None:
    server.put(run_body(), "ADDED")
    async with operating(server) as operator:
        await until(ready(server), server)
        server.drop(KIND, "demo")
        await until(lambda: not operator.controller.keys)
        for name in server.names("Pod"):
            server.drop("Pod", name)
        await asyncio.sleep(1.0)
        assert server.names("Pod") == []


async def test_a_finished_run_removes_itself(server: Server) -> None:
    server.put(run_body({"ttlSecondsAfterFinished": 0}), "ADDED")
    async with operating(server) as operator:
        await until(ready(server), server)
        operator.says.figures = Figures(Snapshot("done", "steps", {"success": 1.0}))
        (learner,) = [p for p in server.of("Pod") if "learner" in p["metadata"]["name"]]
        server.put(learner | {"status": {"phase": "Succeeded"}})
        await until(lambda: (KIND, "lab", "demo") not in server.objects, server)


async def test_many_idle_runs_cost_no_write_and_a_change_among_them_is_acted_on_at_once(
    server: Server,
) -> None:
    for i in range(40):
        body = run_body({"suspend": True}, name=f"idle-{i}")
        server.put(body | {"metadata": body["metadata"] | {"uid": f"run-{i}"}}, "ADDED")
    async with operating(server):
        await until(lambda: all(run_of(server, f"idle-{i}").get("status") for i in range(40)), server)
        await asyncio.sleep(0.6)
        before = server.writes
        await asyncio.sleep(1.0)
        assert server.writes == before
        one = run_of(server, "idle-7")
        metadata = one["metadata"] | {"generation": 2}
        server.put(one | {"spec": one["spec"] | {"suspend": False}, "metadata": metadata})
        await until(lambda: "idle-7-redis" in server.names("StatefulSet"), seconds=10)


# --- pieces -----------------------------------------------------------------------------------------------------------


def child(version: int, uid: str = "u", **more: Any) -> dict[str, Any]:
    labels = {"webgym.io/run": "demo"}
    metadata = {
        "name": "p",
        "namespace": "lab",
        "uid": uid,
        "labels": labels,
        "resourceVersion": str(version),
    }
    return {"kind": "Pod", "metadata": metadata, **more}


def test_old_news_is_not_believed() -> None:
    cache = Cache(lambda: 0.0)
    cache.wrote(child(5, status={"phase": "Running"}))
    assert not cache.see(child(4, status={"phase": "Pending"}))
    assert cache.children(("lab", "demo"))[0]["status"]["phase"] == "Running"
    assert cache.see(child(6))
    assert not cache.gone("Pod", "lab", "p", "another")
    assert cache.gone("Pod", "lab", "p", "u")
    assert len(cache) == 0
    assert cache.children(("lab", "demo")) == []


def test_a_list_that_began_before_our_write_does_not_take_it_back() -> None:
    now = 10.0
    cache = Cache(lambda: now)
    cache.wrote(child(5))
    assert cache.replace("Pod", None, [], began=9.0) == set()
    assert len(cache) == 1
    assert cache.replace("Pod", "elsewhere", [], began=11.0) == set()
    assert cache.replace("Pod", None, [], began=11.0) == {("lab", "demo")}
    assert len(cache) == 0


def test_an_older_definition_is_recognised() -> None:
    assert missing_fields(build_crd()) == []
    assert missing_fields(build_crd(cel=False)) == []
    old = build_crd()
    spec = old["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    del spec["workers"]["properties"]["autoscaling"]["properties"]["min"]
    assert missing_fields(old) == ["spec.workers.autoscaling.min"]
    assert missing_fields({"spec": {"versions": []}}) == ["version v1alpha1"]


async def test_a_definition_that_becomes_newer_stops_no_run(server: Server) -> None:
    installed = build_crd()
    installed["metadata"] |= {"namespace": "", "uid": "crd"}
    server.put(installed, "ADDED")
    server.put(run_body({"redis": {"url": "redis://127.0.0.1:1"}}), "ADDED")
    async with operating(server):
        await until(ready(server), server)
        (version,) = installed["spec"]["versions"]
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        spec["wings"] = {"type": "integer", "default": 2}
        server.put(installed)
        run = run_of(server)
        server.put(run | {"spec": run["spec"] | {"wings": 2}})
        server.drop("Pod", "demo-worker-0-0")
        await until(lambda: "demo-worker-0-0" in server.names("Pod"), server)
        await until(ready(server), server)
        run = run_of(server)
        server.put(
            run | {"spec": run["spec"] | {"wings": 3}, "metadata": run["metadata"] | {"generation": 2}}
        )
        await until(lambda: condition(server, "Succeeded")[:2] == ("Unknown", "OperatorTooOld"), server)
        assert "spec.wings" in condition(server, "Ready")[2]
        assert len(server.names("Pod")) == 2


def test_who_is_busy() -> None:
    assert busy_workers([b"worker-0.0", "worker-0.8", b"worker-1.0"]) == {"worker-0": 2, "worker-1": 1}


def test_events_name_a_few_pods_and_count_the_rest() -> None:
    made = [Create({"kind": "Pod", "metadata": {"name": f"w-{i}"}}) for i in range(5)]
    plan = Plan([*made, Delete("Pod", "x", "u", None, "2 workers are wanted")])
    assert [note.message for note in notes_of(plan)] == [
        "created w-0, w-1, w-2 and 2 more",
        "deleted x: 2 workers are wanted",
    ]


async def test_a_certificate_of_ours_is_used_where_the_secret_has_one(server: Server) -> None:
    redis = {"url": "rediss://redis.example.com", "tls": {"secretName": "certificates"}}
    server.put(run_body({"redis": redis}), "ADDED")
    secret = {"kind": "Secret", "metadata": {"name": "certificates", "namespace": "lab", "uid": "s"}}
    server.put(secret | {"data": {"ca.crt": "", "tls.crt": "", "tls.key": ""}}, "ADDED")
    async with operating(server):
        await until(lambda: server.names("Pod"), server)
    (config,) = server.of("ConfigMap")
    assert "/etc/webgym-redis/tls.key" in config["data"]["run.yaml"]
