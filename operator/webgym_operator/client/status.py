"""``webgym status``: the runs of a namespace, or one of them with all that is known about it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from webgym.errors import ExitCode, UsageError
from webgym.printable import printable
from webgym_operator.client.options import add_cluster_options

if TYPE_CHECKING:
    from webgym_operator.client.access import Cluster
    from webgym_operator.run import Object

__all__ = ["StatusCommand"]


class StatusCommand:
    """Show runs on a cluster."""

    name = "status"
    help = "show the runs on a cluster, or one of them: figures, conditions and pods"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.add_argument("run", nargs="?", metavar="RUN", help="name of a run (default: list all)")
        parser.add_argument(
            "-A", "--all-namespaces", action="store_true", help="list those of all namespaces"
        )
        add_cluster_options(parser)
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def run(self, args: argparse.Namespace) -> int:
        """Show.

        Raises:
            UsageError: there is no such run, or no cluster.
            ClusterError: the API server refuses, or cannot be reached.
        """
        from webgym.spec import KIND
        from webgym_operator.client.access import open_cluster
        from webgym_operator.client.describe import describe, run_facts, table
        from webgym_operator.client.find import find_run
        from webgym_operator.client.pods import pods_of

        if args.run is not None and args.all_namespaces:
            raise UsageError("--all-namespaces lists; leave it out to see one run")
        with open_cluster(args) as cluster:
            now = time.time()
            if args.run is not None:
                run = find_run(cluster, args.run)
                pods = pods_of(cluster, args.run)
                if args.json:
                    print(json.dumps(run_facts(run, pods, now), indent=2))
                else:
                    print("\n".join(map(printable, describe(run, pods, now))))
                    _warn_of_no_operator(cluster, [run])
                return int(ExitCode.OK)
            runs = cluster.list(KIND, namespace="" if args.all_namespaces else None)
            if args.json:
                print(json.dumps({"runs": [run_facts(run, (), now) for run in runs]}, indent=2))
            elif runs:
                lines = table(runs, now, namespaces=args.all_namespaces)
                print("\n".join(map(printable, lines)))
                if not args.all_namespaces:
                    _warn_of_no_operator(cluster, runs)
            else:
                where = "in any namespace" if args.all_namespaces else f"in namespace {cluster.namespace}"
                print(f"There is no run {where}; webgym submit FILE makes one")
            return int(ExitCode.OK)


def _warn_of_no_operator(cluster: Cluster, runs: Iterable[Object]) -> None:
    """Say so where nobody keeps up what is shown of a run that goes on."""
    from webgym_operator.client.describe import verdict
    from webgym_operator.client.installation import installation

    if all(verdict(run) is not None for run in runs):
        return
    found = installation(cluster)
    if not found.alive and not found.unsure:
        print(
            printable(f"webgym: nobody looks after it now, so this may be old: {found.trouble}"),
            file=sys.stderr,
        )
