"""From a manifest and a folder to a supervised run: what ``webgym run`` and ``webgym eval`` share."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webgym.errors import ExitCode, UsageError
from webgym.process import ManagedProcess, RestartPolicy
from webgym.run.link import RedisLink
from webgym.run.live import View
from webgym.run.plan import Limits, Outcome, Programs
from webgym.run.supervisor import Supervisor
from webgym.run.whereabouts import whereabouts_file
from webgym.rundir import RunDirectory, remove_scratch
from webgym.telemetry import TextFormatter

if TYPE_CHECKING:
    from webgym.spec import RunManifest, RunSpec

__all__ = [
    "ReportTrouble",
    "Wishes",
    "check_local",
    "incompatible",
    "limits_of",
    "log_to",
    "signals_as_wishes",
    "supervise",
    "write_report",
]

_REPORT_SECONDS = 120.0
_PROVING_SECONDS = 20.0
_STILL_SECONDS = 120.0
"""A start with many browsers on a busy machine takes about one minute."""

_FIXED = ("task", "seed", "mode", "observation", "policy.hiddenSize", "learner.algorithm", "learner.dueling")
"""What a checkpoint, its counters and its seeds were made with."""


def check_local(spec: RunSpec) -> None:
    """Refuse what a manifest may say but one machine cannot do.

    Raises:
        UsageError: naming the field.
    """
    if spec.suspend:
        raise UsageError("spec.suspend is true: nothing would run; add --set suspend=false")
    if spec.workers.replicas < 1:
        raise UsageError("spec.workers.replicas is 0: nobody would act; add --set workers.replicas=1")


def incompatible(old: RunManifest, new: RunManifest) -> list[str]:
    """Fields that differ although a resumed run must keep them, as ``path: old -> new``."""
    before = old.spec.model_dump(mode="json", by_alias=True)
    after = new.spec.model_dump(mode="json", by_alias=True)
    found = []
    for path in _FIXED:
        a, b = _at(before, path), _at(after, path)
        if a != b:
            found += list(_differences(path, a, b))
    return found


def _at(data: Any, path: str) -> Any:
    for part in path.split("."):
        data = data[part]
    return data


def _differences(path: str, a: Any, b: Any) -> Iterator[str]:
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted({*a, *b}):
            if a.get(key) != b.get(key):
                yield from _differences(f"{path}.{key}", a.get(key), b.get(key))
    else:
        yield f"{path}: {a} -> {b}"


def limits_of(spec: RunSpec) -> Limits:
    """Backstops well behind the learner's own budgets."""
    seconds, browser = spec.stop.seconds, spec.browser
    return Limits(
        still=_STILL_SECONDS + 2.0 * (browser.navigation_timeout_seconds + browser.action_timeout_seconds),
        futile_ends=spec.backoff_limit,
        training=None if seconds is None else 1.5 * seconds + 120.0,
        evaluation=spec.evaluation.seconds + 60.0,
        total=spec.active_deadline_seconds,
    )


@contextlib.contextmanager
def log_to(path: Path) -> Iterator[None]:
    """Send log records to a file; what a person should see goes through the view."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(TextFormatter())
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.setLevel(before)
        root.removeHandler(handler)
        handler.close()


class Wishes:
    """Signals as wishes to end: whoever is responsible at the moment hears of each."""

    def __init__(self) -> None:
        self.count = 0
        self.hear: Callable[[], None] = lambda: None
        """Called at each wish."""

    def make(self) -> None:
        """One more."""
        self.count += 1
        self.hear()


@contextlib.contextmanager
def signals_as_wishes() -> Iterator[Wishes]:
    """Inside, SIGINT, SIGTERM and SIGHUP end nothing by themselves. Needs a running event loop."""
    wishes, loop = Wishes(), asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, wishes.make)
    try:
        yield wishes
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def supervise(
    spec: RunSpec,
    directory: RunDirectory,
    link: RedisLink,
    view: View,
    programs: Programs,
    wishes: Wishes,
    *,
    uid: str,
) -> Outcome:
    """Run the programs to their end; the first wish ends them in good order, the second at once."""
    restart = RestartPolicy(max_failures=spec.backoff_limit, proving_seconds=_PROVING_SECONDS)
    supervisor = Supervisor(directory, link, view, programs, uid=uid, limits=limits_of(spec), restart=restart)
    for _ in range(wishes.count):
        supervisor.interrupt()
    wishes.hear = supervisor.interrupt
    await link.begin()
    with whereabouts_file(directory, spec.redis, link.url, uid):
        return await supervisor.run()


async def write_report(
    directory: RunDirectory, wishes: Wishes, argv: Sequence[str] | None = None
) -> ReportTrouble | None:
    """Have the report written by its own program; None, or why there is none. A wish breaks it off: what was there
    before stays, and nothing half-written.
    """
    log = directory.log("report")
    command = argv or (sys.executable, "-P", "-m", "webgym", "report", str(directory.path), "--quiet")
    process = ManagedProcess("report", command, log=log, restart=RestartPolicy.never())
    wished = asyncio.Event()
    wishes.hear = wished.set
    await process.start()
    tasks = {asyncio.ensure_future(process.wait()), asyncio.ensure_future(wished.wait())}
    try:
        await asyncio.wait(tasks, timeout=_REPORT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        ended = process.exits[-1] if process.ended and process.exits else None
    finally:
        for task in tasks:
            task.cancel()
        await process.drain(0)
        remove_scratch(directory.path)
    if ended is not None and ended.code == ExitCode.OK:
        return None
    later = f"write it by: webgym report {shlex.quote(str(directory.path))}"
    if ended is not None:
        return ReportTrouble(f"no report: {ended.reason}; see {log}; {later}")
    if wished.is_set():
        return ReportTrouble(f"interrupted: the report was not written; {later}", interrupted=True)
    return ReportTrouble(f"the report was not done after {_REPORT_SECONDS:.0f} s; {later}")


@dataclass(frozen=True)
class ReportTrouble:
    """Why a run has no report."""

    message: str
    """One line, with the way to have it later."""
    interrupted: bool = False
    """Whether somebody wanted it so."""
