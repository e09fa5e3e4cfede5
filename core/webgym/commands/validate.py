"""``webgym validate``: says whether a manifest describes a possible run, and if not, everything that is wrong."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from webgym.commands.arguments import add_overrides
from webgym.errors import ExitCode, ManifestError, TaskElsewhereError
from webgym.printable import one_line, printable

if TYPE_CHECKING:
    from webgym.spec import RunManifest, TaskSpec

__all__ = ["ValidateCommand", "checked_manifest", "tell_problems"]

TASKS_NOT_CHECKED = "Task names were not checked: that needs pip install 'webgym-platform[worker]'"


class ValidateCommand:
    """Check a manifest without running it."""

    name = "validate"
    help = "check a manifest: prints OK and a summary, or all that is wrong with it"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.add_argument("file", metavar="FILE", help="manifest of a WebGymRun; - reads standard input")
        add_overrides(parser, "change a field first, as in --set learner.batchSize=64; may be repeated")
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        parser.add_argument(
            "--resolved", action="store_true", help="print the manifest with all defaults filled in"
        )

    def run(self, args: argparse.Namespace) -> int:
        """Validate; exit code 2 when something is wrong."""
        from webgym.manifest import dump_manifest, manifest_data

        try:
            manifest, unchecked = checked_manifest(args.file, args.overrides)
        except ManifestError as error:
            return tell_problems(error, args.file, as_json=args.json)
        if args.json:
            resolved = manifest_data(manifest)
            print(json.dumps({"valid": True, "problems": [], "manifest": resolved}, indent=2))
        elif args.resolved:
            print(dump_manifest(manifest), end="")
        else:
            print(printable(f"{args.file}: OK: {summary(manifest)}"))
            for line in unchecked:
                print(printable(line))
        return int(ExitCode.OK)


def checked_manifest(
    file: str, overrides: Sequence[str], *, elsewhere: bool = False
) -> tuple[RunManifest, list[str]]:
    """A manifest, and what of its tasks could not be checked, in words.

    Args:
        file: its path; ``-`` reads standard input. Modules of tasks may lie beside it.
        overrides: ``--set`` options.
        elsewhere: whether the run is another machine's, which may have modules of tasks that this one has not.

    Raises:
        ManifestError: it cannot be read, or is wrong.
    """
    from pathlib import Path

    from webgym.manifest import load_manifest
    from webgym.tasks import installed_task_check, look_for_tasks_in

    look_for_tasks_in([Path(file).parent])  # of "-" it is the current directory
    installed = installed_task_check()
    if installed is None:
        return load_manifest(file, overrides), [TASKS_NOT_CHECKED]
    unchecked: list[str] = []

    def check(task: TaskSpec) -> None:
        try:
            installed(task)
        except TaskElsewhereError as error:
            if not elsewhere:
                raise
            unchecked.append(f"Not checked, it has to be in the workers' image: {error}")

    return load_manifest(file, overrides, task_check=check), unchecked


def tell_problems(error: ManifestError, file: str, *, as_json: bool) -> int:
    """Print all that is wrong with a manifest: a line for each on stderr, or one JSON object on stdout.

    Returns:
        The exit code.
    """
    from webgym.manifest import InvalidManifest

    problems = error.problems if isinstance(error, InvalidManifest) else ()
    if as_json:
        found = [{"where": p.where, "path": p.path, "message": p.message} for p in problems]
        found = found or [{"where": file, "path": "", "message": str(error)}]
        print(json.dumps({"valid": False, "problems": found}, indent=2))
    else:
        for line in problems or (error,):
            print(one_line(str(line)), file=sys.stderr)
    return int(ExitCode.USAGE)


def summary(manifest: RunManifest) -> str:
    """One line that tells a person what the run would do."""
    spec = manifest.spec
    names = [task.name for task in spec.tasks]
    what = (
        names[0]
        if len(names) == 1
        else f"{len(names)} tasks ({', '.join(names[:3])}{', ...' * (len(names) > 3)})"
    )
    limits: list[str] = []
    if spec.stop.steps is not None:
        limits.append(f"{spec.stop.steps} steps")
    if spec.stop.seconds is not None:
        limits.append(f"{spec.stop.seconds} s")
    if spec.stop.success is not None:
        limits.append(f"success {spec.stop.success:g}")
    server: Any = spec.redis.url or "its own Redis"
    return (
        f"{manifest.metadata.name} trains {what} with {spec.learner.algorithm} ({spec.mode}) on "
        f"{spec.workers.replicas} worker{'s' if spec.workers.replicas != 1 else ''} and {server}, "
        f"until {' or '.join(limits)}; evaluates {spec.evaluation.episodes} episodes"
    )
