"""``webgym stop`` and ``webgym resume``: release a run's pods behind a checkpoint, and go on from it."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from webgym.errors import ExitCode, RunError
from webgym.printable import printable
from webgym_operator.client.options import add_cluster_options

if TYPE_CHECKING:
    from webgym_operator.client.access import Cluster
    from webgym_operator.run import Object

__all__ = ["ResumeCommand", "StopCommand"]


class StopCommand:
    """Suspend a run."""

    name = "stop"
    help = (
        "stop a run on a cluster behind a checkpoint and release its pods; webgym resume goes on from there"
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        _configure(parser)
        parser.add_argument("--wait", action="store_true", help="until all its pods are released")

    def run(self, args: argparse.Namespace) -> int:
        """Stop.

        Raises:
            UsageError: there is no such run, or no cluster.
            ClusterError: the API server refuses, or cannot be reached.
        """
        from webgym_operator.client.access import open_cluster
        from webgym_operator.client.describe import state, verdict
        from webgym_operator.client.find import find_run

        with open_cluster(args) as cluster:
            run = find_run(cluster, args.run)
            if verdict(run) is not None:
                return _told(args, run, f"is over ({state(run)}): there is nothing to stop", changed=False)
            changed = not run["spec"].get("suspend")
            if changed:
                run = _suspend(cluster, args.run, True)
            if args.wait:
                run = _wait_released(cluster, run, args.json)
            if state(run) == "Suspended":
                return _told(
                    args, run, "is stopped; webgym resume goes on from its checkpoint", changed=changed
                )
            words = "stops: it writes a checkpoint, ends its episodes and releases its pods"
            return _told(args, run, words if changed else "is being stopped already", changed=changed)


class ResumeCommand:
    """Go on with a suspended run."""

    name = "resume"
    help = "go on with a run that was stopped on a cluster, from its last checkpoint"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        _configure(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Resume.

        Raises:
            UsageError: there is no such run, or no cluster.
            RunError: the run is over.
            ClusterError: the API server refuses, or cannot be reached.
        """
        from webgym_operator.client.access import open_cluster
        from webgym_operator.client.describe import state, verdict
        from webgym_operator.client.find import find_run

        with open_cluster(args) as cluster:
            run = find_run(cluster, args.run)
            if verdict(run) is not None:
                raise RunError(
                    f"run {args.run} is over ({state(run)}); to train again: webgym submit FILE --replace"
                )
            if not run["spec"].get("suspend"):
                return _told(args, run, f"was not stopped: it is {state(run)}", changed=False)
            run = _suspend(cluster, args.run, False)
            return _told(args, run, "goes on from its last checkpoint", changed=True)


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="name of the run")
    add_cluster_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _suspend(cluster: Cluster, name: str, suspend: bool) -> Object:
    from webgym.spec import KIND

    return cluster.patch(KIND, name, {"spec": {"suspend": suspend}})


def _wait_released(cluster: Cluster, run: Object, quiet: bool) -> Object:
    from webgym_operator.client.describe import progress, state, verdict
    from webgym_operator.client.follow import ProgressLine, follow

    line = ProgressLine(quiet=quiet)
    try:
        return follow(
            cluster,
            run["metadata"]["name"],
            lambda now: state(now) == "Suspended" or verdict(now) is not None,
            lambda now: line.show(progress(now), state(now)),
            uid=run["metadata"]["uid"],
        )
    finally:
        line.close()


def _told(args: argparse.Namespace, run: Object, words: str, *, changed: bool) -> int:
    from webgym_operator.client.describe import run_facts

    message = f"run {args.run} {words}"
    if args.json:
        print(json.dumps({**run_facts(run), "changed": changed, "message": message}, indent=2))
    else:
        print(printable(message))
    sys.stdout.flush()
    return int(ExitCode.OK)
