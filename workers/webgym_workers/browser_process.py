"""A browser process of a worker: one event loop, several browsers, one actor each.

Started by the worker program with the shared memory and its end of the inference channel as inherited descriptors.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any

from webgym.broker import broker_errors, client_where, connect_async
from webgym.connection import broker_config
from webgym.errors import BrokerError, ExitCode, RunError, TaskError
from webgym.experience import ExperienceWriter
from webgym.keys import Keys
from webgym.program import Drain, ProgramContext, run_program
from webgym.queue import EpisodeTask, TaskQueue
from webgym.schema import observation_schema
from webgym.tasks import look_for_tasks_in
from webgym.turns import WorkerTurns
from webgym_workers.actor import Acting, Actor
from webgym_workers.browser.pool import BrowserPool
from webgym_workers.capacity import browser_affinity, machine
from webgym_workers.film import FilmRecorder
from webgym_workers.inference_client import InferenceClient
from webgym_workers.pace import FreePace, TurnPace
from webgym_workers.pulse import BEAT_SECONDS, add_pulse_arguments, pulse_of
from webgym_workers.reach import egress_proxy, tasks_of
from webgym_workers.seat import Seat, browser_options
from webgym_workers.slots import ObservationSlots
from webgym_workers.streak import FaultStreak

__all__ = ["BrowserProcess", "Seating", "main"]

logger = logging.getLogger(__name__)

LEASE_SECONDS = 30.0
_FLUSH_STEPS = 64
_FLUSH_STEPS_IN_TURNS = 1
"""What the learner is to learn from before the next step must have been sent by then."""
_MOST_TASK_ERRORS = 3
"""Errors of a task's own code after which a process that has not finished a single episode gives up: unlike a
site's, they are the same the next time."""
_HEARTBEAT_SECONDS = 1.0
_LEASE_WAIT = 0.5
"""Seconds to wait for an episode before looking whether a drain was asked for."""


class Seating:
    """Which of the run's actors sit in this process."""

    def __init__(self, first_slot: int, count: int, first_actor: int, actors: int) -> None:
        self.first_slot = first_slot
        self.count = count
        self.first_actor = first_actor
        self.actors = actors


