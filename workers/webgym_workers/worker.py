"""The worker program: one inference process and the browser processes it answers, watched and restarted."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import math
import os
import re
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from webgym.errors import ExitCode, RunError

if TYPE_CHECKING:
    from webgym.process import Exit, ManagedProcess
    from webgym.program import Drain, ProgramContext

__all__ = ["Worker", "WorkerCommand"]

logger = logging.getLogger(__name__)

_HEARTBEAT_SECONDS = 1.0
HUNG = (
    "it stood still and was killed: stopped from outside, or a task's own code sleeps or loops; "
    "its log shows where it was"
)


class Worker:
    """Starts and watches the processes of one worker.

    Args:
        context: environment of the program.
        drain: the wish to end.
    """

    def __init__(self, context: ProgramContext, drain: Drain) -> None:
        from webgym.schema import observation_schema
        from webgym_workers.capacity import machine, split_browsers, worker_browsers
        from webgym_workers.pulse import HangWatch, Pulses
        from webgym_workers.slots import ObservationSlots, channel

        spec = context.manifest.spec
        self._context = context
        self._drain = drain
        browsers = worker_browsers(spec.mode, spec.workers, machine())
        groups = split_browsers(browsers, spec.workers.browsers_per_process)
        self.browsers = browsers
        self._memory = ObservationSlots.create(observation_schema(spec.observation), browsers)
        self._channels = [channel() for _ in groups]
        self._restarts = {"inference": 0, "actor": 0}
        self._pulse_count = 1 + len(groups)
        self._pulse_memory = Pulses.create(self._pulse_count)
        self._pulses = Pulses(self._pulse_count, self._pulse_memory)
        self._watch = HangWatch()
        self._did_anything = False
        self._processes = [self._inference(browsers)]
        first_actor = _ordinal(context.id) * browsers
        first = 0
        self._actor_names: list[str] = []
        for (_, ours), count in zip(self._channels, groups, strict=True):
            arguments = {
                "memory-fd": self._memory,
                "slots": browsers,
                "channel-fd": ours.fileno(),
                "first-slot": first,
                "count": count,
                "first-actor": first_actor + first,
                "actors": max(browsers * spec.workers.replicas, first_actor + browsers),
            }
            argv = [f"--{name}={value}" for name, value in arguments.items()]
            fds = (self._memory, ours.fileno())
            module, pulse = "webgym_workers.browser_process", len(self._processes)
            self._processes.append(self._process("actor", module, argv, fds, first, pulse))
            self._actor_names.append(f"{context.id}.{first}")
            first += count

    def _inference(self, browsers: int) -> ManagedProcess:
        # The worker keeps both ends of every channel: requests survive a restart of either side in the socket's buffer.
        theirs = [theirs.fileno() for theirs, _ in self._channels]
        argv = [
            f"--memory-fd={self._memory}",
            f"--slots={browsers}",
            f"--socket-fds={','.join(map(str, theirs))}",
        ]
        return self._process("inference", "webgym_workers.inference", argv, (self._memory, *theirs), 0, 0)

    def _process(
        self, role: str, module: str, argv: list[str], fds: tuple[int, ...], number: int, pulse: int
    ) -> ManagedProcess:
        from webgym.process import ManagedProcess, RestartPolicy

        environment = self._context.environ()
        # Beside our own, so that what a child dies of, a task that raises above all, is the last word of the run, too.
        own = self._context.termination_log
        word = own.with_name(f"{own.name}.{role}-{number}") if own is not None else None
        environment["WEBGYM_TERMINATION_LOG"] = str(word or "")

        def on_exit(process: ManagedProcess, ended: Exit, delay: float | None) -> None:
            if delay is not None:
                self._restarts[role] += 1
                logger.warning("%s: %s; starting it again in %.1f s", process.name, ended.reason, delay)

        beating = [
            f"--pulse-fd={self._pulse_memory}",
            f"--pulses={self._pulse_count}",
            f"--pulse={pulse}",
        ]
        return ManagedProcess(
            f"{self._context.id}/{role}-{number}",
            # -P: a file in the current directory that is called like a library must not be taken for it.
            [sys.executable, "-P", "-m", module, *argv, *beating],
            env=environment,
            pass_fds=(*fds, self._pulse_memory),
            # Now and then a process may die; one that dies again and again without an episode in between is given up.
            restart=RestartPolicy(window_seconds=math.inf),
            last_word=word,
            on_exit=on_exit,
        )

    async def run(self) -> int:
        """Run until a drain, or until a process cannot be kept alive.

        Raises:
            RunError: a process failed for good.
        """
        from webgym.process import drain_all

        for process in self._processes:
            await process.start()
        tasks = [asyncio.ensure_future(self._beat()), asyncio.ensure_future(self._watch_pulses())]
        waits = [asyncio.ensure_future(p.wait()) for p in self._processes]
        asked = asyncio.ensure_future(self._drain.wait_async())
        try:
            await asyncio.wait([asked, *waits], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            # Actors first: inference has to answer until their last episode is done.
            await drain_all(self._processes[1:])
            await drain_all(self._processes[:1])
            for waiting in (asked, *waits):
                waiting.cancel()
            os.close(self._memory)
            os.close(self._pulse_memory)
        if not self._drain.requested:
            failed = next((p for p in self._processes if p.failure), None)
            if failed is None:
                raise RunError("a process of this worker ended by itself; see its log")
            code = failed.exits[-1].code if failed.exits else ExitCode.FAILURE
            error = RunError(failed.failure)
            if code in ExitCode.__members__.values():
                error.exit_code = ExitCode(code)
            elif not self._did_anything:
                # Killed again and again before it had done anything: another worker here would fare no better.
                error.exit_code = ExitCode.UNAVAILABLE
            raise error
        return ExitCode.OK

    async def _watch_pulses(self) -> None:
        """Kill, to be started again, what stands still; forgive the earlier ends of what does its work."""
        done = [0] * len(self._processes)
        while True:
            await asyncio.sleep(_HEARTBEAT_SECONDS)
            for index, process in enumerate(self._processes):
                before, done[index] = done[index], self._pulses.work(index)
                if done[index] > before:
                    process.note_progress()
                    self._did_anything |= index > 0  # inference alone plays no episode
            latest = [self._pulses.latest(index) for index in range(len(self._processes))]
            hung = self._watch.hung(time.monotonic(), [p.started for p in self._processes], latest)
            if hung:
                await asyncio.gather(*(self._processes[index].fail(HUNG) for index in hung))

    async def _beat(self) -> None:
        """Tell the world which processes were started again."""
        from webgym.broker import broker_errors, connect_async
        from webgym.connection import broker_config
        from webgym.errors import BrokerError
        from webgym.keys import Keys
        from webgym.telemetry import Numbers

        config = broker_config(self._context.manifest.spec.redis, self._context.redis_url)
        client = connect_async(config)
        key = Keys(self._context.run_uid).members
        labels = {"run": self._context.run_uid, "program": self._context.id}
        numbers = Numbers(labels, each={"browser_resident_bytes": "browser"})
        while True:
            figures: dict[str, Any] = {
                "role": "worker",
                "pid": os.getpid(),
                "time": time.time(),
                "restarts": self._restarts,
                "pids": {p.name: p.pid for p in self._processes},
            }
            try:
                with broker_errors(config.where):
                    await client.hset(key, self._context.id, json.dumps(figures))
                    actors = await client.hmget(key, self._actor_names)
                restarts = {f"restarts_{kind}": count for kind, count in self._restarts.items()}
                numbers.set(
                    total_figures(actors) | restarts | {"browser_resident_bytes": memory_by_browser(actors)}
                )
            except BrokerError as error:
                logger.debug("heartbeat not sent: %s", error)
            await asyncio.sleep(_HEARTBEAT_SECONDS)

    def unwell(self) -> str | None:
        """Why ``/healthz`` should fail, or None."""
        down = [p.name for p in self._processes if not p.running]
        return f"not running: {', '.join(down)}" if down else None


def total_figures(reports: Iterable[bytes | str | None]) -> dict[str, float]:
    """Sums of the figures that the browser processes reported; texts, times and what is damaged are left out."""
    totals: dict[str, float] = {}
    for report in reports:
        for name, value in _numbers(_object(report)).items():
            if name not in ("pid", "time", "version"):
                totals[name] = totals.get(name, 0.0) + value
    return totals


def memory_by_browser(reports: Iterable[bytes | str | None]) -> dict[str, float]:
    """Resident bytes of each browser of the worker, by its number, as the browser processes reported them.

    What is damaged is left out.
    """
    found: dict[str, float] = {}
    for report in reports:
        found |= _numbers(_object(report).get("memory_by_browser"))
    return found


def _object(report: bytes | str | None) -> dict[str, Any]:
    """A report; empty where there is none, or none that can be read."""
    try:
        found = json.loads(report) if report else None
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _numbers(values: Any) -> dict[str, float]:
    """The finite numbers of a mapping."""
    if not isinstance(values, dict):
        return {}
    # Compared, not converted: an integer may be beyond any float, and NaN is not below anything.
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, int | float) and abs(value) <= sys.float_info.max
    }


def _ordinal(name: str) -> int:
    """The number at the end of a worker's name: its place among the workers."""
    match = re.search(r"(\d+)$", name)
    return int(match[1]) if match else 0


class WorkerCommand:
    """``webgym worker``: what a worker pod runs, and what ``webgym run`` starts."""

    name = "worker"
    help = "run a worker: browsers and the policy that drives them (started by webgym run, or in a pod)"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """All it needs comes by environment (WEBGYM_SPEC, WEBGYM_RUN_UID, WEBGYM_REDIS_URL, WEBGYM_OUT, WEBGYM_ID)."""

    def run(self, args: argparse.Namespace) -> int:
        """Run until SIGTERM, then drain: running episodes are finished."""
        from webgym.program import run_program
        from webgym.telemetry import TelemetryServer

        def body(context: ProgramContext, drain: Drain) -> int:
            async def work() -> int:
                worker = Worker(context, drain)
                with TelemetryServer(worker.unwell, host=context.metrics_host, port=context.metrics_port):
                    return await worker.run()

            return asyncio.run(work())

        return run_program(body)
