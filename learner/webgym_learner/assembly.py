"""From a manifest, Redis and what lies on disk to the parts of a learner: fresh, or where an earlier life left off."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from redis import Redis

from webgym.broker import broker_errors, client_where
from webgym.control import read_control
from webgym.errors import CheckpointError
from webgym.keys import Keys
from webgym.params import SyncParameterStore
from webgym.program import ProgramContext
from webgym.schema import observation_schema
from webgym.telemetry import Numbers
from webgym.turns import LearnerTurns
from webgym_learner.blueprint import dqn_of, network_of, prepare_process, replay_of
from webgym_learner.checkpoint import Checkpoint, CheckpointStore, load_checkpoint
from webgym_learner.counters import Counters
from webgym_learner.inbox import Inbox
from webgym_learner.notices import Notices
from webgym_learner.parts import TrainerParts
from webgym_learner.recorder import TASK_FIGURES, EpisodeLedger, MetricsRecorder
from webgym_learner.schedule import EpisodeSchedule
from webgym_learner.validation import Validation, Verdict
from webgym_learner.weights import Weights
from webgym_policy.network import parameters_of

__all__ = ["Assembly"]

logger = logging.getLogger(__name__)


class Assembly:
    """Opens the files of a learner and builds its parts.

    Args:
        context: environment of the program.
        client: the run's Redis, bytes undecoded.
    """

    def __init__(self, context: ProgramContext, client: Redis) -> None:
        self.spec = context.manifest.spec
        self.keys = Keys(context.run_uid)
        self.schema = observation_schema(self.spec.observation)
        keep = self.spec.learner.checkpoint.keep
        self.checkpoints = CheckpointStore(context.out / "checkpoints", self.schema.hash, keep)
        self.ledger = EpisodeLedger(context.out / "episodes.jsonl")
        labels = {"run": context.run_uid, "program": context.id}
        numbers = Numbers(labels, each=dict.fromkeys(TASK_FIGURES, "task"))
        self.recorder = MetricsRecorder(context.out, client, self.keys.progress, numbers)
        self.notices = Notices(client, self.keys.notices)
        self._client = client
        self._where = client_where(client)

    def close(self) -> None:
        """Close the files. Harmless twice."""
        self.recorder.close()
        self.ledger.close()

    # --- what there is already ------------------------------------------------------------------------------------

    def saved(self, resume: bool) -> Checkpoint | None:
        """The checkpoint to go on from: asked for, or left by an earlier life of this learner. Damaged ones that are
        passed over are told of.

        Raises:
            CheckpointError: asked to resume, and there is nothing good to resume from.
        """
        if not resume and not self.checkpoints.steps():
            return None
        found = self.checkpoints.latest()
        self._tell_skipped(found)
        with broker_errors(self._where):
            self._client.hset(self.keys.control, "checkpoint", json.dumps(str(found.path)))
        return found

    def _tell_skipped(self, found: Checkpoint) -> None:
        for line in found.skipped:
            self.notices.tell(f"{line}; {found.path.name} is used in its stead")

    def acting_weights(self, which: str) -> Weights:
        """The weights that acted when a checkpoint was written. Damaged ones that are passed over are told of.

        Args:
            which: ``latest``, ``best`` (the latest where none was judged), or the path of a checkpoint folder.

        Raises:
            CheckpointError: there is no such checkpoint, or it is damaged.
        """
        if which not in ("latest", "best"):
            return Weights.of(load_checkpoint(Path(which), self.schema.hash, groups=["acting"]), which)
        trouble = ""
        if which == "best" and self.checkpoints.note() is not None:
            try:
                return Weights.of(self.checkpoints.best(groups=["acting"]), which)
            except CheckpointError as error:
                trouble = str(error)
        found = self.checkpoints.latest(groups=["acting"])
        if trouble:
            self.notices.tell(f"best: {trouble}; {found.path.name} is used in its stead")
        self._tell_skipped(found)
        return Weights.of(found, "latest")

    def initial_weights(self) -> dict[str, NDArray[np.float32]]:
        """The weights that training of this run begins with: the seed gives them."""
        return parameters_of(network_of(self.spec, self.schema, self.spec.seed))

    def last_progress(self, name: str) -> float:
        """A number as an earlier life of this learner last told it; 0 where it told none."""
        with broker_errors(self._where):
            value = self._client.hget(self.keys.progress, name)
        try:
            return float(json.loads(value)) if value else 0.0
        except (ValueError, TypeError):
            return 0.0

    # --- parts ----------------------------------------------------------------------------------------------------

    def parts(
        self,
        saved: Checkpoint | None,
        seed: int | None = None,
        *,
        judging: bool = False,
        local_rank: int | None = None,
    ) -> TrainerParts:
        """Everything that the training loop works with.

        Args:
            saved: where to go on from; None begins anew.
            seed: run seed that episodes and weights derive from; None for the manifest's.
            judging: nothing will be trained, so neither a GPU nor what was counted so far matters.
            local_rank: among the learners of this machine, where there are several.

        Raises:
            CheckpointError: the checkpoint is of another make.
            UsageError: the replay would hold too little to begin with.
            RunError: the device is not to be had here.
        """
        spec = self.spec
        seed = spec.seed if seed is None else seed
        prepare_process(spec, seed)
        dqn = dqn_of(spec, self.schema, seed, judging=judging, local_rank=local_rank)
        replay = replay_of(spec, self.schema)
        generation = self._next_generation(saved)
        parts = TrainerParts(
            spec=spec,
            generation=generation,
            dqn=dqn,
            replay=replay,
            schedule=EpisodeSchedule(spec.tasks, seed, spec.learner.curriculum == "Progress"),
            inbox=Inbox(self._client, self.keys, self.schema, self.ledger, generation),
            recorder=self.recorder,
            checkpoints=self.checkpoints,
            turns=None if spec.mode == "Asynchronous" else LearnerTurns(self._client, self.keys),
            validation=Validation(spec.stop.success, spec.stop.window),
            tell=self.notices.tell,
            rng=np.random.default_rng([seed, generation]),
        )
        if saved is not None:
            self._restore(parts, saved)
        if not judging:
            self._catch_up(parts)
        parts.schedule.skip_to(self.ledger.next_index)
        parts.schedule.skip_to(self._dealt())
        return parts

    def _next_generation(self, saved: Checkpoint | None) -> int:
        """A number that no learner of this run has had, also where the server has forgotten the run."""
        earlier = [SyncParameterStore(self._client, self.keys).generation()]
        if saved is not None and isinstance(saved.state.get("generation"), int):
            earlier.append(saved.state["generation"])
        with broker_errors(self._where):
            generation = int(self._client.hincrby(self.keys.control, "generation", 1))
            if generation <= max(earlier):
                more = max(earlier) + 1 - generation
                generation = int(self._client.hincrby(self.keys.control, "generation", more))
        return generation

    def _restore(self, parts: TrainerParts, saved: Checkpoint) -> None:
        try:
            state: dict[str, Any] = saved.state
            parts.dqn.load_state_dict({"arrays": saved.arrays, "state": state["dqn"]})
            parts.counters = Counters(**state["counters"])
            parts.saved_at = saved.path
            if parts.validation is not None:
                parts.validation.best = self._best_verdict()
                if "validation" in state:
                    parts.validation.load_state(state["validation"])
            parts.rng.bit_generator.state = state["rng"]
            parts.schedule.load_state(state["schedule"])
            if "curriculum" in state:
                parts.schedule.curriculum.load_state(state["curriculum"])
            if "replay" in state and "replay" in saved.arrays:
                parts.replay.load_state(saved.arrays["replay"], state["replay"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{saved.path} cannot be resumed from: {error}") from None

    def _catch_up(self, parts: TrainerParts) -> None:
        """Count what earlier lives of this learner did after the checkpoint.

        Episodes are in the ledger: they counted, and go on counting. Updates since then are lost, and counted as such.
        Time that was trained is gone, too: without it a learner that dies before each checkpoint would never be done.
        """
        counters, totals, earlier = parts.counters, self.ledger.totals, self.recorder.earlier
        counters.episodes = max(counters.episodes, totals.episodes)
        counters.steps = max(counters.steps, totals.steps)
        counters.validation_steps = max(counters.validation_steps, totals.validation_steps)
        counters.faults = max(counters.faults, totals.faults)
        counters.training_seconds = max(counters.training_seconds, _number(earlier, "seconds"))
        counters.lost_updates = max(counters.lost_updates, int(_number(earlier, "lost_updates")))
        lost = int(_number(earlier, "updates")) - parts.dqn.updates
        if lost > 0:
            counters.lost_updates += lost
            where = "the start" if parts.saved_at is None else parts.saved_at.name
            logger.warning("going on from %s: %d updates since then are lost", where, lost)
        if parts.saved_at is not None:
            # Versions never repeat, so that no actor takes old parameters for new ones.
            counters.version = max(
                counters.version, int(self.last_progress("version")), int(_number(earlier, "version"))
            )

    def _best_verdict(self) -> Verdict | None:
        """What the best checkpoint was judged by, as long as there are its weights."""
        note = self.checkpoints.note()
        if note is None:
            return None
        try:
            self.checkpoints.best(groups=["acting"])
        except CheckpointError as error:
            self.notices.tell(f"best: {error}; the run looks for another")
            self.checkpoints.unmark()
            return None
        return Verdict.from_state(note.verdict)

    def _dealt(self) -> dict[str, int]:
        """Cursors of an earlier life of this learner: what it dealt is queued, running or done."""
        (found,) = read_control(self._client, self.keys, "cursors")
        return {str(k): int(v) for k, v in (found or {}).items()}


def _number(line: Mapping[str, Any], name: str) -> float:
    """A number of a metrics line; 0 where it has none."""
    value = line.get(name)
    return float(value) if isinstance(value, int | float) else 0.0
