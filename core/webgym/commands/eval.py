"""``webgym eval``: judge a checkpoint of a run again, on as many episodes and whatever seeds one likes."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from webgym.errors import CheckpointError, ExitCode, RunError, UsageError

if TYPE_CHECKING:
    from webgym.run.link import RedisLink
    from webgym.run.live import View
    from webgym.rundir import RunDirectory
    from webgym.spec import RunManifest

__all__ = ["EvalCommand"]


class EvalCommand:
    """Evaluate a checkpoint."""

    name = "eval"
    help = "evaluate a checkpoint of a run again, greedily and on seeds that training never used"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.add_argument("directory", type=Path, metavar="RUN_DIR", help="folder of a run")
        parser.add_argument(
            "--checkpoint",
            default="best",
            metavar="WHICH",
            help="best (default), latest, or the folder of one",
        )
        parser.add_argument(
            "--episodes", type=int, metavar="N", help="how many (default: evaluation.episodes)"
        )
        parser.add_argument("--seed", type=int, metavar="S", help="evaluate on other seeds than the run did")
        parser.add_argument(
            "--json", action="store_true", help="end with one JSON object, and nothing else, on stdout"
        )
        parser.add_argument("--quiet", action="store_true", help="show no progress")

    def run(self, args: argparse.Namespace) -> int:
        """Evaluate; the exit code says how it ended."""
        from webgym.manifest import load_manifest
        from webgym.run.checks import check_run
        from webgym.run.link import open_link
        from webgym.run.live import choose_view
        from webgym.run.session import check_local
        from webgym.rundir import RunDirectory
        from webgym.tasks import installed_task_check, look_for_tasks_in

        started = time.monotonic()
        if args.episodes is not None and not 1 <= args.episodes <= 1_000_000:
            raise UsageError(f"--episodes is {args.episodes}: it must be from 1 to 1000000")
        if args.seed is not None and not 0 <= args.seed < 2**31:
            raise UsageError(f"--seed is {args.seed}: it must be from 0 to 2147483647")
        directory = RunDirectory.open(args.directory, "eval")
        look_for_tasks_in(directory.task_path)
        manifest = load_manifest(directory.manifest, task_check=installed_task_check())
        check_local(manifest.spec)
        if args.checkpoint not in ("latest", "best"):
            args.checkpoint = os.path.abspath(args.checkpoint)
        _check_checkpoint(directory, args.checkpoint)
        # Nothing is trained: a run of a machine with a GPU can be judged on one without.
        learner = manifest.spec.learner.model_copy(update={"device": "cpu"})
        spec = manifest.spec.model_copy(update={"learner": learner})
        check_run(manifest.model_copy(update={"spec": spec}))
        # Its own identity: the keys of the run itself, should it be alive elsewhere, stay untouched.
        uid = uuid.uuid4().hex
        with RunDirectory.resume(args.directory, "eval") as directory, asyncio.Runner() as runner:
            link = open_link(manifest.spec.redis, uid)
            try:
                view = choose_view(f"evaluating {directory.path}", quiet=args.quiet, json=args.json)
                return runner.run(_evaluate(args, manifest, directory, link, view, uid, started))
            finally:
                runner.run(link.close())


def _check_checkpoint(directory: RunDirectory, which: str) -> None:
    if which not in ("latest", "best"):
        if not Path(which).exists():
            raise UsageError(f"--checkpoint: {which} does not exist; give latest, best or the path of one")
    elif not any(directory.checkpoints.glob("step-*")):
        raise CheckpointError(f"{directory.checkpoints} holds no checkpoint: the run has not written one yet")


async def _evaluate(
    args: argparse.Namespace,
    manifest: RunManifest,
    directory: RunDirectory,
    link: RedisLink,
    view: View,
    uid: str,
    started: float,
) -> int:
    from webgym.commands.run import describe_evaluation
    from webgym.run.plan import Programs
    from webgym.run.session import log_to, signals_as_wishes, supervise
    from webgym.run.summary import read_json

    which = args.checkpoint
    episodes = manifest.spec.evaluation.episodes if args.episodes is None else args.episodes
    target = directory.next_evaluation()
    arguments = [
        "--evaluate",
        "--checkpoint",
        which,
        "--episodes",
        str(episodes),
        "--target",
        str(target.absolute()),
    ]
    if args.seed is not None:
        arguments += ["--seed", str(args.seed)]
    programs = Programs.installed(workers=manifest.spec.workers.replicas, learner_arguments=arguments)
    try:
        with log_to(directory.log("supervisor")), signals_as_wishes() as wishes:
            outcome = await supervise(manifest.spec, directory, link, view, programs, wishes, uid=uid)
            await link.forget()
    finally:
        view.close()
    if outcome.message:
        print(f"webgym: {outcome.message}", file=sys.stderr)
    evaluation = read_json(target)
    if evaluation is None:
        if outcome.code == ExitCode.OK:
            raise RunError(f"the evaluation left no {target.name}; see {directory.log('learner-0')}")
        return int(outcome.code)
    seconds = round(time.monotonic() - started, 2)
    if args.json:
        result = {
            "evaluation": evaluation,
            "asked": which,
            "checkpoint": evaluation.get("checkpoint"),
            "events": outcome.events,
            "file": str(target),
            "out": str(directory.path),
            "seconds": seconds,
            "restarts": outcome.restarts,
            "stop_reason": outcome.stop_reason,
        }
        print(json.dumps(result, allow_nan=False))
    else:
        print(f"{describe_evaluation(evaluation)}, in {seconds:.0f} s")
        print(f"  checkpoint  {evaluation.get('checkpoint')}\n  written to  {target}")
    return int(outcome.code)
