"""``webgym run``: one command from a manifest to a trained agent and a report, on this machine."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webgym.commands.arguments import add_overrides
from webgym.errors import ExitCode, OutputError, UsageError, WebGymError

if TYPE_CHECKING:
    from webgym.run.link import RedisLink
    from webgym.run.live import View
    from webgym.run.plan import Outcome
    from webgym.rundir import RunDirectory
    from webgym.spec import RunManifest

__all__ = ["RunCommand"]


class RunCommand:
    """Train on this machine."""

    name = "run"
    help = "train on this machine: starts Redis, workers and learner, ends with an evaluation and a report"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments."""
        parser.add_argument(
            "file",
            metavar="FILE",
            nargs="?",
            help="manifest of a WebGymRun; may be left out with --resume",
        )
        add_overrides(parser, "change a field, as in --set task.name=miniwob.click-link; may be repeated")
        parser.add_argument(
            "--out",
            type=Path,
            metavar="DIR",
            help="folder for everything the run leaves (default: runs/NAME-TIME)",
        )
        parser.add_argument(
            "--resume",
            action="store_true",
            help="go on from the last checkpoint in DIR (default: the newest run of that name)",
        )
        parser.add_argument(
            "--json", action="store_true", help="end with one JSON object, and nothing else, on stdout"
        )
        parser.add_argument("--quiet", action="store_true", help="show no progress")
        parser.add_argument(
            "--trace-memory",
            action="store_true",
            help="find out where each program's Python memory grows (DIR/memory, summary and report); slows it down",
        )

    def run(self, args: argparse.Namespace) -> int:
        """Run; the exit code says how it ended."""
        from webgym.manifest import dump_manifest
        from webgym.run.checks import check_run
        from webgym.run.link import open_link
        from webgym.run.live import choose_view
        from webgym.rundir import RunDirectory, write_atomic

        started = time.monotonic()
        manifest, path = _prepare(args)
        spec = manifest.spec
        check_run(manifest)
        with contextlib.ExitStack() as stack:
            # Whatever is wrong is found before the folder is made: a run that never began leaves nothing.
            if args.resume:
                directory = stack.enter_context(RunDirectory.resume(path))
                link = open_link(spec.redis, directory.uid)
            else:
                RunDirectory.check_new(path)
                uid = uuid.uuid4().hex
                link = open_link(spec.redis, uid)
            with _closing(link) as runner:
                if not args.resume:
                    directory = stack.enter_context(RunDirectory.create(path, uid))
                try:
                    directory.remember_task_path(_task_folders(args))
                    write_atomic(directory.manifest, dump_manifest(manifest))
                except OSError as e:
                    directory.discard()
                    raise OutputError(f"{path} cannot be written: {e.strerror or e}") from e
                view = choose_view(_title(manifest), quiet=args.quiet, json=args.json)
                return runner.run(_run(args, manifest, directory, link, view, started))


@contextlib.contextmanager
def _closing(link: RedisLink) -> Iterator[asyncio.Runner]:
    """An event loop whose last act is to close the link."""
    with asyncio.Runner() as runner:
        try:
            yield runner
        finally:
            runner.run(link.close())


def _prepare(args: argparse.Namespace) -> tuple[RunManifest, Path]:
    """The manifest, and the folder it will use; nothing is written."""
    from webgym.manifest import load_manifest
    from webgym.run.session import check_local, incompatible
    from webgym.rundir import RunDirectory
    from webgym.tasks import installed_task_check, look_for_tasks_in

    file = args.file
    look_for_tasks_in(_task_folders(args))
    if file is None:
        if not args.resume or args.out is None:
            raise UsageError("FILE is missing: name a manifest, or give --resume and --out DIR")
        file = args.out / "run.yaml"
        if not file.is_file():
            raise OutputError(f"--resume: {args.out} is not a folder of a run: it holds no run.yaml")
        look_for_tasks_in(RunDirectory.open(args.out, "--resume").task_path)
    manifest = load_manifest(file, args.overrides, task_check=installed_task_check())
    check_local(manifest.spec)
    if not args.resume:
        return manifest, args.out or RunDirectory.default_path(manifest.metadata.name)
    path = args.out or RunDirectory.latest(manifest.metadata.name)
    directory = RunDirectory.open(path, "--resume")
    changed = incompatible(load_manifest(directory.manifest), manifest)
    if changed:
        raise UsageError(
            f"--resume: {path} was begun with other settings ({'; '.join(changed)}); give the same, or start anew"
        )
    return manifest, path


def _task_folders(args: argparse.Namespace) -> list[Path]:
    """Where the modules of tasks may lie: beside the manifest, and in the current directory."""
    beside = [] if args.file in (None, "-") else [Path(args.file).parent]
    return [*beside, Path()]


