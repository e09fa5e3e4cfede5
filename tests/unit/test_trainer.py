"""The training loop, on workers that play at once: its meters, limits, rounds of validation and what is judged."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from webgym.protocol import EpisodeSummary, EpisodeTask, TransitionBatch
from webgym.schema import Observation, Schema
from webgym.spec import RunSpec
from webgym_learner.checkpoint import CheckpointStore
from webgym_learner.counters import Counters
from webgym_learner.dqn import DQN, DivergedError, DQNConfig, UpdateResult
from webgym_learner.inbox import Inbox
from webgym_learner.meters import fresh_enough
from webgym_learner.parts import StopReason, TrainerParts
from webgym_learner.recorder import MetricsRecorder
from webgym_learner.replay import PrioritizedReplay, ReplayBatch
from webgym_learner.schedule import EpisodeSchedule
from webgym_learner.share import anneal, updates_allowed
from webgym_learner.trainer import Trainer
from webgym_learner.validation import Validation, Verdict
from webgym_policy.network import PolicyNetwork, parameters_of

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


# --- pure ---


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.floats(0.001, 1000))
def test_an_update_is_allowed_as_long_as_the_ratio_holds_after_it(
    updates: int, steps: int, maximum: float
) -> None:
    allowed = updates_allowed(updates, steps, maximum)
    assert (allowed > 0) == (updates + 1 <= maximum * steps)
    assert allowed == 0 or updates + allowed <= maximum * steps < updates + allowed + 1


def test_without_steps_there_are_no_updates() -> None:
    assert updates_allowed(0, 0, 1000.0) == 0
    assert updates_allowed(0, 10, 2.5) == 25
    assert updates_allowed(30, 10, 2.5) == 0


def test_the_importance_exponent_rises_to_one_and_stays() -> None:
    assert [anneal(0.4, n, 100) for n in (0, 50, 100, 10**9)] == pytest.approx([0.4, 0.7, 1.0, 1.0])
    assert anneal(1.0, 3, 10) == 1.0
    assert anneal(0.0, 0, 1) == 0.0


# --- the loop ---


def test_training_by_steps(make: Make) -> None:
    stage = make()
    stage.inbox.per_look = 1
    assert stage.run() is StopReason.STEPS
    counters = stage.parts.counters
    assert 400 <= counters.steps < 400 + STEPS
    assert counters.steps == counters.episodes * STEPS == counters.transitions
    assert counters.stale == counters.faults == 0
    assert counters.training_seconds > 0
    # Never more updates than steps, and the last look leaves few undone.
    updates = stage.parts.dqn.updates
    assert counters.steps - 50 < updates <= counters.steps
    # The untrained network is the first version, and pinned; each later one a step further.
    versions = [version for version, _, _ in stage.inbox.published]
    assert versions == list(range(1, counters.version + 1))
    assert [pinned for _, _, pinned in stage.inbox.published[:2]] == [True, False]
    assert same(stage.inbox.published[0][1], stage.trainer.initial)
    assert len(versions) > updates / 10
    last = stage.notes.lines[-1]
    assert last["steps"] == counters.steps
    assert last["updates"] == updates
    assert last["success_train"] == 1.0
    assert 0 < last["replay_ratio"] <= 1.0
    assert np.isfinite(last["loss"])


def test_a_few_real_updates(make: Make) -> None:
    stage = make(stop={"steps": 40})
    stage.parts.dqn = DQN(PolicyNetwork(SCHEMA, 8, seed=1), DQNConfig(average_decay=0.9))
    stage.trainer = Trainer(stage.parts)
    stage.run()
    assert stage.parts.dqn.updates >= 8
    assert not same(stage.trainer.initial, parameters_of(stage.parts.dqn.acting))
    assert np.isfinite([stage.notes.lines[-1][name] for name in ("loss", "q_mean", "grad_norm")]).all()


def test_training_by_seconds_from_the_first_step(make: Make) -> None:
    stage = make(stop={"seconds": 20})
    assert stage.run() is StopReason.SECONDS
    assert 20 <= stage.parts.counters.training_seconds < 20.5
    assert stage.notes.lines[-1]["time_left"] == 0.0
    # About one line a second, and one more at the end.
    assert 18 <= len(stage.notes.lines) <= 24


def test_a_drain_before_anything_happened(make: Make) -> None:
    stage = make()
    assert stage.run(looks=0) is StopReason.DRAINED
    assert stage.inbox.dealt == []
    assert stage.parts.counters.steps == 0
    assert stage.notes.lines[-1]["success"] is None
    assert stage.trainer.checkpoint() == 0


def test_checkpoints_come_by_the_clock_and_hold_the_run(make: Make) -> None:
    learner = {"checkpoint": {"intervalSeconds": 3, "keep": 50}}
    stage = make(learner=learner, stop={"seconds": 20}, evaluation={"validationShare": 0})
    stage.run()
    assert 5 <= len(stage.store.steps()) <= 7
    found = stage.store.latest()
    assert found.state["counters"]["steps"] == found.step
    assert found.state["schedule"]["train"] > 0
    again = DQN(PolicyNetwork(SCHEMA, 8, seed=9))
    again.load_state_dict({"arrays": found.arrays, "state": found.state["dqn"]})
    assert same(parameters_of(again.acting), dict(found.arrays["acting"]))
    assert "replay" not in found.arrays


def test_the_replay_is_saved_when_asked(make: Make) -> None:
    stage = make(learner={"checkpoint": {"replay": True}})
    stage.run()
    stage.trainer.checkpoint()
    found = stage.store.latest()
    again = PrioritizedReplay(SCHEMA, 1 << 20)
    again.load_state(found.arrays["replay"], found.state["replay"])
    assert len(again) == len(stage.parts.replay)


def test_a_learner_that_goes_on_counts_on(make: Make) -> None:
    stage = make(
        Counters(steps=1000, transitions=1000, version=7, training_seconds=50.0), stop={"steps": 1200}
    )
    assert stage.run() is StopReason.STEPS
    assert stage.parts.counters.steps >= 1200
    assert stage.parts.counters.training_seconds > 50.0
    assert stage.inbox.published[1][0] == 8
    assert not stage.inbox.published[1][2]
    # Steps of an earlier life give this one no updates to catch up with.
    assert stage.parts.dqn.updates <= 200 + 4 * STEPS


def test_experience_of_parameters_long_gone_is_dropped_and_counted(make: Make) -> None:
    quiet = {"validationShare": 0}
    stage = make(policy={"maxStaleness": 5}, stop={"steps": 100_000}, evaluation=quiet)
    stage.run(looks=60)
    kept = stage.parts.counters.transitions
    assert stage.parts.counters.stale == 0
    assert kept > 0
    stage.inbox.age = 6
    stage.trainer.run(iter([False] * 30 + [True]).__next__)
    assert stage.parts.counters.stale > 0
    assert stage.parts.counters.transitions < kept + stage.parts.counters.stale


def test_of_a_batch_the_fresh_part_is_kept() -> None:
    versions = np.array([3, 4, 9, 5, 10])
    assert fresh_enough(versions, 10, 5).tolist() == [False, False, True, True, True]
    assert fresh_enough(versions, 10, 0).all()
    assert fresh_enough(versions, 2, 5).all()  # of a learner that goes on from an older checkpoint


def test_episodes_that_were_given_up_are_counted(make: Make) -> None:
    stage = make()
    stage.inbox.outcome = lambda task: "fault" if int(task.episode[-1]) < 3 else "terminated"
    stage.run()
    counters = stage.parts.counters
    assert 0.2 < counters.faults / (counters.episodes + 1) < 0.5
    assert stage.notes.lines[-1]["faults"] == counters.faults
    assert stage.notes.lines[-1]["success_train"] < 1.0


def test_browsers_pause_while_the_learner_is_behind(make: Make) -> None:
    stage = make(learner={"replayRatio": {"min": 4.0, "max": 8.0}}, stop={"steps": 100_000})
    stage.inbox.per_look = 1000
    stage.run(looks=400)
    steps, updates = stage.parts.counters.steps, stage.parts.dqn.updates
    # Four updates a look is all there is time for; the browsers would take 8 * 4 steps.
    assert updates == pytest.approx(4 * 400, abs=60)
    assert steps * 4.0 < updates + 200 + 16 * STEPS * 4.0


def test_the_learner_waits_while_it_is_ahead(make: Make) -> None:
    stage = make(learner={"replayRatio": {"min": 0.0, "max": 0.25}})
    stage.run()
    assert stage.parts.dqn.updates <= 0.25 * stage.parts.counters.steps


def test_a_share_of_the_episodes_validates_once_there_is_something_to_see(make: Make) -> None:
    stage = make(evaluation={"validationShare": 0.25}, stop={"steps": 2000})
    stage.inbox.succeeds = lambda task: False
    stage.run()
    purposes = [t.purpose for t in stage.inbox.dealt]
    assert "validate" not in purposes[:8]
    assert purposes.count("validate") / len(purposes) == pytest.approx(0.25, abs=0.03)
    assert all(t.version == 0 for t in stage.inbox.dealt)  # the newest parameters
    counters = stage.parts.counters
    assert counters.validation_steps == pytest.approx(STEPS * purposes.count("validate"), abs=8 * STEPS)
    assert counters.steps >= 2000
    assert stage.notes.lines[-1]["success"] == 0.0
    assert stage.inbox.cursors["validate"] == purposes.count("validate")


# --- rounds ---


def test_success_is_judged_by_one_version_and_its_weights_are_the_result(make: Make) -> None:
    # Slow rounds: 30 episodes one by one, while checkpoints come every five seconds and one of them is kept.
    stage = make(
        learner={"checkpoint": {"intervalSeconds": 5, "keep": 1}, "replayRatio": {"max": 1000.0}},
        stop={"steps": 100_000, "success": 0.9, "window": 30},
        looks={"seconds_per_look": 1.0},
    )
    stage.inbox.per_look = 1
    assert stage.run() is StopReason.SUCCESS
    rounds = [t for t in stage.inbox.dealt if "-round" in t.episode]
    assert len(rounds) == 30
    [version] = {t.version for t in rounds}
    [judged] = [state for v, state, pinned in stage.inbox.published if v == version and pinned]
    # Training went on meanwhile, though no step was taken: all browsers were validating.
    assert not same(judged, parameters_of(stage.parts.dqn.acting))
    stage.trainer.checkpoint()
    weights = stage.trainer.final_weights()
    assert weights.origin == "best"
    assert weights.checkpoint == stage.store.best(["acting"]).path
    assert same(dict(weights.arrays), judged)
    assert same(dict(stage.store.best(["acting"]).arrays["acting"]), judged)
    # What is resumed from is what came last.
    assert same(dict(stage.store.latest(["acting"]).arrays["acting"]), parameters_of(stage.parts.dqn.acting))


def test_a_round_whose_episodes_the_server_lost_still_ends(make: Make) -> None:
    stage = make(stop={"steps": 100_000, "success": 0.9, "window": 30}, looks={"seconds_per_look": 1.0})
    lost = []

    def look_out(task: EpisodeTask) -> bool:
        if "-round" in task.episode and not lost:
            lost.append(task)
            stage.inbox.lose(len(stage.inbox.waiting))
        return True

    stage.inbox.succeeds = look_out
    assert stage.run() is StopReason.SUCCESS
    assert stage.inbox.checks > 0


def test_several_tasks_are_practised_by_progress(make: Make) -> None:
    tasks = [{"name": "mastered"}, {"name": "rising"}]
    stage = make(task=tasks, stop={"steps": 2400}, evaluation={"validationShare": 0})
    stage.inbox.succeeds = lambda task: task.task == "mastered" or stage.parts.counters.steps > 1000
    stage.run()
    trained = [t for t in stage.inbox.dealt if t.purpose == "train"]
    by_time = [
        sum(t.task == "rising" for t in part) / len(part)
        for part in (trained[:192], trained[256:384], trained[-128:])
    ]
    assert by_time[0] == 0.5  # six stretches of 16 for each of two browsers
    assert by_time[1] > 0.6
    assert by_time[2] == pytest.approx(0.5, abs=0.15)  # by now it is mastered, too
    told = [line["tasks"] for line in stage.notes.lines]
    assert told[-1]["rising"]["success"] == told[-1]["mastered"]["success"] == 1.0
    assert max(tasks["rising"]["share"] for tasks in told) == 0.75
    stage.trainer.checkpoint()
    saved = json.loads(json.dumps(stage.store.latest().state["curriculum"]))
    again = EpisodeSchedule(stage.parts.spec.tasks, 0)
    again.curriculum.load_state(saved)
    again.load_state(stage.parts.schedule.state())
    assert again.deal("train", 40) == EpisodeSchedule.deal(stage.parts.schedule, "train", 40)


def test_a_round_that_fails_gives_its_browsers_back(make: Make) -> None:
    stage = make(stop={"steps": 3000, "success": 1.0, "window": 50})
    stage.inbox.succeeds = lambda task: "-round" not in task.episode
    assert stage.run() is StopReason.STEPS
    rounds = {t.version for t in stage.inbox.dealt if "-round" in t.episode}
    assert rounds
    assert "validate" in stage.inbox.cancelled
    assert set(stage.inbox.unpinned) <= rounds
    assert len(stage.inbox.unpinned) >= len(rounds) - 1
    played = stage.parts.counters.validation_steps / STEPS
    assert played < len([t for t in stage.inbox.dealt if t.purpose == "validate"])


def test_without_a_target_the_best_is_found_and_training_goes_on(make: Make) -> None:
    stage = make(stop={"steps": 3000, "window": 30})
    # Good at first, then worse: the curve at the end lies below the best round.
    stage.inbox.succeeds = lambda task: task.purpose == "train" or stage.parts.counters.steps < 1500
    assert stage.run() is StopReason.STEPS
    best = stage.trainer.validation.best
    assert best is not None
    assert best.passed
    [judged] = [state for v, state, pinned in stage.inbox.published if v == best.version]
    weights = stage.trainer.final_weights()
    assert weights.origin == "best"
    assert same(dict(weights.arrays), judged)


def revive(stage: Stage, make: Make, **spec: Any) -> Stage:
    """The learner that takes over after a kill: what it knows is in the checkpoints."""
    found = stage.store.latest()
    again = make(Counters(**found.state["counters"]), **spec)
    again.parts.dqn.load_state_dict({"arrays": found.arrays, "state": found.state["dqn"]})
    again.parts.saved_at = found.path
    again.parts.validation = Validation(again.parts.spec.stop.success, again.parts.spec.stop.window)
    again.parts.validation.load_state(json.loads(json.dumps(found.state["validation"])))
    note = again.store.note()
    again.parts.validation.best = None if note is None else Verdict.from_state(note.verdict)
    again.trainer = Trainer(again.parts)
    return again


def test_a_learner_that_takes_over_remembers_the_best_weights(make: Make) -> None:
    spec: dict[str, Any] = {"stop": {"steps": 3000, "window": 30}}
    stage = make(**spec)
    stage.inbox.succeeds = lambda task: task.purpose == "train" or stage.parts.counters.steps < 1500
    stage.run()
    best = stage.trainer.validation.best
    assert best is not None
    [judged] = [state for v, state, pinned in stage.inbox.published if v == best.version]
    stage.trainer.checkpoint()
    again = revive(stage, make, **spec)
    assert again.trainer.validation.best == best
    assert again.trainer.validation.curve.rate == stage.trainer.validation.curve.rate
    weights = again.trainer.final_weights()
    assert weights.origin == "best"
    assert same(dict(weights.arrays), judged)
    # A worse verdict later does not take its place.
    assert not again.store.mark(again.store.steps()[-1], best.lower - 0.1, {})
    assert again.store.note() == stage.store.note()


def test_a_verdict_that_passed_ends_the_run_also_for_the_learner_that_takes_over(make: Make) -> None:
    spec: dict[str, Any] = {"stop": {"steps": 100_000, "success": 0.9, "window": 30}}
    stage = make(**spec)
    assert stage.run() is StopReason.SUCCESS
    # Killed at once: the newest checkpoint is the one that was judged.
    again = revive(stage, make, **spec)
    assert again.run() is StopReason.SUCCESS
    assert again.inbox.dealt == []
    assert again.trainer.final_weights().origin == "best"
    # One who asks for more gets it.
    further = revive(stage, make, stop={"steps": 100_000, "success": 0.9, "window": 31})
    assert further.run() is StopReason.SUCCESS
    assert len([t for t in further.inbox.dealt if "-round" in t.episode]) >= 31


def test_the_latest_weights_are_the_result_where_nothing_says_otherwise(make: Make) -> None:
    stage = make()
    stage.run()
    weights = stage.trainer.final_weights()
    assert weights.origin == "latest"
    assert same(dict(weights.arrays), parameters_of(stage.parts.dqn.acting))


def test_a_best_checkpoint_that_is_gone_is_said_and_done_without(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    stage = make(stop={"steps": 100_000, "success": 0.9, "window": 20})
    assert stage.run() is StopReason.SUCCESS
    for file in stage.store.directory.glob("step-*/acting.npz"):
        file.write_bytes(b"")
    weights = stage.trainer.final_weights()
    assert weights.origin == "latest"
    assert same(dict(weights.arrays), parameters_of(stage.parts.dqn.acting))
    assert "the latest weights are evaluated in its stead" in caplog.text


def test_weights_that_are_not_finite_are_neither_published_nor_saved(make: Make) -> None:
    stage = make()
    stage.trainer.checkpoint()
    saved, published = stage.store.steps(), len(stage.inbox.published)
    with torch.no_grad():
        stage.parts.dqn.online.page.bias[0] = torch.inf
    for act in (stage.trainer.checkpoint, stage.trainer.publish):
        with pytest.raises(DivergedError, match="--resume"):
            act()
    assert stage.store.steps() == saved
    assert len(stage.inbox.published) == published
