"""The training loop: experience in, gradient updates, parameters out, one thread, nobody waited for.

Two meters hold actors and learner together. Above ``replayRatio.max`` updates per environment step the learner waits
for experience; below ``replayRatio.min`` it deals no further episodes, so the browsers pause once the queue is dry.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from webgym.errors import CheckpointError
from webgym.protocol import EpisodeSummary
from webgym_learner.dqn import UpdateResult
from webgym_learner.group import Order, OrderKind, Report
from webgym_learner.meters import TrainingMeters
from webgym_learner.parts import StopReason, TrainerParts
from webgym_learner.renewal import Renewal
from webgym_learner.share import Share, updates_allowed
from webgym_learner.validation import Validation, Verdict
from webgym_learner.weights import Weights
from webgym_policy.description import description_of
from webgym_policy.network import parameters_of

__all__ = ["Trainer"]

logger = logging.getLogger(__name__)

_UPDATES_PER_ROUND = 4
"""Updates between two looks at the inbox."""
_REPORT_SECONDS = 1.0
_COUNT_SECONDS = 0.05
"""How often the queue's depth is asked for."""
_LEAST_DEPTH = 8
"""Episodes kept queued at least; twice the browsers where there are many."""
_STRETCH = 16
"""Episodes of one task that each browser plays in a row, about."""
_RATIO_SLACK = 200
"""Updates by which the learner may fall behind the smallest ratio before the browsers pause."""


