"""``webgym logs``: what the programs of a run on a cluster say."""

from __future__ import annotations

import argparse
import json
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from webgym.errors import ExitCode, RunError, UsageError
from webgym.printable import printable
from webgym_operator.client.options import add_cluster_options

if TYPE_CHECKING:
    from webgym_operator.client.access import Cluster
    from webgym_operator.observed import PodView
    from webgym_operator.run import Object

__all__ = ["LogsCommand", "readable"]

_ROLES = ("worker", "learner", "redis", "all")
_LOOK_SECONDS = 5.0
"""How long new pods are waited for before it is asked whether the run is over."""


class LogsCommand:
    """Show logs."""

    name = "logs"
    help = "show what the learner, the workers and the Redis of a run on a cluster say"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.add_argument("run", metavar="RUN", help="name of the run")
        parser.add_argument("--role", choices=_ROLES, default="all", help="whose (default: all)")
        parser.add_argument(
            "-f", "--follow", action="store_true", help="go on until the run is over, new pods included"
        )
        parser.add_argument("--tail", type=int, metavar="N", help="begin with the last N lines of each pod")
        parser.add_argument(
            "-p",
            "--previous",
            action="store_true",
            help="of the pods, or containers, before the present ones",
        )
        add_cluster_options(parser)
        parser.add_argument(
            "--json",
            action="store_true",
            help="one JSON object a line, as the programs write them, with the pod's name",
        )

    def run(self, args: argparse.Namespace) -> int:
        """Show.

        Raises:
            UsageError: there is no such run, or no cluster.
            RunError: no pod has a log.
            ClusterError: the API server refuses, or cannot be reached.
        """
        from webgym_operator.client.access import open_cluster
        from webgym_operator.client.find import find_run

        if args.tail is not None and args.tail < 0:
            raise UsageError(f"--tail is {args.tail}: it must be at least 0")
        if args.follow and args.previous:
            raise UsageError("--previous shows what has ended: there is nothing to follow")
        with open_cluster(args) as cluster:
            run = find_run(cluster, args.run)
            reader = _Reader(cluster, args)
            return reader.follow(run) if args.follow else reader.show()


def readable(line: str) -> str:
    """A line of a program's log for people; one that is not of ours as it is.

    Args:
        line: JSON with time, level and message, or anything else.
    """
    try:
        told: Any = json.loads(line)
        time, level, message = told["time"][11:19], str(told["level"]).upper(), str(told["message"])
    except (ValueError, KeyError, TypeError):
        return printable(line)
    known = {"time", "level", "logger", "message", "run", "worker", "trace"}
    fields = " ".join(f"{key}={value}" for key, value in told.items() if key not in known)
    text = printable(f"{time} {level:7} {message}{f'  [{fields}]' if fields else ''}")
    trace = str(told.get("trace") or "")
    return "\n".join([text, *map(printable, trace.splitlines())])


@dataclass(frozen=True)
class _Wanted:
    """A pod's log: of the container that runs, or of the one before it in the same pod."""

    pod: PodView
    earlier_container: bool = False


