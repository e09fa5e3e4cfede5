"""The training loop, on workers that play at once: its meters, its limits, and what it saves."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from trainer_stage import SCHEMA, STEPS, Make, make, same

from webgym_learner.counters import Counters
from webgym_learner.dqn import DQN, DivergedError, DQNConfig
from webgym_learner.meters import fresh_enough
from webgym_learner.parts import StopReason
from webgym_learner.replay import PrioritizedReplay
from webgym_learner.schedule import EpisodeSchedule
from webgym_learner.trainer import Trainer
from webgym_policy.network import PolicyNetwork, parameters_of

__all__ = ["make"]


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
