"""The learner program: resume or begin, train, evaluate, write down the verdict."""

from __future__ import annotations

import argparse
import json
import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from redis import Redis

    from webgym.program import Drain, ProgramContext
    from webgym.spec import RunSpec
    from webgym_learner.checkpoint import Checkpoint
    from webgym_learner.trainer import Trainer, TrainerParts

__all__ = ["LearnerCommand", "LearnerProgram"]

logger = logging.getLogger(__name__)

_BASELINE_EPISODES = 50
"""Episodes of the untrained network: enough to tell a task that falls to chance."""
_HEARTBEAT_SECONDS = 1.0


class LearnerProgram:
    """One learner of a run, from start to verdict.

    Args:
        context: environment of the program.
        drain: the wish to end.
    """

    def __init__(self, context: ProgramContext, drain: Drain) -> None:
        from webgym.broker import connect
        from webgym.connection import broker_config
        from webgym.keys import Keys
        from webgym.schema import observation_schema
        from webgym.telemetry import Numbers
        from webgym_learner.checkpoint import CheckpointStore
        from webgym_learner.recorder import EpisodeLedger, MetricsRecorder

        self._context = context
        self._drain = drain
        self._spec: RunSpec = context.manifest.spec
        self._keys = Keys(context.run_uid)
        self._client: Redis = connect(broker_config(self._spec.redis, context.redis_url))
        self._schema = observation_schema(self._spec.observation)
        self._checkpoints = CheckpointStore(
            context.out / "checkpoints", self._schema.hash, self._spec.learner.checkpoint.keep
        )
        self._ledger = EpisodeLedger(context.out / "episodes.jsonl")
        numbers = Numbers({"run": context.run_uid, "program": context.id})
        self._recorder = MetricsRecorder(context.out, self._client, self._keys.progress, numbers)
        self._alive_at = time.monotonic()

    # --- the whole ------------------------------------------------------------------------------------------------

    def train(self, *, resume: bool) -> int:
        """Train, then evaluate; returns the exit code.

        Raises:
            DivergedError: the loss is not finite; the last good checkpoint stays.
            CheckpointError: asked to resume, and there is nothing good to resume from.
            BrokerError: Redis is gone.
        """
        from webgym.errors import BrokerError
        from webgym_learner.trainer import StopReason, Trainer

        saved = self._saved(resume)
        parts = self._parts(saved)
        phase, earlier_reason = self._phase_now()
        if saved is not None and phase == "evaluate":
            # An earlier life of this learner had finished training; what is missing is the verdict.
            self._verdict_after(parts, earlier_reason)
            return 0
        self._phase("train")
        trainer = Trainer(parts)
        baseline = self._untrained(trainer, saved)
        try:
            reason = trainer.run(self._drained)
        except BrokerError:
            # Without the server nobody can have taken over from a learner that is asked to end, or that was alone
            # with it: the weights are good. Elsewhere a disconnected learner must not replace its successor's.
            if self._drain.requested or self._context.redis_url.startswith("unix:"):
                trainer.checkpoint()
            self._recorder.close()
            raise
        except BaseException:
            # A diverged learner must not replace the last good checkpoint.
            self._recorder.close()
            raise
        trainer.checkpoint()
        logger.info("training ended: %s after %d steps", reason.value, parts.counters.steps)
        if reason is StopReason.DRAINED:
            self._close()
            return 0
        weights, origin = trainer.final_weights()
        self._evaluate(parts, weights, baseline, origin, self._context.out / "evaluation.json", reason.value)
        self._phase("done", reason.value)
        self._close()
        return 0

    def _verdict_after(self, parts: TrainerParts, reason: str) -> None:
        import numpy as np

        from webgym_learner.trainer import StopReason

        found = self._checkpoint("best" if reason == StopReason.SUCCESS else "latest")
        weights = {name: np.asarray(a) for name, a in found.arrays["acting"].items()}
        baseline = self._initial_weights() if self._spec.evaluation.baseline else None
        self._evaluate(
            parts, weights, baseline, str(found.path), self._context.out / "evaluation.json", reason
        )
        self._phase("done", reason)
        self._close()

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
        import numpy as np

        found = self._checkpoint(checkpoint)
        parts = self._parts(None, seed=seed)
        weights = {name: np.asarray(a) for name, a in found.arrays["acting"].items()}
        self._evaluate(parts, weights, None, str(found.path), target, "evaluate", episodes)
        self._phase("done", "evaluated")
        self._close()
        return 0

    # --- parts ----------------------------------------------------------------------------------------------------

    def _saved(self, resume: bool) -> Checkpoint | None:
        """The checkpoint to go on from: asked for, or left by an earlier life of this learner."""
        if not resume and not self._checkpoints.steps():
            return None
        found = self._checkpoints.latest()
        for line in found.skipped:
            logger.warning("%s", line)
        return found

    def _checkpoint(self, which: str) -> Checkpoint:
        from pathlib import Path

        from webgym.errors import CheckpointError
        from webgym_learner.checkpoint import load_checkpoint

        if which == "latest":
            return self._checkpoints.latest(groups=["acting"])
        if which == "best":
            try:
                return self._checkpoints.best(groups=["acting"])
            except CheckpointError:
                return self._checkpoints.latest(groups=["acting"])
        return load_checkpoint(Path(which), self._schema.hash, groups=["acting"])

    def _parts(self, saved: Checkpoint | None, seed: int | None = None) -> TrainerParts:
        import numpy as np
        import torch

        from webgym_learner.dqn import DQN, DQNConfig
        from webgym_learner.heap import keep_freed_memory
        from webgym_learner.inbox import Inbox
        from webgym_learner.replay import PrioritizedReplay
        from webgym_learner.schedule import EpisodeSchedule
        from webgym_learner.trainer import TrainerParts
        from webgym_policy.network import PolicyNetwork

        spec, learner = self._spec, self._spec.learner
        seed = spec.seed if seed is None else seed
        torch.set_num_threads(learner.threads or 1)
        keep_freed_memory()
        torch.manual_seed(seed)
        network = PolicyNetwork(self._schema, spec.policy.hidden_size, learner.dueling, seed=seed)
        config = DQNConfig(
            learning_rate=learner.learning_rate,
            target_update_interval=learner.target_update_interval,
            double=learner.double,
            gradient_clip=learner.gradient_clip,
            average_decay=learner.average_decay,
            device=learner.device,
            precision=_PRECISIONS[learner.precision],
        )
        generation = int(self._client.hincrby(self._keys.control, "generation", 1))
        parts = TrainerParts(
            spec=spec,
            generation=generation,
            dqn=DQN(network, config),
            replay=PrioritizedReplay(self._schema, int(learner.replay.capacity_bytes), learner.replay.alpha),
            schedule=EpisodeSchedule(spec.tasks, seed),
            inbox=Inbox(self._client, self._keys, self._schema, self._ledger, generation),
            recorder=self._recorder,
            checkpoints=self._checkpoints,
            rng=np.random.default_rng([seed, generation]),
        )
        if saved is not None:
            self._restore(parts, saved)
        parts.schedule.skip_to(self._ledger.next_index)
        parts.schedule.skip_to(self._dealt())
        return parts

    def _restore(self, parts: TrainerParts, saved: Checkpoint) -> None:
        from webgym.errors import CheckpointError
        from webgym_learner.trainer import Counters

        try:
            state: dict[str, Any] = saved.state
            parts.dqn.load_state_dict({"arrays": saved.arrays, "state": state["dqn"]})
            parts.counters = Counters(**state["counters"])
            parts.rng.bit_generator.state = state["rng"]
            parts.schedule.load_state(state["schedule"])
            if "replay" in state and "replay" in saved.arrays:
                parts.replay.load_state(saved.arrays["replay"], state["replay"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{saved.path} cannot be resumed from: {error}") from None
        lost = self._last_progress("updates") - parts.dqn.updates
        if lost > 0:
            parts.counters.lost_updates += int(lost)
            logger.warning("resumed from %s: %d updates since then are lost", saved.path.name, lost)
        # Versions never repeat, so that no actor takes old parameters for new ones.
        parts.counters.version = max(parts.counters.version, int(self._last_progress("version")))

    def _last_progress(self, name: str) -> float:
        value = self._client.hget(self._keys.progress, name)
        try:
            return float(json.loads(value)) if value else 0.0
        except (ValueError, TypeError):
            return 0.0

    def _dealt(self) -> dict[str, int]:
        """Cursors of an earlier life of this learner: what it dealt is queued, running or done."""
        raw = self._client.hget(self._keys.control, "cursors")
        found = json.loads(raw) if raw else {}
        return {str(k): int(v) for k, v in found.items()}

    def _untrained(self, trainer: Trainer, saved: Checkpoint | None) -> dict[str, NDArray[np.float32]] | None:
        """The weights that training began with, for the baseline."""
        if not self._spec.evaluation.baseline:
            return None
        return trainer.initial if saved is None else self._initial_weights()

    def _initial_weights(self) -> dict[str, NDArray[np.float32]]:
        from webgym_policy.network import PolicyNetwork, parameters_of

        spec = self._spec
        network = PolicyNetwork(self._schema, spec.policy.hidden_size, spec.learner.dueling, seed=spec.seed)
        return parameters_of(network)

    # --- evaluation ----------------------------------------------------------------------------------------------

    def _evaluate(
        self,
        parts: TrainerParts,
        weights: Mapping[str, NDArray[np.float32]],
        baseline: Mapping[str, NDArray[np.float32]] | None,
        origin: str,
        target: Path,
        reason: str,
        episodes: int | None = None,
    ) -> None:
        from webgym.rundir import write_json
        from webgym_learner.evaluation import Evaluation, by_task, save_film

        settings = self._spec.evaluation
        count = settings.episodes if episodes is None else episodes
        for purpose in ("train", "validate"):
            parts.inbox.cancel(purpose)
        if count == 0:
            return
        self._phase("evaluate", reason)
        counters = parts.counters
        counters.version = max(counters.version, int(self._last_progress("version"))) + 1
        version = counters.version
        parts.inbox.publish(version, dict(weights), pinned=True)
        # Every evaluation of the run starts at the first evaluation seed: two checkpoints are judged by the same pages.
        parts.schedule.cursors["evaluate"] = 0
        label = f"-v{version}g{parts.generation}"
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
        runner = Evaluation(parts.inbox, self._progress)
        tallies, complete = runner.run(groups, settings.seconds, self._drained)
        verdict = {
            **tallies["trained"].report(),
            "complete": complete,
            "wanted": count,
            "seconds": round(time.monotonic() - started, 2),
            "version": version,
            "weights": origin,
            "seed": parts.schedule.run_seed,
            "steps": counters.steps,
            "updates": parts.dqn.updates,
            "tasks": by_task(tallies["trained"]),
            "baseline": tallies["untrained"].report() if "untrained" in tallies else None,
        }
        save_film(parts.inbox, [t.episode for t in groups["trained"][:1]], self._context.out / "film")
        write_json(target, verdict)
        logger.info("evaluation: %s of %s", verdict["successes"], verdict["episodes"])

    def _progress(self, numbers: dict[str, Any]) -> None:
        self._recorder.progress(numbers)

    # --- life ----------------------------------------------------------------------------------------------------

    def _phase(self, phase: str, reason: str = "") -> None:
        self._client.hset(
            self._keys.control, mapping={"phase": json.dumps(phase), "reason": json.dumps(reason)}
        )

    def _phase_now(self) -> tuple[str, str]:
        """Phase of the run and its reason, as an earlier life of this learner left them."""
        phase, reason = self._client.hmget(self._keys.control, ["phase", "reason"])
        return str(json.loads(phase)) if phase else "", str(json.loads(reason)) if reason else ""

    def _drained(self) -> bool:
        self._alive_at = time.monotonic()
        return self._drain.requested

    def beat(self) -> None:
        """Tell the world that we live; called by a thread with the client's own locking."""
        figures = {"role": "learner", "pid": os.getpid(), "time": time.time()}
        self._client.hset(self._keys.members, self._context.id, json.dumps(figures))

    def unwell(self) -> str | None:
        """Why ``/healthz`` should fail, or None."""
        silent = time.monotonic() - self._alive_at
        return f"the training loop has not moved for {silent:.0f} s" if silent > 60 else None

    def _close(self) -> None:
        self._recorder.close()
        self._ledger.close()


_PRECISIONS = {"auto": "auto", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


class LearnerCommand:
    """``webgym learner``: what a learner pod runs, and what ``webgym run`` starts."""

    name = "learner"
    help = "run a learner (started by webgym run, or in a pod)"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """The rest comes by environment: WEBGYM_SPEC, WEBGYM_RUN_UID, WEBGYM_REDIS_URL, WEBGYM_OUT, WEBGYM_ID."""
        parser.add_argument("--resume", action="store_true", help="there must be a checkpoint to go on from")
        parser.add_argument(
            "--evaluate", action="store_true", help="evaluate a checkpoint instead of training"
        )
        parser.add_argument(
            "--checkpoint", default="best", help="latest, best, or a folder (with --evaluate)"
        )
        parser.add_argument("--episodes", type=int, help="episodes to evaluate (with --evaluate)")
        parser.add_argument("--seed", type=int, help="seed of the evaluation's pages (with --evaluate)")
        parser.add_argument("--target", help="file for the verdict (with --evaluate)")

    def run(self, args: argparse.Namespace) -> int:
        """Run until the verdict; SIGTERM writes a checkpoint first."""
        from pathlib import Path

        from webgym.program import run_program
        from webgym.telemetry import TelemetryServer

        def body(context: ProgramContext, drain: Drain) -> int:
            program = LearnerProgram(context, drain)
            stop = threading.Event()
            heart = threading.Thread(target=_beat, args=(program, stop), name="heartbeat", daemon=True)
            with TelemetryServer(program.unwell, host=context.metrics_host, port=context.metrics_port):
                heart.start()
                try:
                    if args.evaluate:
                        target = Path(args.target) if args.target else context.out / "evaluation.json"
                        return program.evaluate(args.checkpoint, args.episodes, args.seed, target)
                    return program.train(resume=args.resume)
                finally:
                    stop.set()

        return run_program(body)


def _beat(program: LearnerProgram, stop: threading.Event) -> None:
    from redis.exceptions import RedisError

    while not stop.wait(_HEARTBEAT_SECONDS):
        try:
            program.beat()
        except (RedisError, OSError) as error:
            logger.debug("heartbeat not sent: %s", error)