class _Reader:
    """Reads and prints logs.

    Lines of several pods come from as many threads; the lock keeps each of them whole.
    """

    def __init__(self, cluster: Cluster, args: argparse.Namespace) -> None:
        self._cluster = cluster
        self._args = args
        self._lock = threading.Lock()
        self._named = True
        self._failure: BaseException | None = None

    def show(self) -> int:
        """What has been said until now."""
        wanted = self._wanted()
        self._named = len(wanted) > 1
        shown = 0
        for one in wanted:
            shown += self._read(one)
        if not shown:
            raise RunError(self._nothing(wanted))
        return int(ExitCode.OK)

    def follow(self, run: Object) -> int:
        """Everything that is said until the run is over, or the caller has seen enough."""
        from webgym.spec import KIND
        from webgym_operator.client.describe import verdict
        from webgym_operator.client.refusal import ClusterError
        from webgym_operator.observed import parse_pod

        threads: dict[str, threading.Thread] = {}
        name, uid = str(run["metadata"]["name"]), run["metadata"]["uid"]
        while True:
            pods = self._pods()
            for body in pods:
                pod = parse_pod(body)
                if pod.uid not in threads and _has_log(body):
                    thread = threading.Thread(target=self._read_aside, args=(_Wanted(pod),), daemon=True)
                    threads[pod.uid] = thread
                    thread.start()
            try:
                run = self._cluster.get(KIND, name)
            except ClusterError as error:
                if error.status != 404:
                    raise
                break
            if verdict(run) is not None or run["metadata"]["uid"] != uid:
                break
            self._wait_for_pods(pods)
            self._raise_failure()
        for thread in threads.values():
            thread.join()
        self._raise_failure()
        return int(ExitCode.OK)

    def _read_aside(self, wanted: _Wanted) -> None:
        try:
            self._read(wanted)
        except BaseException as error:  # told by the thread that the caller waits for
            self._failure = error

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _wait_for_pods(self, pods: list[Object]) -> None:
        """Until there is news of one that has no log yet, or a while has passed."""
        from webgym_operator.client.refusal import ClusterError

        version = max((int(pod["metadata"]["resourceVersion"]) for pod in pods), default=0)
        selector = f"webgym.io/run={self._args.run}"
        known = {pod["metadata"]["uid"] for pod in pods if _has_log(pod)}
        try:
            for _, body in self._cluster.watch("Pod", str(version), selector=selector, seconds=_LOOK_SECONDS):
                if _has_log(body) and body["metadata"]["uid"] not in known:
                    return
        except ClusterError as error:
            if error.status not in (0, 410):
                raise

    def _pods(self) -> list[Object]:
        from webgym_operator.client.pods import pod_objects
        from webgym_operator.observed import parse_pod

        role = self._args.role
        found = pod_objects(self._cluster, self._args.run)
        return [body for body in found if role in ("all", parse_pod(body).role)]

    def _wanted(self) -> list[_Wanted]:
        from webgym_operator.observed import parse_pod

        pods = [parse_pod(body) for body in self._pods()]
        if not self._args.previous:
            return [_Wanted(pod) for pod in pods]
        newest = {(pod.role, pod.slot): pod.incarnation for pod in pods}  # they are in order of age
        return [
            _Wanted(pod, earlier_container=pod.role == "redis")
            for pod in pods
            # Programs have a pod for each of their lives, Redis has a container.
            if pod.role == "redis" or pod.incarnation < newest[pod.role, pod.slot]
        ]

    def _read(self, wanted: _Wanted) -> int:
        """Print one log; returns how many lines it had. What keeps it from being read is a line on stderr."""
        from webgym_operator.client.refusal import ClusterError

        pod = wanted.pod
        query = {"container": pod.role}
        if self._args.follow:
            query["follow"] = "true"
        if self._args.tail is not None:
            query["tailLines"] = str(self._args.tail)
        if wanted.earlier_container:
            query["previous"] = "true"
        lines = 0
        try:
            path = self._cluster.path("Pod", pod.name) + "/log"
            for line in self._cluster.lines(path, query, read_seconds=None if self._args.follow else 60.0):
                lines += 1
                self._print(pod, line.decode(errors="replace"))
        except ClusterError as error:
            if error.by_rights:
                raise
            why = pod.obstacle or str(error)
            with self._lock:
                sys.stderr.write(f"webgym: {printable(f'{pod.name} has no log: {why}')}\n")
        return lines

    def _print(self, pod: PodView, line: str) -> None:
        if self._args.json:
            try:
                told = json.loads(line)
            except ValueError:
                told = None
            told = told if isinstance(told, dict) else {"message": line}
            text = json.dumps({"pod": pod.name, **told}, ensure_ascii=False)
        else:
            prefix = f"{pod.program}: " if self._named else ""
            text = "\n".join(prefix + part for part in readable(line).split("\n"))
        with self._lock:
            sys.stdout.write(text + "\n")
            if self._args.follow:
                sys.stdout.flush()

    def _nothing(self, wanted: list[_Wanted]) -> str:
        run, role = self._args.run, self._args.role
        what = "pod" if role == "all" else f"{role} pod"
        if wanted:
            return f"no {what} of run {run} has said anything yet; webgym status {run} says how they are"
        if self._args.previous:
            return (
                f"run {run} has no earlier {what} any more: the operator removes those that have ended; "
                f"webgym status {run} tells the last failure"
            )
        return f"run {run} has no {what} now; webgym status {run} says why"


def _has_log(body: Object) -> bool:
    status = body.get("status") or {}
    states = [one.get("state") or {} for one in status.get("containerStatuses") or ()]
    return any("running" in state or "terminated" in state for state in states)