class BrowserProcess:
    """Runs the actors of one process until a drain.

    Args:
        context: environment of the program.
        drain: the wish to end.
        seating: which actors.
        memory_fd: shared observation slots.
        total_slots: slots of the whole worker.
        channel: our end of the channel to the inference process.
        pulse: told every :data:`~webgym_workers.pulse.BEAT_SECONDS` how many episodes were played so far.
    """

    def __init__(
        self,
        context: ProgramContext,
        drain: Drain,
        seating: Seating,
        memory_fd: int,
        total_slots: int,
        channel: socket.socket,
        pulse: Callable[[int], None] = lambda done: None,
    ) -> None:
        spec = context.manifest.spec
        self._drain = drain
        self._pulse = pulse
        self._streak = FaultStreak(seating.count)
        self._seating = seating
        self._name = f"{context.id}.{seating.first_slot}"
        keys = Keys(context.run_uid)
        schema = observation_schema(spec.observation)
        self._client = connect_async(broker_config(spec.redis, context.redis_url))
        self._members = keys.members
        self._queue = TaskQueue(self._client, keys)
        self._experience = ExperienceWriter(self._client, keys, schema)
        slots = ObservationSlots(schema, total_slots, memory_fd)
        self._inference = InferenceClient(slots, channel)
        self._ring = slots.frames(seating.first_slot, seating.count)
        options = browser_options(spec.browser, frame=spec.observation.frame)
        self._pool = BrowserPool(
            options,
            seating.count,
            memory_limit=int(spec.workers.memory_per_browser),
            age_limit=spec.browser.max_age_seconds,
            affinity=browser_affinity(
                spec.workers.cpu_affinity, machine().cpus, seating.first_slot, seating.count, total_slots
            ),
            egress=egress_proxy(options, tasks_of(spec.tasks)),
        )
        exploration, learner = spec.policy.exploration, spec.learner
        self._pace = (
            FreePace()
            if spec.mode == "Asynchronous"
            else TurnPace(
                WorkerTurns(self._client, keys, self._name, seating.count, total_slots), seating.count
            )
        )
        settle_budget = spec.browser.settle_budget_seconds
        self._actors = [
            Actor(
                Acting(
                    worker=self._name,
                    index=seating.first_actor + i,
                    actors=seating.actors,
                    epsilon=exploration.epsilon,
                    alpha=exploration.alpha,
                    n_step=learner.n_step,
                    discount=learner.discount,
                    step_cost=learner.step_cost,
                    seed=spec.seed,
                    flush_steps=_FLUSH_STEPS_IN_TURNS if self._pace.takes_turns else _FLUSH_STEPS,
                ),
                seating.first_slot + i,
                schema,
                self._inference,
                self._queue,
                self._experience,
                Seat(self._pool, i, schema, settle_budget, self._ring, read_end=False),
                self._pace,
                FilmRecorder(self._client, keys),
            )
            for i in range(seating.count)
        ]
        self._stopping = asyncio.Event()
        self._task_errors = 0

    async def run(self) -> int:
        """Act until a drain; returns the exit code.

        Raises:
            BrokerError: Redis is gone for good.
            BrowserError: browsers cannot be started here.
        """
        # What a killed predecessor of this name held comes back at once, not when its leases run out.
        await self._queue.abandon(self._name)
        drained = asyncio.ensure_future(self._watch_drain())
        heart = asyncio.ensure_future(self._beat())
        pulse = asyncio.ensure_future(self._show_life())
        try:
            async with self._pool, asyncio.TaskGroup() as group:
                for index, actor in enumerate(self._actors):
                    group.create_task(self._act(actor, index))
        except ExceptionGroup as failures:
            # Not except*: before Python 3.11.4 it puts what is raised in it into a group again.
            raise _first_of(failures) from failures
        finally:
            for task in (drained, heart, pulse):
                task.cancel()
            await asyncio.gather(drained, heart, pulse, return_exceptions=True)
            await self._close()
        return 0

    async def _watch_drain(self) -> None:
        await self._drain.wait_async()
        self._stopping.set()
        # Running episodes are finished, and the learner may be gone before they are.
        self._pace.free()

    async def _act(self, actor: Actor, index: int) -> None:
        while not self._stopping.is_set():
            # Only an actor whose browser is there takes an episode: the others' episodes need not wait for it.
            await self._pool[index].ready()
            await self._until_stopping(self._experience.await_capacity())
            task = await self._lease()
            if task is None:
                return
            try:
                fault = await actor.run_episode(task)
            except TaskError as error:
                # Anybody's code: an episode that it fails on now and then is given up, but one that it always fails on
                # ends the run with the reason.
                await self._queue.fail(task.episode, task.attempt, str(error), "agent", final=True)
                self._task_errors += 1
                logger.warning("%s", error, extra={"episode": task.episode})
                if self._task_errors >= _MOST_TASK_ERRORS and not self._episodes:
                    raise
                fault = str(error)
            await self._judge(fault and f"{task.task}: {fault}")

    async def _judge(self, fault: str | None) -> None:
        """Give up when nothing but faults comes of it.

        Raises:
            RunError: naming the fault and its count.
        """
        if fault is None:
            self._streak.success()
            return
        now = time.monotonic()
        self._streak.fault(fault, now)
        if self._streak.worth_asking():
            played = any(name.endswith("_episodes") for name in await self._queue.counters())
            if reason := self._streak.verdict(now, ever_played=played):
                error = RunError(reason)
                error.exit_code = ExitCode.FAILURE if played else ExitCode.UNAVAILABLE
                raise error

    @property
    def _episodes(self) -> int:
        """Episodes that this process has played to their ends."""
        return sum(a.counters.episodes for a in self._actors)

    async def _lease(self) -> EpisodeTask | None:
        """The next episode; None once a drain is asked for."""
        while not self._stopping.is_set():
            # Not to be cancelled: what was leased in that moment would be nobody's until its lease runs out.
            wait = 0.0 if self._pace.takes_turns else _LEASE_WAIT
            tasks = await self._queue.lease(self._name, 1, LEASE_SECONDS, wait_seconds=wait)
            if tasks:
                return tasks[0]
            # Episodes are dealt in the learner's turn: it must not wait for a browser that has none.
            await self._pace.turn()
        return None

    async def _until_stopping(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not task.done():
            task.cancel()
        elif (error := task.exception()) is not None:
            raise error

    async def _show_life(self) -> None:
        """Tell the worker that this event loop turns, which a heartbeat through Redis would not on a slow network."""
        while True:
            self._pulse(self._episodes)
            await asyncio.sleep(BEAT_SECONDS)

    async def _beat(self) -> None:
        """Prolong leases, and tell the world how we are."""
        while True:
            held = [a.current.episode for a in self._actors if a.current]
            try:
                if held:
                    await self._queue.heartbeat(self._name, held, LEASE_SECONDS)
                with broker_errors(client_where(self._client)):
                    await self._client.hset(self._members, self._name, json.dumps(self._figures()))
            except BrokerError as error:
                # The actors find out for themselves whether it is gone for good; if it is not, the next one counts.
                logger.warning("heartbeat not sent: %s", error)
            await asyncio.sleep(_HEARTBEAT_SECONDS)

    def _figures(self) -> dict[str, Any]:
        counters = [a.counters for a in self._actors]
        memory = self._pool.resident_bytes()
        return {
            "role": "actor",
            "pid": os.getpid(),
            "time": time.time(),
            "browsers": self._pool.count,
            "alive": self._pool.alive,
            "sandbox_obstacle": self._pool.sandbox_obstacle,
            "restarts": {f"browser {reason}": count for reason, count in self._pool.restarts.items()},
            "steps": sum(c.steps for c in counters),
            "episodes": sum(c.episodes for c in counters),
            "faults": sum(c.faults for c in counters),
            "invalid_actions": sum(c.invalid_actions for c in counters),
            "version": max(c.version for c in counters),
            "browser_memory_bytes": sum(memory),
            "memory_by_browser": {str(self._seating.first_slot + i): size for i, size in enumerate(memory)},
            "egress_refused": self._pool.egress.refused if self._pool.egress else 0,
            "egress_reopened": self._pool.egress.reopened if self._pool.egress else 0,
            "frame_waits": self._ring.waits if self._ring else 0,
        }

    async def _close(self) -> None:
        self._inference.close()
        await self._client.aclose()


def _first_of(group: BaseExceptionGroup[Exception]) -> Exception:
    first = group.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first


def main(argv: list[str] | None = None) -> int:
    """``python -m webgym_workers.browser_process``: started by the worker program, never by hand."""
    parser = argparse.ArgumentParser(prog="webgym-browsers")
    for name in ("memory-fd", "slots", "channel-fd", "first-slot", "count", "first-actor", "actors"):
        parser.add_argument(f"--{name}", type=int, required=True)
    add_pulse_arguments(parser)
    args = parser.parse_args(argv)

    def body(context: ProgramContext, drain: Drain) -> int:
        look_for_tasks_in(context.task_path)

        async def run() -> int:
            seating = Seating(args.first_slot, args.count, args.first_actor, args.actors)
            channel = socket.socket(fileno=args.channel_fd)
            process = BrowserProcess(
                context, drain, seating, args.memory_fd, args.slots, channel, pulse_of(args)
            )
            return await process.run()

        return _run_loop(run())

    return run_program(body)


def _run_loop(work: Coroutine[Any, Any, int]) -> int:
    try:
        import uvloop
    except ImportError:  # Windows
        return asyncio.run(work)
    result: int = uvloop.run(work)
    return result


if __name__ == "__main__":
    raise SystemExit(main())
