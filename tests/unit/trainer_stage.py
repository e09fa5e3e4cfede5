"""A trainer with all around it played: workers and Redis in one, updates that cost nothing, and a clock of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from webgym.protocol import EpisodeSummary, EpisodeTask, TransitionBatch
from webgym.schema import Observation, Schema
from webgym.spec import RunSpec
from webgym_learner.checkpoint import CheckpointStore
from webgym_learner.counters import Counters
from webgym_learner.dqn import DQN, UpdateResult
from webgym_learner.inbox import Inbox
from webgym_learner.parts import StopReason, TrainerParts
from webgym_learner.recorder import MetricsRecorder
from webgym_learner.replay import PrioritizedReplay, ReplayBatch
from webgym_learner.schedule import EpisodeSchedule
from webgym_learner.trainer import Trainer
from webgym_policy.network import PolicyNetwork

SCHEMA = Schema(nodes=3, node_features=4, texts=2, text_features=3, pair_features=2, goal_features=5)
STEPS = 4
"""Steps of every episode."""


class Clock:
    """Moves only when told to: by the loop's looks into the inbox."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    time = monotonic


class PlayedInbox:
    """Workers and Redis in one: what is dealt is played before the next look."""

    def __init__(self, clock: Clock, seconds_per_look: float = 0.1) -> None:
        self.clock = clock
        self.seconds_per_look = seconds_per_look
        self.dealt: list[EpisodeTask] = []
        self.waiting: list[EpisodeTask] = []
        self.published: list[tuple[int, dict[str, NDArray[np.float32]], bool]] = []
        self.unpinned: list[int] = []
        self.cancelled: list[str] = []
        self.cursors: dict[str, int] = {}
        self.outcome: Callable[[EpisodeTask], str] = lambda task: "terminated"
        self.succeeds: Callable[[EpisodeTask], bool] = lambda task: True
        self.age = 0
        self.checks = 0
        self.played: set[str] = set()
        self.per_look = 4
        self._summaries: list[EpisodeSummary] = []

    @property
    def version(self) -> int:
        return self.published[-1][0]

    def experience(self, block_ms: int) -> list[TransitionBatch]:
        self.clock.now += self.seconds_per_look
        # Those that are waited for first, as the queue has it.
        self.waiting.sort(key=lambda task: -task.priority)
        playing, self.waiting = self.waiting[: self.per_look], self.waiting[self.per_look :]
        self._summaries += map(self._play, playing)
        self.played |= {t.episode for t in playing}
        return [self._batch(t) for t in playing if t.purpose == "train" and self.outcome(t) != "fault"]

    def results(self) -> list[EpisodeSummary]:
        done, self._summaries = self._summaries, []
        return done

    def deal(self, tasks: list[EpisodeTask], cursors: dict[str, int]) -> None:
        self.dealt += tasks
        self.waiting += tasks
        self.cursors = cursors

    def browsers(self) -> int:
        return 2

    def queued(self) -> int:
        return len(self.waiting)

    def check(self) -> None:
        self.checks += 1

    def add(self, tasks: list[EpisodeTask]) -> int:
        """As the queue does: what it knows is not taken twice."""
        fresh = [t for t in tasks if t not in self.waiting and t.episode not in self.played]
        self.waiting += fresh
        return len(fresh)

    def lose(self, count: int) -> None:
        """As a server that was killed before its last second was on the disk."""
        self.waiting = self.waiting[: len(self.waiting) - count]

    def cancel(self, purpose: str) -> int:
        self.cancelled.append(purpose)
        before = len(self.waiting)
        self.waiting = [t for t in self.waiting if t.purpose != purpose]
        return before - len(self.waiting)

    def publish(self, version: int, state: dict[str, NDArray[np.float32]], *, pinned: bool) -> None:
        self.published.append((version, {name: array.copy() for name, array in state.items()}, pinned))

    def unpin(self, version: int) -> None:
        self.unpinned.append(version)

    def _play(self, task: EpisodeTask) -> EpisodeSummary:
        outcome = self.outcome(task)
        return EpisodeSummary(
            episode=task.episode, attempt=1, task=task.task, seed=task.seed, purpose=task.purpose,
            success=outcome != "fault" and self.succeeds(task), reward=1.0, steps=STEPS, seconds=0.5,
            version=task.version or self.version, epsilon=0.05, worker="w", outcome=cast(Any, outcome),
        )  # fmt: skip

    def _batch(self, task: EpisodeTask) -> TransitionBatch:
        rng = np.random.default_rng(task.seed)
        observations: Observation = {
            name: np.ones((STEPS + 1, *spec.shape), spec.dtype)
            if name.endswith("mask")
            else (rng.integers(0, 256, (STEPS + 1, *spec.shape)) / 256).astype(spec.dtype)
            for name, spec in SCHEMA.fields().items()
        }
        return TransitionBatch(
            episode=task.episode, attempt=1, task=task.task, first_sequence=0, worker="w", generation=1,
            observations=observations,
            obs_index=np.arange(STEPS, dtype=np.int32),
            next_index=np.arange(1, STEPS + 1, dtype=np.int32),
            action=rng.integers(0, SCHEMA.actions, STEPS).astype(np.int32),
            reward=rng.random(STEPS).astype(np.float32),
            discount=np.full(STEPS, 0.9, np.float32),
            priority=np.ones(STEPS, np.float32),
            version=np.full(STEPS, max(1, self.version - self.age), np.int64),
        )  # fmt: skip


