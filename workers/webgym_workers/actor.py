"""The acting loop: leased episodes, played on one browser, turned into transitions.

One actor per browser. It leases an episode, plays it with the rate of exploration of its slot, sends the transitions,
and completes the lease. Whatever breaks in between costs the episode, not the actor: the lease is given back (or runs
out), the unfinished n-step tail is dropped, and the browser is replaced.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from webgym.experience import ExperienceWriter
from webgym.protocol import EpisodeSummary, TransitionBatch
from webgym.queue import EpisodeTask, TaskQueue
from webgym.schema import Observation, Schema
from webgym_policy.returns import NStepAssembler, Transition, columns
from webgym_policy.selection import actor_epsilon, greedy, masked_max, random_action
from webgym_workers.browser.faults import BrowserFault
from webgym_workers.episode import Episode
from webgym_workers.film import FilmRecorder
from webgym_workers.inference_client import InferenceClient, ParametersGone
from webgym_workers.observer.prior import exploration_weights
from webgym_workers.pace import Pace
from webgym_workers.seat import Seat

__all__ = ["Acting", "Actor", "ActorCounters", "Player"]

logger = logging.getLogger(__name__)

UNTRAINED_VERSION = 1
"""The learner publishes its initial weights as version 1, and nothing else before it has begun to learn."""


@dataclass(frozen=True)
class Acting:
    """How an actor acts; from the run's spec."""

    worker: str
    index: int
    """Which actor of the run, for its place on the exploration ladder."""
    actors: int
    epsilon: float
    alpha: float
    n_step: int
    discount: float
    step_cost: float
    seed: int
    flush_steps: int
    """Transitions of a running episode are sent in parts of so many, so that the learner need not wait for its end."""

    @property
    def own_epsilon(self) -> float:
        """This actor's fixed rate of exploration."""
        return actor_epsilon(self.index, self.actors, self.epsilon, self.alpha)


@dataclass
class ActorCounters:
    """What an actor has done so far, for the metrics."""

    steps: int = 0
    episodes: int = 0
    faults: int = 0
    invalid_actions: int = 0
    version: int = 0
    started: float = field(default_factory=time.monotonic)


@dataclass
class _Recording:
    """The observations and transitions of an episode."""

    observations: list[Observation] = field(default_factory=list)
    transitions: list[Transition] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    sent: int = 0


class Player:
    """Plays one episode after another with given Q values; knows nothing of leases."""

    def __init__(self, acting: Acting, slot: int, schema: Schema, inference: InferenceClient) -> None:
        self._acting = acting
        self._slot = slot
        self._schema = schema
        self._inference = inference
        self._rng = np.random.default_rng([acting.seed, acting.index])

    async def act(
        self, observation: Observation, task: EpisodeTask, since: int = 0
    ) -> tuple[int, float, float, int, float]:
        """Choose an action: (flat action, Q of it, largest valid Q, parameter version, epsilon used).

        Where the task names no version, the newest parameters decide, once they are version ``since`` or later.
        """
        q, version = await self._inference.q_values(self._slot, observation, task.version or -since)
        mask = observation["action_mask"]
        epsilon = self._epsilon(task, version)
        if self._rng.random() < epsilon:
            action = random_action(mask, self._schema, self._rng, *exploration_weights(observation))
        else:
            action = int(greedy(q[None], mask[None], self._schema, self._rng)[0])
        return action, float(q[action]), float(masked_max(q[None], mask[None])[0]), version, epsilon

    async def value(self, observation: Observation, task: EpisodeTask, since: int = 0) -> float:
        """Largest valid Q of an observation that is not acted on, by the parameters of :meth:`act`."""
        q, _ = await self._inference.q_values(self._slot, observation, task.version or -since)
        return float(masked_max(q[None], observation["action_mask"][None])[0])

    def _epsilon(self, task: EpisodeTask, version: int) -> float:
        if task.purpose in ("evaluate", "validate"):
            return 0.0
        if version <= UNTRAINED_VERSION:
            return 1.0
        return self._acting.own_epsilon


