"""Runs checks: each as soon as what it needs is there, within a deadline, whatever becomes of the others."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from webgym.errors import WebGymError
from webgym_workers.doctor.finding import CheckResult, Finding, Status
from webgym_workers.doctor.mends import UNIX_MODULES, missing_module
from webgym_workers.doctor.setting import Setting

__all__ = ["Check", "Progress", "examine"]

log = logging.getLogger(__name__)

ALL_SECONDS = 45.0
"""Deadline of all checks together; ten seconds are usual."""

Progress = Callable[[Sequence[str]], None]
"""Called with the names of the checks at work whenever these change."""


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        name: Of one or two words, as it stands on the page.
        examine: Does it. Any error it raises counts as failed.
        needs: Checks without which it makes no sense: it is skipped when one of them found nothing to use.
        after: Checks that it waits for however they end.
        deadline: Seconds.
        alone: It measures time, so it runs when nothing else does.
    """

    name: str
    examine: Callable[[Setting], Awaitable[Finding]]
    needs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    deadline: float = 20.0
    alone: bool = False


async def examine(
    checks: Sequence[Check],
    setting: Setting,
    progress: Progress = lambda names: None,
    *,
    seconds: float = ALL_SECONDS,
) -> list[CheckResult]:
    """Run the checks; results in the order of the checks.

    Args:
        checks: Each after those that it needs.
        setting: Handed to each.
        progress: Told what is going on.
        seconds: Deadline of them all; those that have not begun by then are skipped.

    Raises:
        KeyError: a check names one that does not come before it.
    """
    # No more at a time than there are cores: more would only take each other's time, and deadlines count it.
    lanes = asyncio.Semaphore(max(2, int(setting.machine.cores)))
    end = time.monotonic() + seconds
    running: dict[str, None] = {}
    tasks: dict[str, asyncio.Task[CheckResult]] = {}

    async def one(check: Check, before: Mapping[str, asyncio.Task[CheckResult]]) -> CheckResult:
        # Tasks end with a result and never raise, so waiting for them needs no care.
        results = {name: await task for name, task in before.items()}
        lacking = [name for name in check.needs if not results[name].finding.can_be_used]
        if lacking:
            return CheckResult(check.name, Finding(Status.SKIPPED, f"not tried: see {lacking[0]}"), 0.0)
        async with lanes:
            running[check.name] = None
            progress(list(running))
            start = time.monotonic()
            finding = await _finding(check, setting, min(check.deadline, end - start))
            del running[check.name]
            progress(list(running))
        return CheckResult(check.name, finding, round(time.monotonic() - start, 3))

    try:
        for check in sorted(checks, key=lambda check: check.alone):
            names = tasks if check.alone else [*check.needs, *check.after]
            before = {name: tasks[name] for name in names}
            tasks[check.name] = asyncio.create_task(one(check, before), name=check.name)
        await asyncio.gather(*tasks.values())
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
    return [tasks[check.name].result() for check in checks]


async def _finding(check: Check, setting: Setting, deadline: float) -> Finding:
    if deadline <= 0:
        return Finding(Status.SKIPPED, "not tried: the checks before it took too long")
    try:
        async with asyncio.timeout(deadline):
            return await check.examine(setting)
    except TimeoutError:
        mend = "something hangs, or the machine is overloaded: try again when it is idle"
        if deadline < check.deadline:
            found = f"no end within the {deadline:.0f} s that were left of {ALL_SECONDS:.0f}"
            return Finding(Status.WARNING, found, mend, usable=False)
        return Finding(Status.FAILED, f"no end within {deadline:.0f} s", mend)
    except WebGymError as error:
        mend = "what ended it may stand under open files, processes or memory"
        return Finding(Status.FAILED, " ".join(str(error).split()), mend)
    except ImportError as error:
        if error.name is None or error.name.startswith("webgym"):
            return _fault(check, error)
        found = f"the Python module {error.name} is missing"
        if error.name in UNIX_MODULES:
            found = f"this part of WebGym does not run on {setting.host.system}"
        return Finding(Status.FAILED, found, missing_module(setting.host, error.name))
    except Exception as error:
        return _fault(check, error)


def _fault(check: Check, error: Exception) -> Finding:
    # Ours, so its trace is wanted; the other checks say what they have to say all the same.
    log.exception("the check of %s failed", check.name)
    return Finding(
        Status.FAILED,
        f"the check itself failed: {type(error).__name__}: {error}"[:300],
        "this is a fault of WebGym's: please report it with the lines on standard error",
    )
