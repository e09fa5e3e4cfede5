"""A namespace of a real cluster, and an operator that looks after it."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webgym.spec import KIND
from webgym_operator.api import Api
from webgym_operator.outside import operator_process

ROOT = Path(__file__).parents[2]
Object = dict[str, Any]


@dataclass
class Cluster:
    api: Api
    namespace: str
    folder: Path

    async def apply(self, name: str, spec: Object) -> Object:
        metadata = {"name": name, "namespace": self.namespace}
        return await self.api.create(
            {"apiVersion": "webgym.io/v1alpha1", "kind": KIND, "metadata": metadata, "spec": spec}
        )

    async def run(self, name: str) -> Object:
        return await self.api.get(KIND, self.namespace, name)

    async def condition(self, name: str, type_: str) -> tuple[str, str, str]:
        status = (await self.run(name)).get("status") or {}
        for one in status.get("conditions") or ():
            if one["type"] == type_:
                return one["status"], one["reason"], one["message"]
        return "", "", ""

    async def names(self, kind: str, selector: str = "webgym.io/run") -> list[str]:
        items, _ = await self.api.list(kind, self.namespace, selector)
        return [item["metadata"]["name"] for item in items]

    async def everything(self) -> list[str]:
        kinds = (
            "Pod",
            "StatefulSet",
            "Service",
            "Secret",
            "ConfigMap",
            "NetworkPolicy",
            "PersistentVolumeClaim",
        )
        return [f"{kind}/{name}" for kind in kinds for name in await self.names(kind)]

    async def until(self, what: str, check: Callable[[], Awaitable[Any]], seconds: float = 120.0) -> float:
        """Wait for something; returns the seconds that it took."""
        began = time.monotonic()
        while not await check():
            if time.monotonic() - began > seconds:
                raise AssertionError(
                    f"after {seconds:g} s still not: {what}; there are {await self.everything()}"
                )
            await asyncio.sleep(0.25)
        return time.monotonic() - began

    @contextlib.asynccontextmanager
    async def operator(self, **more: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """An operator outside of the cluster; its pods have images that no node has."""
        environment = {
            "WEBGYM_WATCH_NAMESPACES": self.namespace,
            "WEBGYM_RESYNC_SECONDS": "5",
            "WEBGYM_STATUS_SECONDS": "1",
            **more,
        }
        with (self.folder / f"operator-{uuid.uuid4().hex[:6]}.log").open("wb") as log:
            async with operator_process(log, **environment) as process:
                yield process
