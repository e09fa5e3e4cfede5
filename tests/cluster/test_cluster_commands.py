"""The commands of a user's machine against a real API server, and, with the images, against a run that trains."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from real_cluster import ROOT, Cluster

from webgym.cli import Command
from webgym.errors import RunError, UsageError
from webgym.rundir import RunDirectory
from webgym.spec import KIND
from webgym_operator.client.fetch import FetchCommand
from webgym_operator.client.lifecycle import ResumeCommand, StopCommand
from webgym_operator.client.logs import LogsCommand
from webgym_operator.client.status import StatusCommand
from webgym_operator.client.submit import SubmitCommand

EXAMPLE = ROOT / "examples" / "kubernetes" / "click-button.yaml"
Capture = pytest.CaptureFixture[str]


async def until_no_fetch_pod(cluster: Cluster) -> None:
    async def gone() -> bool:
        return await cluster.names("Pod", "app.kubernetes.io/component=fetch") == []

    await cluster.until("the pod is gone", gone)


async def call(cluster: Cluster, command: type[Command], *arguments: str, seconds: float = 120.0) -> int:
    one = command()
    parser = argparse.ArgumentParser()
    one.configure(parser)
    args = parser.parse_args([*arguments, "--namespace", cluster.namespace])
    return await asyncio.wait_for(asyncio.to_thread(one.run, args), seconds)


@contextlib.asynccontextmanager
async def chart(cluster: Cluster) -> AsyncIterator[None]:
    """The chart, installed in the namespace and for it alone."""
    helm = pytest.importorskip("helm_python", reason="pip install helm-python-sdk")
    values = {
        "crds": {"enabled": False},
        "images": {"pullPolicy": "Never"},
        "operator": {"resyncSeconds": 5, "statusSeconds": 2},
        "watchNamespaces": [cluster.namespace],
    }
    with helm.Config(namespace=cluster.namespace) as config:
        folder = str(ROOT / "charts" / "webgym")
        await asyncio.to_thread(config.install, folder, "webgym", values, wait="watcher", timeout=180)
        try:
            yield
        finally:
            await asyncio.to_thread(config.uninstall, "webgym")


async def told(
    cluster: Cluster, capsys: Capture, command: type[Command], *arguments: str
) -> dict[str, object]:
    capsys.readouterr()
    await call(cluster, command, *arguments, "--json")
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


async def test_a_run_is_submitted_stopped_and_resumed(cluster: Cluster, capsys: Capture) -> None:
    async with cluster.operator():
        assert await call(cluster, SubmitCommand, str(EXAMPLE)) == 0
        again = await told(cluster, capsys, SubmitCommand, str(EXAMPLE))
        assert again["created"] is False
        with pytest.raises(RunError, match=r"differs in spec\.seed"):
            await call(cluster, SubmitCommand, str(EXAMPLE), "--set", "seed=7")

        async def seen() -> bool:
            found = await told(cluster, capsys, StatusCommand, "click-button")
            conditions = {one["type"]: one for one in found["conditions"]}
            waits = {"Starting", conditions.get("Progressing", {}).get("reason")}
            return bool(found["pods"]) and found["state"] in waits

        await cluster.until("its pods are there", seen)
        with pytest.raises(UsageError, match="did you mean click-button"):
            await call(cluster, StatusCommand, "click-buton")
        with pytest.raises(RunError, match="has said anything yet"):
            await call(cluster, LogsCommand, "click-button")
        stopped = await told(cluster, capsys, StopCommand, "click-button", "--wait")
        assert stopped["state"] == "Suspended"
        assert await cluster.names("Pod") == []
        assert (await told(cluster, capsys, ResumeCommand, "click-button"))["changed"] is True
        assert await call(cluster, SubmitCommand, str(EXAMPLE), "--set", "seed=7", "--replace") == 0
        assert (await cluster.run("click-button"))["spec"]["seed"] == 7


async def test_a_dry_run_makes_nothing(cluster: Cluster, capsys: Capture) -> None:
    found = await told(cluster, capsys, SubmitCommand, str(EXAMPLE), "--dry-run")
    levels = {one["subject"]: one["level"] for one in found["findings"]}  # type: ignore[attr-defined]
    assert levels["definition"] == "ok"
    assert levels["the run"] == "ok"
    assert {"operator", "asks for", "worker nodes", "learner nodes", "worker image", "quota"} <= levels.keys()
    assert await cluster.everything() == []
    nowhere = [str(EXAMPLE), "--dry-run", "--set", "workers.nodeSelector.webgym=nowhere"]
    found = await told(cluster, capsys, SubmitCommand, *nowhere)
    assert not found["ok"]


async def test_a_pod_that_cannot_read_the_volume_is_removed(cluster: Cluster, tmp_path: Path) -> None:
    async with cluster.operator():
        await call(cluster, SubmitCommand, str(EXAMPLE))

        async def claimed() -> bool:
            return bool(await cluster.names("PersistentVolumeClaim", "webgym.io/role=learner"))

        await cluster.until("the volume is asked for", claimed)
        fetch = ["click-button", "--out", str(tmp_path / "out"), "--image", "webgym.invalid/learner:0"]
        with pytest.raises(RunError, match="which was to read the volume"):
            await call(cluster, FetchCommand, *fetch, "--timeout", "5")
        assert not (tmp_path / "out").exists()

        await until_no_fetch_pod(cluster)


@pytest.mark.skipif(
    os.environ.get("WEBGYM_TEST_IMAGES") != "1",
    reason="needs the images on the nodes: make images, load them, and set WEBGYM_TEST_IMAGES=1",
)
async def test_a_run_is_fetched_while_it_trains_and_after(
    cluster: Cluster, tmp_path: Path, capsys: Capture
) -> None:
    from webgym_learner.checkpoint import load_checkpoint

    async with chart(cluster):
        small = ["workers.maxBrowsers=2", "workers.resources.requests.cpu=500m", "storage.retain=false"]
        options = [part for one in small for part in ("--set", one)]
        submitted = asyncio.create_task(
            call(cluster, SubmitCommand, str(EXAMPLE), *options, "--wait", seconds=1200)
        )

        async def trains() -> bool:
            if await cluster.names(KIND, "") == []:
                # The command looks at the cluster before it submits.
                return False
            return bool(((await cluster.run("click-button")).get("status") or {}).get("updates"))

        await cluster.until("it trains", trains, 400)
        live = tmp_path / "live"
        began = time.monotonic()
        assert await call(cluster, FetchCommand, "click-button", "--out", str(live)) == 0
        print(f"fetched from a living run in {time.monotonic() - began:.1f} s")
        assert (live / "metrics.jsonl").stat().st_size
        assert await call(cluster, LogsCommand, "click-button", "--role", "learner", "--tail", "5") == 0
        assert await submitted == 0
        after = tmp_path / "after"
        assert await call(cluster, FetchCommand, "click-button", "--out", str(after)) == 0
        assert RunDirectory.open(after).uid == (await cluster.run("click-button"))["metadata"]["uid"]
        checkpoints = sorted((after / "checkpoints").glob("step-*"))
        assert checkpoints
        for path in checkpoints:
            load_checkpoint(path)
        assert json.loads((after / "evaluation.json").read_text())["success"] >= 0.9
        await until_no_fetch_pod(cluster)
        await cluster.api.delete(KIND, cluster.namespace, "click-button")
