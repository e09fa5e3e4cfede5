"""``webgym submit``: gives a run to a cluster, follows it if wished, or says beforehand whether it could run there."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from webgym.commands.arguments import add_overrides
from webgym.errors import ExitCode, ManifestError, RunError, UsageError
from webgym.printable import printable
from webgym_operator.client.options import add_cluster_options

if TYPE_CHECKING:
    from webgym.spec import RunManifest
    from webgym_operator.client.access import Cluster
    from webgym_operator.run import Object

__all__ = ["SubmitCommand", "differences"]

_GONE_SECONDS = 300.0
"""How long the deletion of a run that is replaced may take: its pods write checkpoints meanwhile."""


class SubmitCommand:
    """Submit a run."""

    name = "submit"
    help = "train on a cluster: checks a manifest and gives it to the operator; --dry-run says whether it could run"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.add_argument("file", metavar="FILE", help="manifest of a WebGymRun; - reads standard input")
        add_overrides(parser, "change a field first, as in --set workers.replicas=4; may be repeated")
        what = parser.add_mutually_exclusive_group()
        what.add_argument(
            "--dry-run",
            action="store_true",
            help="make nothing: check definition, operator, nodes, quotas, images and storage; 1 if it could not run",
        )
        what.add_argument(
            "--wait", action="store_true", help="follow the run to its end, and end with its exit code"
        )
        parser.add_argument(
            "--replace",
            action="store_true",
            help="delete a run of the same name first; its volume stays, unless it has storage.retain: false",
        )
        add_cluster_options(parser)
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def run(self, args: argparse.Namespace) -> int:
        """Submit.

        Raises:
            UsageError: no cluster, or another namespace in the manifest than in the options.
            RunError: there is a run of that name.
            ClusterError: the API server refuses, or cannot be reached.
        """
        from webgym.commands.validate import checked_manifest, tell_problems
        from webgym_operator.client.access import open_cluster

        try:
            manifest, unchecked = checked_manifest(args.file, args.overrides, elsewhere=True)
        except ManifestError as error:
            return tell_problems(error, args.file, as_json=args.json)
        for line in unchecked:
            print(printable(line), file=sys.stderr)
        with open_cluster(args) as cluster:
            _choose_namespace(cluster, manifest, args.namespace)
            if args.dry_run:
                from webgym_operator.client.preflight.examination import preflight, print_findings

                findings = preflight(
                    cluster, manifest, body_of(manifest, cluster.namespace), replace=args.replace
                )
                return print_findings(findings, manifest, cluster.namespace, as_json=args.json)
            return _submit(cluster, manifest, args)


def body_of(manifest: RunManifest, namespace: str) -> Object:
    """The object to create: what was written and nothing more, so that the server's defaults are its own."""
    body: Object = manifest.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    tasks = body["spec"]["task"]
    for written, task in zip(tasks if isinstance(tasks, list) else [tasks], manifest.spec.tasks, strict=True):
        if "params" in written:
            written["params"] = dict(task.params)  # what is absent elsewhere is a value here
    body["metadata"]["namespace"] = namespace
    return body


