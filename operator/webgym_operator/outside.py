"""An operator outside of a cluster, as a process of its own: for development, tests and measurements."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from typing import IO

__all__ = ["operator_process"]

_ENVIRONMENT = {
    # Images that no node has, and never asks for: runs get all of their objects, and nothing starts.
    "WEBGYM_WORKER_IMAGE": "webgym.invalid/worker:0",
    "WEBGYM_LEARNER_IMAGE": "webgym.invalid/learner:0",
    "WEBGYM_REDIS_IMAGE": "webgym.invalid/redis:0",
    "WEBGYM_IMAGE_PULL_POLICY": "Never",
    "WEBGYM_METRICS_HOST": "127.0.0.1",
    "WEBGYM_METRICS_PORT": "0",
}


@contextlib.asynccontextmanager
async def operator_process(
    output: int | IO[bytes], **environment: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """An operator of the cluster that KUBECONFIG names, killed when the block ends.

    Args:
        output: where what it prints goes, as for :class:`subprocess.Popen`.
        environment: more of what :class:`webgym_operator.settings.Settings` reads, or other values than those here.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "webgym", "operator"),
        env=os.environ | _ENVIRONMENT | environment,
        stdout=output,
        stderr=output,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