class _Failed(WebGymError):
    """The run ended before it began."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = ExitCode(code)


def _title(manifest: RunManifest) -> str:
    names = [task.name for task in manifest.spec.tasks]
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{manifest.metadata.name}: {names[0]}{more}"


async def _run(
    args: argparse.Namespace,
    manifest: RunManifest,
    directory: RunDirectory,
    link: RedisLink,
    view: View,
    started: float,
) -> int:
    from webgym.run.plan import Programs
    from webgym.run.session import log_to, signals_as_wishes, supervise, write_report
    from webgym.run.summary import compose_summary
    from webgym.rundir import write_json

    programs = Programs.installed(
        workers=manifest.spec.workers.replicas,
        learner_arguments=["--resume"] if args.resume else [],
        trace_memory=args.trace_memory,
    )
    with signals_as_wishes() as wishes:
        try:
            with log_to(directory.log("supervisor")):
                outcome = await supervise(
                    manifest.spec, directory, link, view, programs, wishes, uid=directory.uid
                )
            if outcome.code != ExitCode.BROKER_LOST:
                await link.forget()
            if not outcome.began and outcome.message:
                # Nothing happened that would be worth a report, or worth replacing that of an earlier life.
                raise _Failed(outcome.message, outcome.code)
            facts = _facts(args, manifest, outcome, time.monotonic() - started)
            write_json(directory.summary, compose_summary(directory, facts))
            closing = replace(outcome.last, phase="report")
            view.update(closing, restarts=sum(outcome.restarts.values()), memory=outcome.peak_memory_bytes)
            trouble = await write_report(directory, wishes)
        finally:
            view.close()
        code = int(outcome.code)
        if trouble is not None and trouble.interrupted and code == ExitCode.OK:
            code = int(ExitCode.INTERRUPTED)
        facts |= {
            "seconds": round(time.monotonic() - started, 2),
            "exit_code": code,
            "message": outcome.message or (trouble.message if trouble else None),
        }
        summary = compose_summary(directory, facts)
        write_json(directory.summary, summary)
    if args.json:
        print(json.dumps(summary, allow_nan=False))
    else:
        print(text_summary(summary, None if trouble else directory.path / "report.html"))
    for message in (trouble.message if trouble else "", outcome.message):
        if message:
            print(f"webgym: {message}", file=sys.stderr)
    return code


def _facts(
    args: argparse.Namespace, manifest: RunManifest, outcome: Outcome, seconds: float
) -> dict[str, Any]:
    return {
        "name": manifest.metadata.name,
        "tasks": [task.name for task in manifest.spec.tasks],
        "resumed": bool(args.resume),
        "resumed_from": (outcome.checkpoint or None) if args.resume else None,
        "stop_reason": outcome.stop_reason,
        "exit_code": int(outcome.code),
        "message": outcome.message or None,
        "seconds": round(seconds, 2),
        "restarts": outcome.restarts,
        "events": outcome.events,
        "peak_memory_bytes": outcome.peak_memory_bytes,
    }


def text_summary(summary: dict[str, Any], report: Path | None) -> str:
    """A run's results for people, a few lines."""

    def count(name: str) -> str:
        return f"{summary.get(name) or 0:,.0f}"

    trained = summary.get("training_seconds")
    lines = [f"{summary['name']}: {summary['stop_reason']} after {summary['seconds']:.0f} s"]
    if trained is not None:
        whole = ", over all its sessions" if summary.get("resumed") else " of them"
        lines[0] += f", {trained:.0f} s{whole} training"
    if evaluation := summary.get("evaluation"):
        lines.append(f"  success     {describe_evaluation(evaluation)}")
    rate = summary.get("steps_per_second")
    speed = "" if rate is None else f", {rate:.1f} per second with those of validation"
    if summary.get("resumed_from"):
        lines.append(f"  went on     from {summary['resumed_from']}")
    lines.append(
        f"  steps       {count('steps')}{speed}, {count('episodes')} episodes, {count('updates')} updates"
    )
    again = [f"{kind} {number}" for kind, number in summary.get("restarts", {}).items() if number]
    lines.append(f"  restarted   {', '.join(again) or 'nothing'}")
    if summary.get("peak_memory_bytes"):
        lines.append(f"  memory      {summary['peak_memory_bytes'] / 1e9:.1f} GB at most")
    if trace := summary.get("memory_trace"):
        lines += _memory_lines(trace)
    if summary.get("checkpoint"):
        lines.append(f"  checkpoint  {summary['checkpoint']}")
    lines.append(f"  report      {report}" if report is not None else f"  folder      {summary['out']}")
    return "\n".join(lines)


def _memory_lines(trace: dict[str, Any]) -> list[str]:
    """The three places that grew most, and what it cost to find them."""
    spent = sum(program["all_looks_seconds"] or 0 for program in trace["programs"])
    taken = sum(program["tracer_bytes"] or 0 for program in trace["programs"])
    cost = f"{spent:.1f} s of CPU time for looking and {taken / 1e6:.0f} MB of notes"
    lines = [f"  traced      {cost} in all programs; grown most:"]
    for place in trace["grown"][:3]:
        size, seconds = place["grown_bytes"] / 1e6, place["seconds"]
        lines.append(
            f"              {size:+.2f} MB in {seconds:.0f} s  {place['place']}  ({place['program']})"
        )
    return lines if trace["grown"] else [f"{lines[0]} nothing"]


def describe_evaluation(evaluation: dict[str, Any]) -> str:
    """Success with its interval and the untrained baseline, for people."""
    success = evaluation.get("success")
    if success is None:
        return f"not known: {evaluation.get('episodes', 0)} evaluation episodes finished"
    interval = evaluation.get("interval")
    within = (
        f" ({interval[0]:.3f} to {interval[1]:.3f})"
        if isinstance(interval, list) and len(interval) == 2
        else ""
    )
    count, wanted = evaluation.get("episodes", 0), evaluation.get("wanted")
    of = f" of {wanted}" if wanted is not None and count != wanted else ""
    text = f"{success:.3f}{within} over {count}{of} episodes on unseen seeds"
    baseline = evaluation.get("baseline")
    before = baseline.get("success") if isinstance(baseline, dict) else None
    return text if before is None else f"{text}; untrained {before:.3f}"
