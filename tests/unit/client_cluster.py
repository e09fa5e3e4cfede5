"""A cluster in memory for the commands that speak to one: a kubeconfig, logs, and ``exec`` of a real ``tar``."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import WSMsgType, web
from operator_runs import run_body
from operator_server import Server

from webgym.cli import Command
from webgym.crd import CRD_NAME, build_crd
from webgym.spec import KIND
from webgym_operator.conditions import Condition, merge_conditions
from webgym_operator.run import Object

MANIFEST = """\
apiVersion: webgym.io/v1alpha1
kind: WebGymRun
metadata:
  name: demo
spec:
  task:
    name: miniwob.click-button
  workers:
    maxBrowsers: 3
"""


class Lab:
    """A server, and a kubeconfig whose namespace is lab."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.config = folder / "kubeconfig"
        self.manifest = folder / "run.yaml"
        self.logs: dict[str, list[str]] = {}
        """Of pods, by name."""
        self.volume = folder / "volume"
        """What ``/var/lib/webgym`` is in every pod."""
        self.before_tar: Callable[[int], None] = lambda time: None
        """Called before the first, second ... archive is made."""
        self.archives = 0
        self.cut: int | None = None
        """Bytes after which the connection of ``exec`` breaks."""
        server.subresources |= {"log": self._log, "exec": self._exec}

    async def begin(self) -> None:
        crd = build_crd()
        self.server.put(crd | {"metadata": {"name": CRD_NAME, "namespace": "", "uid": "crd"}}, "ADDED")
        self.add("Namespace", "lab", namespace="")
        self.write_config(self.server.url)
        self.manifest.write_text(MANIFEST)

    def write_config(self, url: str) -> None:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "lab"}}],
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "users": [{"name": "u", "user": {"token": "token"}}],
        }
        self.config.write_text(json.dumps(config))

    # --- what is there ---------------------------------------------------------------------------------------------

    def add(self, kind: str, name: str, *, namespace: str = "lab", **more: Any) -> Object:
        metadata = {"name": name, "namespace": namespace, "uid": f"{kind}-{name}", **more.pop("metadata", {})}
        return self.server.put({"kind": kind, "metadata": metadata, **more}, "ADDED")

    def add_run(
        self, *, spec: Object | None = None, name: str = "demo", status: Object | None = None
    ) -> Object:
        body = run_body({"workers": {"maxBrowsers": 3}, **(spec or {})}, name=name)
        return self.server.put({**body, "status": status or {}}, "ADDED")

    def set_status(self, name: str = "demo", *conditions: Condition, **figures: Any) -> Object:
        run = self.server.objects[KIND, "lab", name]
        status = {**figures, "conditions": merge_conditions({}, conditions, generation=1, now=1.8e9)}
        return self.server.put({**run, "status": status})

    def add_pod(
        self, role: str, slot: int = 0, incarnation: int = 0, *, run: str = "demo", **status: Any
    ) -> Object:
        name = f"{run}-{role}-{slot}" + ("" if role == "redis" else f"-{incarnation}")
        labels = {"webgym.io/run": run, "webgym.io/role": role}
        labels |= {"webgym.io/slot": str(slot), "webgym.io/incarnation": str(incarnation)}
        running = {
            "phase": "Running",
            "conditions": [{"type": t, "status": "True"} for t in ("PodScheduled", "Ready")],
            "containerStatuses": [{"name": role, "state": {"running": {}}}],
        }
        spec = {
            "containers": [{"name": role, "image": f"{role}:1", "imagePullPolicy": "Never"}],
            "nodeName": "n",
        }
        return self.add("Pod", name, metadata={"labels": labels}, spec=spec, status=status or running)

    def write_checkpoint(self, run_folder: str, step: int, *, truncated: bool = False) -> Path:
        import hashlib

        folder = self.volume / run_folder / "checkpoints" / f"step-{step}"
        folder.mkdir(parents=True, exist_ok=True)
        data = bytes([step % 256]) * 300_000
        entry = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        (folder / "online.npz").write_bytes(data[:1000] if truncated else data)
        (folder / "manifest.json").write_text(json.dumps({"files": {"online.npz": entry}}))
        return folder

    # --- commands --------------------------------------------------------------------------------------------------

    async def call(self, command: type[Command], *arguments: str) -> int:
        """Run a command as ``webgym`` would, beside the server; errors come as exceptions."""
        one = command()
        parser = argparse.ArgumentParser(prog=f"webgym {one.name}")
        one.configure(parser)
        args = parser.parse_args([*arguments, "--kubeconfig", str(self.config)])
        return await asyncio.wait_for(asyncio.to_thread(one.run, args), 60)

    # --- subresources of pods --------------------------------------------------------------------------------------

    async def _log(self, request: web.Request, pod: Object) -> web.StreamResponse:
        lines = self.logs.get(pod["metadata"]["name"])
        if lines is None:
            body = {"kind": "Status", "code": 400, "reason": "BadRequest", "message": "is waiting to start"}
            return web.json_response(body, status=400)
        lines = lines[-int(request.query.get("tailLines", len(lines))) or len(lines) :]
        return web.Response(text="".join(f"{line}\n" for line in lines))

    async def _exec(self, request: web.Request, pod: Object) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=["v4.channel.k8s.io"])
        await socket.prepare(request)
        command = [
            part.replace("/var/lib/webgym", str(self.volume)) for part in request.query.getall("command")
        ]
        self.archives += 1
        self.before_tar(self.archives)
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, errors = await process.communicate()
        for start in range(0, len(out), 32768):
            if self.cut is not None and start >= self.cut:
                await socket.close()
                return socket
            await socket.send_bytes(b"\x01" + out[start : start + 32768])
        if errors:
            await socket.send_bytes(b"\x02" + errors)
        status: Object = {"status": "Success"}
        if process.returncode:
            causes = [{"reason": "ExitCode", "message": str(process.returncode)}]
            status = {"status": "Failure", "message": "failed", "details": {"causes": causes}}
        await socket.send_bytes(b"\x03" + json.dumps(status).encode())
        async for message in socket:
            if message.type in (WSMsgType.CLOSE, WSMsgType.ERROR):
                break
        return socket


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    """A cluster with the definition and the namespace lab."""
    server = await Server().start()
    made = Lab(server, tmp_path)
    await made.begin()
    yield made
    await server.stop()


async def soon(check: Callable[[], Any]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(30):
        while not check():
            await asyncio.sleep(0.01)