class Actor:
    """One browser's loop.

    Args:
        acting: how to act.
        slot: this actor's slot in the shared memory.
        schema: sizes of observation and action space.
        inference: where Q values come from.
        queue: where episodes come from.
        experience: where transitions go.
        seat: its place at a browser.
        pace: when it may step.
        film: keeps screenshots of episodes that ask for it.
    """

    def __init__(
        self,
        acting: Acting,
        slot: int,
        schema: Schema,
        inference: InferenceClient,
        queue: TaskQueue,
        experience: ExperienceWriter,
        seat: Seat,
        pace: Pace,
        film: FilmRecorder,
    ) -> None:
        self.acting = acting
        self.counters = ActorCounters()
        self.current: EpisodeTask | None = None
        self._schema = schema
        self._queue = queue
        self._experience = experience
        self._seat = seat
        self._pace = pace
        self._film = film
        self._player = Player(acting, slot, schema, inference)

    async def run_episode(self, task: EpisodeTask) -> str | None:
        """Play one leased episode to its end and settle its lease, whatever happens.

        Returns:
            None when it was played to its end, else what came in between, one line.

        Raises:
            BrokerError: Redis is gone.
            TaskError: the task's own code failed; the lease is still held.
        """
        self.current = task
        reason: str | None = None
        try:
            async with self._seat.episode(task.task, task.params) as episode:
                await self._play(task, episode)
        except BrowserFault as fault:
            self.counters.faults += 1
            reason = f"{type(fault).__name__}: {fault}"
            logger.warning("%s", reason, extra={"episode": task.episode})
            await self._queue.fail(task.episode, task.attempt, reason, fault.blame)
        except ParametersGone as gone:
            # Nothing is wrong here: the episode asked for weights that are gone, and will not come back.
            await self._queue.fail(task.episode, task.attempt, str(gone), "agent", final=True)
        finally:
            self.current = None
        return reason

    async def _play(self, task: EpisodeTask, episode: Episode) -> None:
        started = time.monotonic()
        view = await episode.reset(task.seed, task.max_steps)
        learning = task.purpose in ("train", "collect")
        assembler = NStepAssembler(self.acting.n_step, self.acting.discount)
        recording = _Recording([_kept(view.observation)])
        film = self._film.start(task) if task.record else None
        total, steps, invalid, first_version, version, epsilon = 0.0, 0, 0, 0, 0, 0.0
        while True:
            since = await self._pace.turn()
            action, q_taken, q_max, version, epsilon = await self._player.act(view.observation, task, since)
            first_version = first_version or version
            if film:
                await film.frame(episode, self._schema.decode(action))
            step = await episode.step(self._schema.decode(action))
            steps += 1
            total += step.reward
            invalid += step.invalid is not None
            reward = step.reward - self.acting.step_cost
            recording.transitions += assembler.add(steps - 1, action, reward, q_taken, q_max)
            recording.versions.append(version)
            view = step.view
            recording.observations.append(_kept(view.observation))
            self.counters.steps += 1
            if step.terminated or step.truncated:
                break
            if learning and len(recording.transitions) - recording.sent >= self.acting.flush_steps:
                await self._send(task, recording)
        final_value = 0.0
        if step.truncated and learning:
            final_value = await self._player.value(view.observation, task, since)
        recording.transitions += assembler.end(
            terminated=step.terminated,
            truncated=step.truncated,
            final_obs_index=steps,
            final_q_max=final_value,
        )
        if film:
            await film.end(episode, success=step.success)
        if learning:
            await self._send(task, recording)
        self.counters.episodes += 1
        self.counters.invalid_actions += invalid
        self.counters.version = version
        summary = EpisodeSummary(
            episode=task.episode,
            attempt=task.attempt,
            task=task.task,
            seed=task.seed,
            purpose=task.purpose,
            success=step.success,
            reward=total,
            steps=steps,
            seconds=time.monotonic() - started,
            version=version,
            epsilon=epsilon,
            worker=f"{self.acting.worker}/{self.acting.index}",
            outcome="terminated" if step.terminated else "truncated",
            staleness=max(0, version - first_version),
            invalid_actions=invalid,
        )
        counters = {f"{task.purpose}_steps": float(steps), f"{task.purpose}_episodes": 1.0}
        if step.success:
            counters[f"{task.purpose}_successes"] = 1.0
        if not await self._queue.complete(task.episode, task.attempt, summary, counters):
            logger.info("completed by another attempt already", extra={"episode": task.episode})

    async def _send(self, task: EpisodeTask, recording: _Recording) -> None:
        """Send the transitions not sent yet, each observation they point at once."""
        fresh = recording.transitions[recording.sent :]
        if not fresh:
            return
        cols = columns(fresh)
        used = np.unique(np.concatenate([cols.obs_index, cols.next_index]))
        batch = TransitionBatch(
            episode=task.episode,
            attempt=task.attempt,
            task=task.task,
            first_sequence=recording.sent,
            worker=self.acting.worker,
            generation=1,
            observations=_stack([recording.observations[i] for i in used]),
            obs_index=np.searchsorted(used, cols.obs_index).astype(np.int32),
            next_index=np.searchsorted(used, cols.next_index).astype(np.int32),
            action=cols.action,
            reward=cols.reward,
            discount=cols.discount,
            priority=cols.priority,
            version=np.array([recording.versions[i] for i in cols.obs_index], dtype=np.int64),
        )
        await self._experience.push([batch])
        recording.sent += len(fresh)


def _kept(observation: Observation) -> Observation:
    """An observation to keep until it is sent: its frame must not hold a cell of the ring for so long."""
    return {name: array.copy() if name == "frame" else array for name, array in observation.items()}


def _stack(observations: list[Observation]) -> dict[str, NDArray[np.generic]]:
    return {name: np.stack([o[name] for o in observations]) for name in observations[0]}
