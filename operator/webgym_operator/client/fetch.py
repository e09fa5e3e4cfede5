"""``webgym fetch``: brings a run's checkpoints, metrics and report from the cluster to a folder here."""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from webgym.errors import ExitCode, OutputError, RunError, UsageError
from webgym.printable import printable
from webgym_operator.client.options import add_cluster_options

if TYPE_CHECKING:
    from webgym_operator.client.access import Cluster
    from webgym_operator.client.follow import ProgressLine
    from webgym_operator.run import Run

__all__ = ["FetchCommand"]

_TRIES = 3
_REPORT_SECONDS = 120.0


class FetchCommand:
    """Fetch a run."""

    name = "fetch"
    help = "bring a run's checkpoints, metrics and report from a cluster to a folder, which webgym eval can judge"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.add_argument("run", metavar="RUN", help="name of the run, which may go on meanwhile")
        parser.add_argument(
            "--out",
            type=Path,
            metavar="DIR",
            help="folder for it, new or with an earlier state of this run (default: runs/RUN-<its uid>)",
        )
        parser.add_argument(
            "--no-checkpoints",
            dest="checkpoints",
            action="store_false",
            help="metrics, pictures and report alone",
        )
        parser.add_argument(
            "--image",
            metavar="IMAGE",
            help="image with tar for the pod that reads the volume once the run is over (default: the learner's)",
        )
        parser.add_argument(
            "--timeout",
            type=float,
            default=180.0,
            metavar="SECONDS",
            help="how long that pod may take to start (default: 180)",
        )
        add_cluster_options(parser)
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def run(self, args: argparse.Namespace) -> int:
        """Fetch.

        Raises:
            UsageError: there is no such run, or no cluster.
            OutputError: the folder holds something else, or cannot be written.
            RunError: the run has left nothing, or its volume cannot be read.
            ClusterError: the API server refuses, or cannot be reached.
        """
        from webgym_operator.client.access import open_cluster
        from webgym_operator.client.fetched import (
            check_target,
            install,
            summary_facts,
            write_identity,
            write_summary,
        )
        from webgym_operator.client.find import find_run
        from webgym_operator.client.follow import ProgressLine
        from webgym_operator.run import Run

        if not args.timeout > 0:
            raise UsageError(f"--timeout is {args.timeout:g}: it must be above 0")
        with open_cluster(args) as cluster:
            body = find_run(cluster, args.run)
            run = Run.parse({**body, "status": {}})
            if run.outdated:
                raise RunError(f"run {args.run} cannot be read: {run.problem}")
            if run.manifest is None:
                raise RunError(f"run {args.run} is not valid, so it has left nothing: {run.problem}")
            target = args.out or Path("runs") / run.folder_name
            check_target(target, run.uid)
            line = ProgressLine(quiet=args.json)
            try:
                with _scratch_beside(target) as scratch:
                    size, damaged = _copy(cluster, run, scratch, args, line)
                    write_identity(scratch, body, run.manifest, [scratch / name for name in damaged])
                    install(scratch, target)
            finally:
                line.close()
        write_summary(target, summary_facts(body, run.manifest))
        report = _report(target)
        return _told(args, target, size, damaged, report)


@contextlib.contextmanager
def _scratch_beside(target: Path) -> Iterator[Path]:
    """An empty folder on the same disk, of which nothing is left afterwards but what was moved away."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.fetch-", dir=target.parent))
        scratch.chmod(0o755)  # it becomes the run's folder
    except OSError as error:
        raise OutputError(
            f"{target} cannot be made: {error.strerror or error}; name another by --out"
        ) from error
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _copy(
    cluster: Cluster, run: Run, scratch: Path, args: argparse.Namespace, line: ProgressLine
) -> tuple[int, list[str]]:
    """Copy the folder; returns its bytes, and which checkpoints are damaged on the volume itself.

    A learner removes old checkpoints while they are being read. What was torn by that is whole, or gone, the next time.
    """
    from webgym_operator.client.archive import BrokenArchive, copy_folder
    from webgym_operator.client.fetched import damaged_checkpoints
    from webgym_operator.client.volume import door_to

    with door_to(cluster, run, image=args.image, seconds=args.timeout, tell=line.show) as door:
        for left in reversed(range(_TRIES)):
            try:
                size = copy_folder(
                    cluster,
                    door,
                    scratch,
                    checkpoints=args.checkpoints,
                    tell=lambda count: line.show(f"{_size(count)} from pod {door.pod}", door.pod),
                )
            except BrokenArchive:
                if not left:
                    raise
            except OSError as error:
                raise OutputError(
                    f"{scratch.parent} does not take the run: {error.strerror or error}"
                ) from error
            else:
                damaged = damaged_checkpoints(scratch)
                if not damaged or not left or not door.live:
                    return size, [str(path.relative_to(scratch)) for path in damaged]
            for path in scratch.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    raise AssertionError("the last try returns or raises")


def _report(target: Path) -> Path | None:
    """The report, written here where the cluster has none and the learner's extra is installed."""
    page = target / "report.html"
    command = [sys.executable, "-P", "-m", "webgym", "report", str(target), "--quiet"]
    try:
        with (target / "logs" / "report.log").open("ab") as log:
            subprocess.run(command, stdout=log, stderr=log, timeout=_REPORT_SECONDS, check=False)
    except (subprocess.TimeoutExpired, OSError):
        pass  # the command below says how to have it later
    return page if page.is_file() else None


def _told(args: argparse.Namespace, target: Path, size: int, damaged: list[str], report: Path | None) -> int:
    names = sorted(path.name for path in (target / "checkpoints").glob("step-*"))
    if args.json:
        found = {
            "run": args.run,
            "out": str(target),
            "bytes": size,
            "checkpoints": names,
            "damaged": damaged,
            "report": None if report is None else str(report),
        }
        print(json.dumps(found, indent=2))
        return int(ExitCode.OK)
    for name in damaged:
        print(printable(f"webgym: {name} is damaged on the run's volume and was left out"), file=sys.stderr)
    count = f"{len(names)} checkpoint{'' if len(names) == 1 else 's'}"
    print(printable(f"run {args.run} is in {target}: {count}, {_size(size)}"))
    if report is not None:
        print(printable(f"  report      {report}"))
    else:
        print(printable(f"  no report here; with the learner extra: webgym report {target}"))
    if names:
        print(printable(f"  judge it    webgym eval {target}"))
    return int(ExitCode.OK)


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"
