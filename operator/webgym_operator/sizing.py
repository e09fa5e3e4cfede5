"""How large the pods of a run are: what the spec says, and what follows from it where it says nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass

from webgym.spec import Quantity, Resources, RunSpec

__all__ = [
    "PodSize",
    "browsers_per_worker",
    "learner_size",
    "redis_size",
    "shared_memory_bytes",
    "worker_size",
]

_MIB = 1024 * 1024
_WORKER_CORES = 2.0
"""Cores of a worker whose spec asks for none."""
_SHARE_SET_ASIDE = 0.5
"""Of the cores that a pod can use: what is requested for it where its spec says nothing of cores. Browsers and learner
wait for each other much of the time and share what a node has over; a request of all would leave small nodes no room
for a run. Whoever wants all of them says so in ``resources``."""
_WORKER_BASE = 1024 * _MIB
"""Memory of a worker beside its browsers: inference with torch, one asyncio process for every eight browsers."""
_SHARED_PER_BROWSER = 128 * _MIB
"""Of /dev/shm: a display of 1080p takes 8 MiB, Chromium's buffers the rest."""
_SHARED_BASE = 64 * _MIB
_LEARNER_BASE = 2048 * _MIB


@dataclass(frozen=True)
class PodSize:
    """Requests and limits of one container, as Kubernetes writes them."""

    requests: dict[str, str]
    limits: dict[str, str]

    def as_object(self) -> dict[str, dict[str, str]]:
        """The ``resources`` of a container."""
        return {"requests": self.requests, "limits": self.limits}


def _asked(resources: Resources, name: str) -> Quantity | None:
    return resources.requests.get(name, resources.limits.get(name))


def browsers_per_worker(spec: RunSpec) -> int:
    """Browsers of each worker pod, at least one; the pod's manifest states it as ``maxBrowsers``."""
    workers = spec.workers
    if spec.mode == "Synchronous":
        return 1
    cpu = _asked(workers.resources, "cpu")
    cores = _WORKER_CORES if cpu is None else float(cpu)
    wanted = max(1, math.floor(cores * workers.browsers_per_core + 1e-9))
    if workers.max_browsers is not None:
        # Without a word about cores, the number of browsers decides how many there are.
        wanted = workers.max_browsers if cpu is None else min(wanted, workers.max_browsers)
    memory = workers.resources.limits.get("memory", workers.resources.requests.get("memory"))
    if memory is not None:
        # The same division that the worker makes, which leaves its own overhead out.
        wanted = min(wanted, int(memory) // int(workers.memory_per_browser))
    return max(1, wanted)


def shared_memory_bytes(spec: RunSpec) -> int:
    """Size of a worker's /dev/shm; it counts in the memory of the pod."""
    return _SHARED_BASE + _SHARED_PER_BROWSER * browsers_per_worker(spec)


def worker_size(spec: RunSpec) -> PodSize:
    """Of a worker pod. Memory has a limit always: it bounds /dev/shm, too."""
    browsers = browsers_per_worker(spec)
    memory = browsers * int(spec.workers.memory_per_browser) + _WORKER_BASE + shared_memory_bytes(spec)
    return _completed(spec.workers.resources, browsers / spec.workers.browsers_per_core, memory)


def learner_size(spec: RunSpec) -> PodSize:
    """Of a learner pod."""
    memory = int(spec.learner.replay.capacity_bytes) + _LEARNER_BASE
    return _completed(spec.learner.resources, spec.learner.threads or 1, memory)


def redis_size(spec: RunSpec) -> PodSize:
    """Of the run's own Redis: as much again as it may hold, for the copy that rewriting its file makes."""
    memory = f"{math.ceil(2 * int(spec.redis.max_memory) / _MIB) + 64}Mi"
    return PodSize({"cpu": "100m", "memory": memory}, {"memory": memory})


def _completed(resources: Resources, cores: float, memory: int) -> PodSize:
    """What a spec asks for, and the rest from how many cores and bytes the pod can use."""
    requests = {name: str(amount) for name, amount in resources.requests.items()}
    limits = {name: str(amount) for name, amount in resources.limits.items()}
    if "cpu" not in requests:
        requests["cpu"] = limits.get("cpu", f"{math.ceil(_SHARE_SET_ASIDE * cores * 1000)}m")
    own = f"{math.ceil(memory / _MIB)}Mi"
    requests.setdefault("memory", limits.get("memory", own))
    limits.setdefault("memory", requests["memory"])
    for name in limits.keys() - requests.keys():
        # Extended resources, GPUs among them, are requested as they are limited.
        requests[name] = limits[name]
    for name in requests.keys() - limits.keys() - {"cpu"}:
        limits[name] = requests[name]
    return PodSize(dict(sorted(requests.items())), dict(sorted(limits.items())))
