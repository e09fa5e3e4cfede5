"""What an actor sends, in each mode: windows end with their episode, and only a truncation has a future."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from webgym.protocol import TransitionBatch
from webgym.queue import EpisodeTask
from webgym.schema import Observation, Schema
from webgym.turns import WorkerTurns
from webgym_workers.actor import Acting, Actor
from webgym_workers.pace import FreePace, Pace, TurnPace

SCHEMA = Schema(nodes=3, node_features=4, texts=2, text_features=3, pair_features=2, goal_features=5)
GAMMA = 0.5
LENGTH = 5


def place(episode: int, step: int) -> float:
    """What an observation shows of where it was made."""
    return episode * 100.0 + step


def observation(episode: int, step: int) -> Observation:
    made = SCHEMA.empty()
    made["dom"][...] = place(episode, step)
    made["action_mask"][...] = 1
    return made


class PlayedEpisodes:
    """A seat whose episodes last LENGTH steps, each with a reward of 1; even ones terminate, odd ones are cut off."""

    def __init__(self) -> None:
        self._number = 0
        self._step = 0

    @asynccontextmanager
    async def episode(self, task: str, params: dict[str, Any]) -> AsyncIterator[Any]:
        yield self

    async def reset(self, seed: int, max_steps: int | None) -> Any:
        self._number, self._step = seed, 0
        return SimpleNamespace(observation=observation(seed, 0))

    async def step(self, action: object) -> Any:
        self._step += 1
        ended = self._step == LENGTH
        return SimpleNamespace(
            view=SimpleNamespace(observation=observation(self._number, self._step)),
            reward=1.0,
            terminated=ended and self._number % 2 == 0,
            truncated=ended and self._number % 2 == 1,
            success=False,
            invalid=None,
        )


class Services:
    """Inference, queue, stream and learner in one; keeps what was sent and when it was granted a turn."""

    def __init__(self) -> None:
        self.batches: list[TransitionBatch] = []
        self.completed: list[str] = []
        self.sent_at_turn: list[int] = []
        self.asked: list[int] = []

    async def q_values(
        self, slot: int, seen: Observation, version: int = 0
    ) -> tuple[NDArray[np.float32], int]:
        self.asked.append(version)
        return np.full(SCHEMA.actions, 8.0, np.float32), 2

    async def push(self, batches: list[TransitionBatch]) -> None:
        self.batches += batches

    async def complete(self, episode: str, *rest: object) -> bool:
        self.completed.append(episode)
        return True

    async def next(self) -> int:
        self.sent_at_turn.append(sum(map(len, self.batches)))
        return 2


def acting(index: int, flush: int) -> Acting:
    return Acting("w", index, 3, 0.0, 7.0, n_step=3, discount=GAMMA, step_cost=0.0, seed=0, flush_steps=flush)


def task(number: int) -> EpisodeTask:
    return EpisodeTask(episode=f"train-{number}", task="t", seed=number, purpose="train", attempt=1)


MODES = {"Asynchronous": (2, 64), "Lockstep": (2, 1), "Synchronous": (1, 1)}
"""Actors, and how many transitions are sent at once."""


async def play(mode: str) -> Services:
    """Two episodes by each actor, one that ends and one that is cut off."""
    actors, flush = MODES[mode]
    services: Any = Services()
    pace: Pace = FreePace() if mode == "Asynchronous" else TurnPace(cast(WorkerTurns, services), actors)

    async def act(index: int) -> None:
        seat: Any = PlayedEpisodes()
        film: Any = None
        actor = Actor(acting(index, flush), index, SCHEMA, services, services, services, seat, pace, film)
        for number in (2 * index, 2 * index + 1):
            assert await actor.run_episode(task(number)) is None
        pace.free()

    await asyncio.wait_for(asyncio.gather(*(act(i) for i in range(actors))), 20)
    assert len(services.completed) == 2 * actors
    return cast(Services, services)


@pytest.mark.parametrize("mode", MODES)
async def test_windows_end_with_their_episode_and_only_a_truncation_has_a_future(mode: str) -> None:
    services = await play(mode)
    found = {}
    for batch in services.batches:
        for i in range(len(batch)):
            here, there = (
                batch.observations["dom"][index[i], 0, 0] for index in (batch.obs_index, batch.next_index)
            )
            found[float(here)] = (float(there), float(batch.reward[i]), float(batch.discount[i]))
    expected = {}
    for number in range(2 * MODES[mode][0]):
        for step in range(LENGTH):
            window = min(3, LENGTH - step)
            ends_here = step + window == LENGTH and number % 2 == 0
            expected[place(number, step)] = (
                place(number, step + window),
                sum(GAMMA**i for i in range(window)),
                0.0 if ends_here else GAMMA**window,
            )
    assert found == expected
    assert sum(map(len, services.batches)) == len(expected)


@pytest.mark.parametrize("mode", ["Lockstep", "Synchronous"])
async def test_in_turns_each_step_is_with_the_learner_before_the_next(mode: str) -> None:
    services = await play(mode)
    actors = MODES[mode][0]
    # Of n steps of an episode those are known whose windows are full.
    assert services.sent_at_turn[:6] == [actors * n for n in (0, 0, 0, 0, 1, 5)]
    assert set(services.asked) == {-2}  # no parameters older than the turn's
    points = [np.concatenate([b.obs_index, b.next_index]) for b in services.batches]
    # No observation travels that none of the transitions needs.
    assert all(
        set(p) == set(range(len(b.observations["dom"])))
        for p, b in zip(points, services.batches, strict=True)
    )