class Trainer:
    """Trains until a limit is reached or a drain is asked for."""

    def __init__(self, parts: TrainerParts) -> None:
        self.parts = parts
        spec = parts.spec
        self.validation = parts.validation or Validation(spec.stop.success, spec.stop.window)
        self._meters = TrainingMeters()
        self._last_update: UpdateResult | None = None
        ranks = 1 if parts.group is None else parts.group.ranks
        self._share = Share(spec, parts.dqn, parts.replay, parts.rng, ranks)
        self._reports: list[Report] = []
        self._first_step_at: float | None = None
        self._started_updates = parts.dqn.updates
        self._learning_from_steps: int | None = None
        self._next_report = 0.0
        self._next_count = 0.0
        self._next_checkpoint = time.monotonic() + spec.learner.checkpoint.interval_seconds
        self._published_at = parts.dqn.updates
        self._validate_credit = 0.0
        self._round_checkpoint: dict[int, int] = {}
        self._renewal: Renewal | None = None
        # A verdict that was given before the learner died, or before a run was resumed, still stands.
        self._passed = spec.stop.success is not None and self.validation.satisfied()
        self._saved_at = parts.saved_at
        self._steps_before = parts.counters.steps
        self._seconds_before = parts.counters.training_seconds
        self.initial = parameters_of(parts.dqn.online)
        """The weights this learner started with."""

    # --- the loop ------------------------------------------------------------------------------------------------

    def run(self, drained: Callable[[], bool]) -> StopReason:
        """Train.

        Args:
            drained: called often; true once the program is asked to stop.

        Raises:
            DivergedError: the loss is not finite; the last good checkpoint stays.
            BrokerError: Redis is gone.
            PeerLost: another learner of the run is gone.
        """
        if self.parts.counters.version == 0:
            # Version 1 is the untrained network: actors explore at random as long as it is the newest.
            self.publish(pinned=True)
        else:
            # Nobody here waits for the round of an earlier life.
            self.parts.inbox.cancel("validate")
            self.publish()
        while True:
            reason = self._reason_to_stop(drained)
            if reason is not None:
                self._order(OrderKind.DRAIN if reason is StopReason.DRAINED else OrderKind.STOP)
                self._report(force=True)
                self._share.release()
                return reason
            # Before anything is taken off a stream: a learner that stood still may have a successor by now.
            self.parts.inbox.check()
            self._round(drained)
            if time.monotonic() >= self._next_checkpoint:
                self.checkpoint()
            self._report()

    def _round(self, drained: Callable[[], bool]) -> None:
        """A little of everything that there is to do."""
        now = time.monotonic()
        if now >= self._next_count:
            self._next_count = now + _COUNT_SECONDS
            self._deal(self.parts.inbox.browsers())
        updates = self._updates_due()
        self._learn(updates, block_ms=0 if updates else 20)
        self._publish_if_due()

    def _learn(self, updates: int, block_ms: int) -> None:
        """Take in what has come, waiting so long for it, and make so many updates, all learners alike."""
        self._order(OrderKind.GO, updates)
        self._collect(block_ms)
        for _ in range(updates):
            self._last_update = self._share.update(self._held() / max(1, len(self._reports)))
            self._meters.updated()
        self._hear()

    def _reason_to_stop(self, drained: Callable[[], bool]) -> StopReason | None:
        if drained() or any(report.drained for report in self._reports):
            return StopReason.DRAINED
        return self._limit_reached()

    def _limit_reached(self) -> StopReason | None:
        stop, counters = self.parts.spec.stop, self.parts.counters
        if self._first_step_at is not None:
            counters.training_seconds = self._seconds_before + time.monotonic() - self._first_step_at
        if self._passed:
            return StopReason.SUCCESS
        if stop.steps is not None and counters.steps >= stop.steps:
            return StopReason.STEPS
        if stop.seconds is not None and counters.training_seconds >= stop.seconds:
            return StopReason.SECONDS
        return None

    # --- experience in -------------------------------------------------------------------------------------------

    def _collect(self, block_ms: int) -> None:
        parts = self.parts
        batches = parts.inbox.experience(block_ms)
        taken = self._share.take(batches, parts.counters.version)
        parts.counters.transitions += taken.added
        parts.counters.stale += taken.stale
        for age in taken.ages:
            self._meters.arrived(age)
        for summary in parts.inbox.results():
            self.count(summary)

    def count(self, summary: EpisodeSummary) -> None:
        """Count an episode that the ledger took in."""
        counters = self.parts.counters
        if summary.outcome == "fault" and summary.purpose in ("train", "validate"):
            counters.faults += 1
        if summary.purpose == "train":
            if self._first_step_at is None:
                self._first_step_at = time.monotonic() - summary.seconds
            counters.episodes += 1
            counters.steps += summary.steps
            self._meters.trained(summary)
            if summary.outcome != "fault":
                self.parts.schedule.curriculum.add(summary.task, summary.success)
        elif summary.purpose == "validate":
            counters.validation_steps += summary.steps
            self._meters.validated(summary)
            verdict = self.validation.add(summary.episode, summary.success, self.parts.dqn.updates)
            if verdict is not None:
                self._judge(verdict)

    def _judge(self, verdict: Verdict) -> None:
        logger.info("validation of version %d: %d of %d", verdict.version, verdict.successes, verdict.trials)
        step = self._round_checkpoint.pop(verdict.version, None)
        if step is not None:
            try:
                self.parts.checkpoints.mark(step, verdict.lower, verdict.state())
            except CheckpointError as error:
                logger.warning("%s", error)
            self.parts.checkpoints.release(step)
        if verdict.passed and self.parts.spec.stop.success is not None:
            self._passed = True
            return
        self.parts.inbox.cancel("validate")
        self.parts.inbox.unpin(verdict.version)

    # --- episodes out --------------------------------------------------------------------------------------------

    def _deal(self, browsers: int) -> None:
        """Keep enough episodes queued for so many browsers."""
        parts = self.parts
        if self.validation.wants_round(parts.dqn.updates):
            self._start_round()
        # Without its last episode no round ends.
        if self.validation.round is not None and self._renewal is not None:
            self._renewal.look(self.validation.round.episodes)
        depth = parts.inbox.queued()
        missing = max(_LEAST_DEPTH, 2 * browsers) - depth
        if missing <= 0 or self._learner_is_behind():
            return
        self._validate_credit += missing * parts.spec.evaluation.validation_share
        validate = int(self._validate_credit) if self._learning_from_steps is not None else 0
        self._validate_credit -= int(self._validate_credit)
        train = max(0, missing - validate)
        tasks = parts.schedule.deal("train", train, stretch=_STRETCH * max(1, browsers))
        if validate:
            tasks += parts.schedule.deal("validate", validate)
        parts.inbox.deal(tasks, parts.schedule.state())

    def _start_round(self) -> None:
        version = self.publish(pinned=True)
        step = self.checkpoint()
        self.parts.checkpoints.hold(step)
        self._round_checkpoint[version] = step
        tasks = self.parts.schedule.deal(
            "validate", self.parts.spec.stop.window, version=version, label="-round"
        )
        self.validation.start(version, [t.episode for t in tasks])
        self.parts.inbox.deal(tasks, self.parts.schedule.state())
        self._renewal = Renewal(self.parts.inbox, tasks)

    def _learner_is_behind(self) -> bool:
        if self._learning_from_steps is None:
            return False
        steps = self.parts.counters.steps - self._learning_from_steps
        updates = self.parts.dqn.updates - self._started_updates
        return updates + _RATIO_SLACK < self.parts.spec.learner.replay_ratio.min * steps

    # --- updates -------------------------------------------------------------------------------------------------

    def _updates_due(self) -> int:
        """Updates to make before the next look at the inbox."""
        parts = self.parts
        learner = parts.spec.learner
        if self._learning_from_steps is None:
            wanted = max(learner.replay.min_transitions, parts.spec.policy.exploration.warmup_steps)
            # Every learner has to have something to draw from.
            if self._held() < wanted or any(report.held == 0 for report in self._reports):
                return 0
            self._learning_from_steps = self._steps_before
        steps = max(parts.counters.steps, parts.counters.transitions) - self._learning_from_steps
        made = parts.dqn.updates - self._started_updates
        return min(_UPDATES_PER_ROUND, updates_allowed(made, steps, learner.replay_ratio.max))

    def _held(self) -> int:
        """Transitions in the replays of all learners."""
        return sum(report.held for report in self._reports) if self._reports else len(self.parts.replay)

    # --- other learners ------------------------------------------------------------------------------------------

    def _order(self, kind: OrderKind, updates: int = 0) -> None:
        group = self.parts.group
        if group is not None:
            held = self._held() / group.ranks
            group.order(Order(kind, updates, self.parts.counters.version, held))

    def _hear(self) -> None:
        """What the others took in meanwhile."""
        parts = self.parts
        if parts.group is None:
            return
        self._reports = parts.group.report(Report(held=len(parts.replay)))
        others = self._reports[1:]
        parts.counters.transitions += sum(report.added for report in others)
        parts.counters.stale += sum(report.stale for report in others)

    # --- parameters and checkpoints ------------------------------------------------------------------------------

    def publish(self, *, pinned: bool = False) -> int:
        """Publish the acting network as a new version; returns the version.

        Raises:
            DivergedError: it is not finite.
        """
        self.parts.dqn.check()
        counters = self.parts.counters
        counters.version += 1
        self._published_at = self.parts.dqn.updates
        self.parts.inbox.publish(counters.version, parameters_of(self.parts.dqn.acting), pinned=pinned)
        return counters.version

    def _publish_if_due(self) -> None:
        if self.parts.dqn.updates - self._published_at >= self.parts.spec.learner.publish_interval:
            self.publish()

    def checkpoint(self) -> int:
        """Write a checkpoint; returns the step it is named by, which may lie beyond the steps taken.

        Raises:
            DivergedError: the network is not finite; the last good checkpoint stays.
        """
        parts = self.parts
        parts.dqn.check()
        self._next_checkpoint = time.monotonic() + parts.spec.learner.checkpoint.interval_seconds
        saved = parts.dqn.state_dict()
        arrays: dict[str, Any] = dict(saved["arrays"])
        arrays["acting"] = parameters_of(parts.dqn.acting)
        state: dict[str, Any] = {
            "dqn": saved["state"],
            "counters": vars(parts.counters).copy(),
            "schedule": parts.schedule.state(),
            "curriculum": parts.schedule.curriculum.state(),
            "validation": self.validation.state(),
            "rng": parts.rng.bit_generator.state,
            "generation": parts.generation,
            "network": description_of(parts.dqn.online),
        }
        if parts.spec.learner.checkpoint.replay:
            replay_arrays, replay_state = parts.replay.state()
            arrays["replay"] = replay_arrays
            state["replay"] = replay_state
        step = parts.checkpoints.free_step(parts.counters.steps)
        self._saved_at = parts.checkpoints.save(step, arrays, state)
        logger.info("checkpoint %s after %d updates", self._saved_at.name, parts.dqn.updates)
        return step

    def final_weights(self) -> Weights:
        """The weights to evaluate: the version that passed, else the surest one, else the latest."""
        latest = Weights(parameters_of(self.parts.dqn.acting), "latest", self._saved_at)
        if not self._passed and self.validation.latest_is_better():
            return latest
        try:
            return Weights.of(self.parts.checkpoints.best(groups=["acting"]), "best")
        except CheckpointError as error:
            self.parts.tell(f"{error}; the latest weights are evaluated in its stead")
            return latest

    # --- reports -------------------------------------------------------------------------------------------------

    def report(self) -> None:
        """Write the numbers down once more: what came in after training counts as well."""
        self._report(force=True)

    def _report(self, *, force: bool = False) -> None:
        now = time.monotonic()
        if now < self._next_report and not force:
            return
        self._next_report = now + _REPORT_SECONDS
        self.parts.recorder.write(self.metrics())

    def metrics(self) -> dict[str, Any]:
        """The run in numbers, now."""
        parts, counters, last = self.parts, self.parts.counters, self._last_update
        stop = parts.spec.stop
        left = None if stop.seconds is None else max(0.0, stop.seconds - counters.training_seconds)
        learning = self._learning_from_steps
        steps = counters.steps - learning if learning is not None else 0
        return {
            "time": round(time.time(), 3),
            "seconds": round(counters.training_seconds, 3),
            "steps": counters.steps,
            "validation_steps": counters.validation_steps,
            "episodes": counters.episodes,
            "updates": parts.dqn.updates,
            "version": counters.version,
            **self._meters.figures(),
            "success": self.validation.curve.rate,
            "loss": None if last is None else last.loss,
            "q_mean": None if last is None else last.q_mean,
            "grad_norm": None if last is None else last.grad_norm,
            "replay_size": self._held(),
            "replay_ratio": round((parts.dqn.updates - self._started_updates) / steps, 3)
            if steps > 0
            else None,
            "stale_dropped": counters.stale,
            "lost_updates": counters.lost_updates,
            "faults": counters.faults,
            "tasks": parts.schedule.curriculum.success() if len(parts.spec.tasks) > 1 else None,
            "time_left": None if left is None else round(left, 1),
        }
