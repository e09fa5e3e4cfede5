"""``webgym learner``: the program around a learner, with its heartbeat, its health and its arguments.

Imports light, because ``webgym --help`` loads it.
"""

from __future__ import annotations

import argparse
import logging
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from webgym.program import Drain, ProgramContext
    from webgym_learner.pulse import Pulse

__all__ = ["LearnerCommand"]

logger = logging.getLogger(__name__)

_HEARTBEAT_SECONDS = 1.0


class LearnerCommand:
    """What a learner pod runs, and what ``webgym run`` starts."""

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
            from webgym_learner.follower import Follower
            from webgym_learner.learner import Learner
            from webgym_learner.place import Place

            replicas = 1 if args.evaluate else context.manifest.spec.learner.replicas
            place = Place.from_env(os.environ, replicas)
            learner: Learner | Follower
            if place is not None and place.rank > 0:
                learner = Follower(context, drain, place)
            else:
                learner = Learner(context, drain, place)
            stop = threading.Event()
            heart = threading.Thread(target=_beat, args=(learner.pulse, stop), name="heartbeat", daemon=True)
            with TelemetryServer(learner.pulse.unwell, host=context.metrics_host, port=context.metrics_port):
                heart.start()
                try:
                    if isinstance(learner, Follower):
                        return learner.run()
                    if args.evaluate:
                        target = Path(args.target) if args.target else context.out / "evaluation.json"
                        return learner.evaluate(args.checkpoint, args.episodes, args.seed, target)
                    return learner.train(resume=args.resume)
                finally:
                    stop.set()

        return run_program(body)


def _beat(pulse: Pulse, stop: threading.Event) -> None:
    from webgym.errors import BrokerError

    while not stop.wait(_HEARTBEAT_SECONDS):
        try:
            pulse.beat()
        except BrokerError as error:
            logger.debug("heartbeat not sent: %s", error)
