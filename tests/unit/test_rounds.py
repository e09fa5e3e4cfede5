"""Rounds of validation: which version is judged, which weights are the result, and what a successor knows of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from trainer_stage import STEPS, Make, Stage, make, same

from webgym.protocol import EpisodeTask
from webgym_learner.counters import Counters
from webgym_learner.parts import StopReason
from webgym_learner.trainer import Trainer
from webgym_learner.validation import Validation, Verdict
from webgym_policy.network import parameters_of

__all__ = ["make"]


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