def differences(old: Any, new: Any, path: str = "spec") -> Iterator[str]:
    """Paths at which two resolved specs differ.

    Args:
        old: plain data.
        new: likewise.
        path: of both.
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from differences(old.get(key), new.get(key), f"{path}.{key}")
    elif old != new:
        yield path


def _choose_namespace(cluster: Cluster, manifest: RunManifest, option: str | None) -> None:
    """The option, then the manifest, then the context; two that contradict are refused, as by kubectl."""
    written = manifest.metadata.namespace
    if written is None:
        return
    if option is not None and option != written:
        raise UsageError(
            f"metadata.namespace is {written}, and --namespace {option}: give one of them, or both alike"
        )
    cluster.namespace = written


def _submit(cluster: Cluster, manifest: RunManifest, args: argparse.Namespace) -> int:
    from webgym_operator.client.refusal import ClusterError

    body = body_of(manifest, cluster.namespace)
    created = True
    if args.replace:
        _remove(cluster, manifest.metadata.name, quiet=args.json)
    try:
        run = cluster.create(body)
    except ClusterError as error:
        if error.reason != "AlreadyExists":
            raise _explained(error, manifest, cluster) from None
        run, created = _existing(cluster, manifest), False
    scope = f" -n {cluster.namespace}" if args.namespace or manifest.metadata.namespace else ""
    name, where = manifest.metadata.name, f"in namespace {cluster.namespace}"
    message = (
        f"run {name} was submitted {where}" if created else f"run {name} {where} goes on: it is the same"
    )
    if args.wait:
        if not args.json:
            print(printable(message), file=sys.stderr)
        return _follow(cluster, run, scope, as_json=args.json)
    if args.json:
        from webgym_operator.client.describe import run_facts

        print(json.dumps({**run_facts(run), "created": created, "message": message}, indent=2))
    else:
        print(
            printable(f"{message}; follow it by: webgym status {name}{scope}, webgym logs {name}{scope} -f")
        )
    return int(ExitCode.OK)


def _existing(cluster: Cluster, manifest: RunManifest) -> Object:
    """The run of that name, if it is this very one and not over.

    Raises:
        RunError: it is another, or over; the message says which, and what can be done.
    """
    from webgym.manifest import manifest_data
    from webgym.spec import KIND
    from webgym_operator.client.describe import state, verdict
    from webgym_operator.run import Run

    name = manifest.metadata.name
    body = cluster.get(KIND, name)
    there = f"run {name} exists already in namespace {cluster.namespace} ({state(body)})"
    again = "--replace deletes it and begins anew (its volume stays), another metadata.name keeps both"
    old = Run.parse({**body, "status": {}})
    if old.outdated:
        raise RunError(f"{there}, and cannot be compared: {old.problem}")
    if old.manifest is None:
        raise RunError(f"{there}, and is not valid: {old.problem}; {again}")
    before, after = manifest_data(old.manifest)["spec"], manifest_data(manifest)["spec"]
    found = [path for path in differences(before, after) if path != "spec.suspend"]
    if found:
        listed = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
        raise RunError(f"{there} and differs in {listed}; kubectl apply -f FILE changes it as it is, {again}")
    if verdict(body) is not None:
        raise RunError(f"{there} and is the same, but over; {again}")
    return body


def _remove(cluster: Cluster, name: str, *, quiet: bool) -> None:
    """Delete the run of that name, if there is one, and wait until it is gone."""
    from webgym.spec import KIND
    from webgym_operator.client.refusal import ClusterError

    try:
        old = cluster.get(KIND, name)
    except ClusterError as error:
        if error.status == 404 and error.reason != "NoDefinition":
            return
        raise
    uid, version = old["metadata"]["uid"], str(old["metadata"]["resourceVersion"])
    cluster.delete(KIND, name, uid=uid)
    deadline = time.monotonic() + _GONE_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        try:
            now = cluster.get(KIND, name)
        except ClusterError as error:
            if error.status != 404:
                raise
            break
        if now["metadata"]["uid"] != uid:
            break
        version = str(now["metadata"]["resourceVersion"])
        try:
            for type_, changed in cluster.watch(KIND, version, seconds=min(left, 30.0)):
                if type_ == "DELETED" and changed["metadata"]["uid"] == uid:
                    break
        except ClusterError as error:
            if error.status != 410:
                raise
    else:
        raise RunError(
            f"run {name} was not gone {_GONE_SECONDS:.0f} s after it was deleted: something holds it by a finalizer; "
            f"kubectl get wgr {name} -o yaml"
        )
    if not quiet:
        print(f"run {name} was deleted; its volume is its own", file=sys.stderr)


def _explained(error: Exception, manifest: RunManifest, cluster: Cluster) -> Exception:
    from webgym_operator.client.refusal import ClusterError

    if isinstance(error, ClusterError) and error.status == 404 and "namespaces" in str(error):
        return UsageError(
            f"there is no namespace {cluster.namespace}: kubectl create namespace {cluster.namespace}, or name "
            "another by --namespace"
        )
    if isinstance(error, ClusterError) and error.status == 422:
        return UsageError(f"the API server refuses run {manifest.metadata.name}: {error}")
    return error


def _follow(cluster: Cluster, run: Object, scope: str, *, as_json: bool) -> int:
    from webgym_operator.client.describe import describe, progress, run_facts, state, verdict
    from webgym_operator.client.follow import ProgressLine, follow

    name = run["metadata"]["name"]
    line = ProgressLine(quiet=as_json)
    try:
        run = follow(
            cluster,
            name,
            lambda now: verdict(now) is not None,
            lambda now: line.show(progress(now), state(now)),
            uid=run["metadata"]["uid"],
        )
    except KeyboardInterrupt:
        line.close()
        print(
            f"webgym: run {name} goes on without you; webgym stop {name}{scope} stops it",
            file=sys.stderr,
        )
        raise
    finally:
        line.close()
    code = verdict(run)
    assert code is not None
    if as_json:
        print(json.dumps(run_facts(run), indent=2))
    else:
        print("\n".join(map(printable, describe(run, (), time.time()))))
        print(f"webgym fetch {name}{scope} brings its checkpoints and report")
    return int(code)