class QuickDQN(DQN):
    """Its updates change the weights, and cost nothing."""

    def update(self, batch: ReplayBatch, moved=None, meanwhile=None) -> UpdateResult:
        self.updates += 1
        with torch.no_grad():
            for parameter in self.online.parameters():
                parameter += 1e-3
        return UpdateResult(0.5, np.ones(len(batch.slots), np.float32), 0.0, 1.0)


class Notes:
    """In place of the recorder."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def write(self, metrics: dict[str, Any]) -> None:
        self.lines.append(metrics)


class Stage(SimpleNamespace):
    """A trainer and everything around it."""

    trainer: Trainer
    parts: TrainerParts
    inbox: PlayedInbox
    notes: Notes
    clock: Clock
    store: CheckpointStore

    def run(self, looks: int = 4000) -> StopReason:
        left = [looks]

        def drained() -> bool:
            left[0] -= 1
            return left[0] < 0

        return self.trainer.run(drained)


Make = Callable[..., Stage]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    clock = Clock()
    monkeypatch.setattr("webgym_learner.trainer.time", clock)
    monkeypatch.setattr("webgym_learner.renewal.time", clock)

    def begin(counters: Counters | None = None, looks: dict[str, Any] | None = None, **spec: Any) -> Stage:
        learner: dict[str, Any] = {"batchSize": 4, "publishInterval": 5, **spec.pop("learner", {})}
        learner["replay"] = {"minTransitions": 16, **learner.get("replay", {})}
        wanted = {
            "task": {"name": "shop:Shop"},
            "policy": {"exploration": {"warmupSteps": 0}, **spec.pop("policy", {})},
            "learner": learner,
            "stop": {"steps": 400},
            **spec,
        }
        run = RunSpec.model_validate(wanted, by_alias=True, by_name=False)
        inbox, notes = PlayedInbox(clock, **(looks or {})), Notes()
        store = CheckpointStore(tmp_path / "checkpoints", SCHEMA.hash, run.learner.checkpoint.keep)
        parts = TrainerParts(
            spec=run,
            generation=1,
            dqn=QuickDQN(PolicyNetwork(SCHEMA, 8, seed=1)),
            replay=PrioritizedReplay(SCHEMA, 1 << 20),
            schedule=EpisodeSchedule(run.tasks, run.seed),
            inbox=cast(Inbox, inbox),
            recorder=cast(MetricsRecorder, notes),
            checkpoints=store,
            counters=counters or Counters(),
            rng=np.random.default_rng(0),
        )
        if counters:
            inbox.published.append((counters.version, {}, False))
        trainer = Trainer(parts)
        return Stage(trainer=trainer, parts=parts, inbox=inbox, notes=notes, clock=clock, store=store)

    yield begin
    torch.set_num_threads(threads)


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)
