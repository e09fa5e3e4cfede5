"""One learner of a run, from start to verdict: resume or begin, train, evaluate, write the verdict down."""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from redis import Redis, RedisError

from webgym.broker import broker_errors, client_where, connect
from webgym.connection import broker_config
from webgym.control import read_control
from webgym.errors import BrokerError
from webgym.program import Drain, ProgramContext
from webgym.protocol import EpisodeSummary
from webgym.rundir import write_json
from webgym_learner.agreement import agree
from webgym_learner.assembly import Assembly
from webgym_learner.checkpoint import Checkpoint
from webgym_learner.company import lead
from webgym_learner.evaluation import Evaluation, by_task, save_film
from webgym_learner.group import PeerLost
from webgym_learner.inbox import StateLost
from webgym_learner.parts import StopReason, TrainerParts
from webgym_learner.place import Place
from webgym_learner.pulse import Pulse
from webgym_learner.trainer import Trainer
from webgym_learner.turn_trainer import TurnTrainer
from webgym_learner.weights import Weights

__all__ = ["Learner"]

logger = logging.getLogger(__name__)

_BASELINE_EPISODES = 50
"""Episodes of the untrained network: enough to tell a task that falls to chance."""


class Learner:
    """Trains and evaluates, once; leads the others where a run has several learners.

    Args:
        context: environment of the program.
        drain: the wish to end.
        place: among the learners of the run, where whoever starts them says so; rank 0.
    """

    def __init__(self, context: ProgramContext, drain: Drain, place: Place | None = None) -> None:
        self._context = context
        self._drain = drain
        self._place = place
        self._spec = context.manifest.spec
        self._client: Redis = connect(broker_config(self._spec.redis, context.redis_url))
        self._assembly = Assembly(context, self._client)
        self._keys = self._assembly.keys
        self.pulse = Pulse(self._client, self._keys.members, context.id)

    # --- the whole ------------------------------------------------------------------------------------------------

    def train(self, *, resume: bool) -> int:
        """Train, then evaluate; returns the exit code.

        Raises:
            DivergedError: the loss is not finite; the last good checkpoint stays.
            CheckpointError: asked to resume, and there is nothing good to resume from.
            BrokerError: Redis is gone.
            PeerLost: another learner of the run is gone.
        """
        saved = self._assembly.saved(resume)
        local_rank = None if self._place is None else self._place.local_rank
        if local_rank is None and self._spec.learner.replicas > 1:
            local_rank = 0
        parts = self._assembly.parts(saved, local_rank=local_rank)
        phase, earlier_reason = self._phase_now()
        if saved is not None and phase == "evaluate":
            # An earlier life of this learner had finished training; what is missing is the verdict.
            trainer = Trainer(parts)
            self._verdict(trainer, self._untrained(trainer, saved), earlier_reason)
            return 0
        self._phase("train")
        try:
            with lead(self._context, self._place, parts.dqn.device, self._drained) as group:
                if group is not None:
                    agree(group, self._spec)
                    parts.dqn.join(group)
                    parts.inbox.divide(group.rank, group.ranks)
                    parts.group = group
                trainer = Trainer(parts) if parts.turns is None else TurnTrainer(parts, parts.turns)
                self._announce(trainer, saved)
                reason = self._train(trainer)
        except PeerLost:
            # Learners that are asked to end together need not wait for each other.
            if not self._drain.requested:
                raise
            self._assembly.close()
            return 0
        # What the others had not taken in yet.
        parts.inbox.divide(0, 1)
        trainer.checkpoint()
        logger.info("training ended: %s after %d steps", reason.value, parts.counters.steps)
        if reason is StopReason.DRAINED:
            self._assembly.close()
            return 0
        self._verdict(trainer, self._untrained(trainer, saved), reason.value)
        return 0

    @staticmethod
    def _announce(trainer: Trainer, saved: Checkpoint | None) -> None:
        dqn, names = trainer.parts.dqn, [task.name for task in trainer.parts.spec.tasks]
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        size = sum(array.size for array in trainer.initial.values())
        whence = "from new weights" if saved is None else f"from {saved.path.name}, update {dqn.updates}"
        logger.info("training on %s: %d parameters on %s, %s", shown, size, dqn.device, whence)

    def _train(self, trainer: Trainer) -> StopReason:
        try:
            return trainer.run(self._drained)
        except PeerLost:
            # The weights are those of the last update that all made.
            if self._is_newest(trainer.parts.generation):
                trainer.checkpoint()
            self._assembly.recorder.close()
            raise
        except BrokerError as error:
            # Without the server nobody can have taken over from a learner that is asked to end, or that was alone
            # with it, nor from one that the server has forgotten: the weights are good. Elsewhere a disconnected
            # learner must not replace its successor's.
            alone = self._drain.requested or self._context.redis_url.startswith("unix:")
            if alone or isinstance(error, StateLost):
                trainer.checkpoint()
            self._assembly.recorder.close()
            raise
        except BaseException:
            # A diverged learner must not replace the last good checkpoint.
            self._assembly.recorder.close()
            raise

    def _is_newest(self, generation: int) -> bool:
        """Whether no other learner has taken over; false where nobody can tell."""
        try:
            return self._client.hget(self._keys.control, "generation") == str(generation).encode()
        except (RedisError, OSError):
            return False

    def evaluate(self, checkpoint: str, episodes: int | None, seed: int | None, target: Path) -> int:
        """Evaluate a checkpoint; returns the exit code.

        Args:
            checkpoint: ``latest``, ``best``, or the path of a checkpoint folder.
            episodes: how many; None for the manifest's number.
            seed: run seed that the episodes' seeds derive from; None for the manifest's.
            target: file for the verdict.

        Raises:
            CheckpointError: there is no such checkpoint, or it is damaged.
            BrokerError: Redis is gone.
        """
        weights = self._assembly.acting_weights(checkpoint)
        # Nothing is trained: a run of a machine with a GPU can be judged on one without.
        parts = self._assembly.parts(None, seed=seed, judging=True)
        parts.counters.steps, parts.dqn.updates = weights.steps, weights.updates
        self._evaluate(parts, weights, None, target, "evaluate", episodes)
        self._phase("done", "evaluated")
        self._assembly.close()
        return 0

    def _verdict(
        self, trainer: Trainer, baseline: Mapping[str, NDArray[np.float32]] | None, reason: str
    ) -> None:
        target = self._context.out / "evaluation.json"
        self._evaluate(trainer.parts, trainer.final_weights(), baseline, target, reason, others=trainer.count)
        # Episodes of the training that were under way when it ended are in the ledger, so they count.
        trainer.report()
        self._phase("done", reason)
        self._assembly.close()

    def _untrained(self, trainer: Trainer, saved: Checkpoint | None) -> dict[str, NDArray[np.float32]] | None:
        """The weights that training began with, for the baseline."""
        if not self._spec.evaluation.baseline:
            return None
        return trainer.initial if saved is None else self._assembly.initial_weights()

    # --- evaluation ----------------------------------------------------------------------------------------------

    def _evaluate(
        self,
        parts: TrainerParts,
        weights: Weights,
        baseline: Mapping[str, NDArray[np.float32]] | None,
        target: Path,
        reason: str,
        episodes: int | None = None,
        others: Callable[[EpisodeSummary], None] | None = None,
    ) -> None:
        settings = self._spec.evaluation
        count = settings.episodes if episodes is None else episodes
        # Also what a killed predecessor had dealt to judge: nobody waits for it.
        for purpose in ("train", "validate", "evaluate"):
            parts.inbox.cancel(purpose)
        if count == 0:
            return
        self._phase("evaluate", reason)
        if parts.turns is not None:
            # Nothing is learned any more, so nobody has to wait.
            parts.turns.open()
        counters = parts.counters
        counters.version = max(counters.version, int(self._assembly.last_progress("version"))) + 1
        version = counters.version
        parts.inbox.publish(version, dict(weights.arrays), pinned=True)
        # Every evaluation of the run starts at the first evaluation seed: two checkpoints are judged by the same pages.
        parts.schedule.cursors["evaluate"] = 0
        # Its episodes are new ones each time, or those of an earlier evaluation would be taken for them in the ledger.
        label = f"-v{version}g{parts.generation}-{secrets.token_hex(4)}"
        groups = {
            "trained": parts.schedule.deal(
                "evaluate", count, version=version, record_first=settings.film, label=label
            )
        }
        if baseline is not None:
            counters.version += 1
            parts.inbox.publish(counters.version, dict(baseline), pinned=True)
            parts.schedule.cursors["evaluate"] = 0
            groups["untrained"] = parts.schedule.deal(
                "evaluate",
                min(count, _BASELINE_EPISODES),
                version=counters.version,
                label=f"{label}-untrained",
            )
        started = time.monotonic()
        runner = Evaluation(parts.inbox, self._progress, others)
        tallies, complete = runner.run(groups, settings.seconds, self._drained)
        verdict = {
            **tallies["trained"].report(),
            "complete": complete,
            "wanted": count,
            "seconds": round(time.monotonic() - started, 2),
            "version": version,
            "weights": weights.origin,
            "checkpoint": None if weights.checkpoint is None else str(weights.checkpoint),
            "seed": parts.schedule.run_seed,
            "steps": counters.steps,
            "updates": parts.dqn.updates,
            "tasks": by_task(tallies["trained"]),
            "baseline": tallies["untrained"].report() if "untrained" in tallies else None,
        }
        save_film(parts.inbox, [t.episode for t in groups["trained"] if t.record], self._context.out / "film")
        write_json(target, verdict)
        logger.info("evaluation: %s of %s", verdict["successes"], verdict["episodes"])

    def _progress(self, numbers: dict[str, Any]) -> None:
        self._assembly.recorder.progress(numbers)

    # --- life ----------------------------------------------------------------------------------------------------

    def _phase(self, phase: str, reason: str = "") -> None:
        said = {"phase": json.dumps(phase), "reason": json.dumps(reason)}
        with broker_errors(client_where(self._client)):
            self._client.hset(self._keys.control, mapping=said)  # type: ignore[arg-type]

    def _phase_now(self) -> tuple[str, str]:
        """Phase of the run and its reason, as an earlier life of this learner left them."""
        phase, reason = read_control(self._client, self._keys, "phase", "reason")
        return str(phase or ""), str(reason or "")

    def _drained(self) -> bool:
        self.pulse.moved()
        return self._drain.requested
