"""The operator as a process of its own, kopf and all, against a server in memory."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from operator_runs import run_body
from operator_server import Server

from webgym.crd import CRD_NAME, build_crd
from webgym.spec import KIND
from webgym_operator.outside import operator_process


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = await Server().start()
    crd = build_crd()
    made.put(crd | {"metadata": {"name": CRD_NAME, "namespace": "", "uid": "crd"}}, "ADDED")
    yield made
    await made.stop()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.asynccontextmanager
async def operator(server: Server, folder: Path, **more: str) -> AsyncIterator[asyncio.subprocess.Process]:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": server.url}}],
        "users": [{"name": "test", "user": {"token": "token"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    environment = {"KUBECONFIG": str(path), "WEBGYM_RESYNC_SECONDS": "1", "WEBGYM_LOG": "text", **more}
    async with operator_process(asyncio.subprocess.PIPE, **environment) as process:
        yield process


async def until(check: Callable[[], Any], server: Server) -> None:
    async with asyncio.timeout(25):
        while not check():
            server.start_pods()
            await asyncio.sleep(0.02)


async def test_it_looks_after_runs_and_leaves_when_asked(server: Server, tmp_path: Path) -> None:
    port = free_port()
    async with operator(server, tmp_path, WEBGYM_METRICS_PORT=str(port)) as process:
        await until(lambda: server.requests[f"WATCH {KIND}"], server)
        server.put(run_body({"redis": {"url": "redis://127.0.0.1:1"}}), "ADDED")
        await until(lambda: len(server.names("Pod")) == 2, server)
        health = await asyncio.to_thread(fetch, port, "/healthz")
        assert json.loads(health) == {"status": "ok"}
        assert "webgym_operator_api_writes" in await asyncio.to_thread(fetch, port, "/metrics")
        run = server.objects[KIND, "lab", "demo"]
        assert not {"finalizers", "annotations"} & run["metadata"].keys()
        process.send_signal(signal.SIGTERM)
        _, errors = await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode == 0, errors.decode()
        assert "Traceback" not in errors.decode()
    assert len(server.names("Pod")) == 2


def pending(pid: int, number: signal.Signals) -> bool:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    masks = [line.split()[1] for line in lines if line.startswith(("SigPnd:", "ShdPnd:"))]
    return any(int(mask, 16) & 1 << (number - 1) for mask in masks)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at signals in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_asked_twice_it_leaves_without_a_fault(
    server: Server, tmp_path: Path, number: signal.Signals
) -> None:
    async with operator(server, tmp_path) as process:
        await until(lambda: server.requests[f"WATCH {KIND}"], server)
        process.send_signal(number)
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # gone already
            while pending(process.pid, number):  # two that wait at the same time count as one
                await asyncio.sleep(0)
            process.send_signal(number)
        _, errors = await asyncio.wait_for(process.communicate(), 30)
    # Whoever presses Ctrl-C twice does not wait for what an orderly end would take.
    assert process.returncode in ((0, 130) if number is signal.SIGINT else (0,)), errors.decode()
    assert "Traceback" not in errors.decode()


def fetch(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return str(answer.read().decode())


async def test_killed_again_and_again_it_makes_each_thing_once(server: Server, tmp_path: Path) -> None:
    server.put(run_body({"redis": {"url": "redis://127.0.0.1:1"}, "workers": {"replicas": 2}}), "ADDED")
    for wanted in (1, 3):
        async with operator(server, tmp_path):
            await until(lambda wanted=wanted: len(server.names("Pod")) >= wanted, server)
    assert len(server.names("Pod")) == 3
    assert server.requests["POST Pod"] == 3


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (
            lambda crd: crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"].pop("status"),
            "older",
        ),
        (None, "has no CustomResourceDefinition"),
    ],
)
async def test_it_refuses_a_cluster_without_its_definition(
    server: Server, tmp_path: Path, break_it: Any, message: str
) -> None:
    if break_it is None:
        server.drop("CustomResourceDefinition", CRD_NAME, "")
    else:
        break_it(server.objects["CustomResourceDefinition", "", CRD_NAME])
    async with operator(server, tmp_path) as process:
        _, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 2
    assert message in errors.decode()
    assert "Traceback" not in errors.decode()
