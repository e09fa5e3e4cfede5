"""Is there a Chromium, does it start, and does its sandbox work?"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

from webgym.errors import BrowserError
from webgym_workers.doctor import mends
from webgym_workers.doctor.finding import Finding, Number, Status
from webgym_workers.doctor.host import Host
from webgym_workers.doctor.setting import Setting

__all__ = [
    "check_browser",
    "check_sandbox",
    "ending_the_browser",
    "forbidding_switch",
    "judge_failed_start",
    "judge_sandbox",
]

START_SECONDS = 15.0
"""How long Chromium may take to answer; 0.3 s is usual."""

_SWITCHES = {
    # Debian's and Ubuntu's; 0 in the last is none at all.
    "kernel/unprivileged_userns_clone": ("0", "kernel.unprivileged_userns_clone=1"),
    "kernel/apparmor_restrict_unprivileged_userns": (
        "1",
        "kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    "user/max_user_namespaces": ("0", "user.max_user_namespaces=10000"),
}


async def check_browser(setting: Setting) -> Finding:
    """Find Chromium and start it; it stays for the checks that come."""
    from webgym_workers.browser.chromium import ChromiumProcess
    from webgym_workers.browser.faults import BrowserGone
    from webgym_workers.browser.find import find_chromium

    loop = asyncio.get_running_loop()
    options = setting.options()
    try:
        executable = await loop.run_in_executor(None, find_chromium, options.executable)
    except BrowserError as error:
        # What the finder proposes follows the colon; ours is for this platform.
        found = str(error).split(": install it with", 1)[0]
        return Finding(Status.FAILED, found, mends.install(setting.host, "chromium"))
    start = time.monotonic()
    try:
        process = await ChromiumProcess.launch(options, timeout=START_SECONDS)
    except BrowserError as error:
        ended = error.__cause__ is None or isinstance(error.__cause__, BrowserGone)
        return judge_failed_start(str(error), executable, ended=ended, host=setting.host)
    seconds = time.monotonic() - start
    setting.process = process
    return Finding(
        Status.OK,
        f"{process.version} starts in {seconds:.1f} s: {executable}",
        numbers={"version": process.version, "path": str(executable), "start_seconds": round(seconds, 3)},
    )


def judge_failed_start(message: str, executable: Path, *, ended: bool, host: Host) -> Finding:
    """What to make of a Chromium that does not start.

    Args:
        message: The launch's error, with Chromium's last line.
        executable: The program.
        ended: Whether it ended; otherwise it gave no answer.
        host: The machine.
    """
    hung = "" if ended or "no answer" in message else f" (no answer in {START_SECONDS:g} s)"
    mend = f"is it a Chromium? `{executable} --version` tells; {mends.install(host, 'chromium')}"
    if "Too many open files" in message:
        mend = "see open files"
    elif "shared libraries" in message:
        message = message.split(" (`playwright", 1)[0]
        mend = mends.install(host, "chromium")
    elif "No space left" in message:
        mend = "free some of the temporary folder, or set TMPDIR to another"
    elif "cannot make a browser profile" in message:
        mend = "set TMPDIR to a folder that can be written"
    return Finding(Status.FAILED, f"{message}{hung}", mend)


async def check_sandbox(setting: Setting) -> Finding:
    """Say whether the browser that was started has its sandbox, and what the manifest's modes mean here."""
    assert setting.process is not None
    obstacle = setting.process.sandbox_obstacle
    return judge_sandbox(setting.wanted.browser.sandbox, obstacle, forbidding_switch(), setting.host)


def forbidding_switch(root: Path = Path("/proc/sys")) -> str | None:
    """The kernel's setting that forbids user namespaces to ordinary users, with the value that allows them."""
    for name, (forbidding, mend) in _SWITCHES.items():
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if (root / name).read_text(encoding="ascii").strip() == forbidding:
                return mend
    return None


def judge_sandbox(mode: str, obstacle: str | None, switch: str | None, host: Host) -> Finding:
    """What the sandbox's state means for runs.

    Args:
        mode: ``browser.sandbox``.
        obstacle: Why Chromium runs without it, or None.
        switch: See :func:`forbidding_switch`.
        host: The machine.
    """
    numbers: dict[str, Number] = {"sandboxed": obstacle is None, "mode": mode}
    if mode == "Disabled":
        return Finding(
            Status.WARNING,
            "off, for browser.sandbox is Disabled: pages are less contained",
            "set browser.sandbox to Prefer, which uses it where it works",
            numbers,
        )
    if obstacle is None:
        return Finding(Status.OK, "works; browser.sandbox may be Require", numbers=numbers)
    mend = mends.sandbox(host, obstacle, switch)
    if mode == "Require":
        return Finding(
            Status.FAILED,
            f"does not work: {obstacle}; browser.sandbox is Require, so no run starts",
            f"{mend}; or set browser.sandbox to Prefer",
            numbers,
        )
    return Finding(
        Status.WARNING,
        f"not used: {obstacle}. browser.sandbox Prefer runs without it, Require would not run",
        mend,
        numbers,
    )


@contextlib.asynccontextmanager
async def ending_the_browser(setting: Setting) -> AsyncIterator[None]:
    """End the shared browser, if there is one, when the block is left."""
    try:
        yield
    finally:
        if setting.process is not None:
            process, setting.process = setting.process, None
            await process.stop()
