"""The operating system's side of a browser: started with its pipe on descriptors 3 and 4, ended, reaped.

Nothing here waits for the event loop; :mod:`~webgym_workers.browser.chromium` does.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from webgym.child_exit import wait_for_exit
from webgym.errors import BrowserError
from webgym_workers.browser.flags import chromium_flags
from webgym_workers.browser.options import BrowserOptions
from webgym_workers.browser.profile import Profile

__all__ = ["STOP_SECONDS", "Started", "StderrTail", "finish", "kill", "start"]

STOP_SECONDS = 3.0
"""How long a browser may take to leave when asked to, and to be gone when killed."""
STDERR_BYTES = 16384

# Runs in a fresh interpreter (8 ms) between us and Chromium. A preexec_fn would do the same in a fork of
# this process, which is unsafe beside threads, and descriptors 3 and 4 are often taken here (the event
# loop's own).
_STARTER = """
import fcntl, os, sys
parent, read, write = map(int, sys.argv[1:4])
cpus = [int(cpu) for cpu in sys.argv[4].split(",") if cpu]
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
    if os.getppid() != parent:
        sys.exit(1)
    if cpus:
        os.sched_setaffinity(0, cpus)
read, write = fcntl.fcntl(read, fcntl.F_DUPFD, 10), fcntl.fcntl(write, fcntl.F_DUPFD, 10)
os.dup2(read, 3)
os.dup2(write, 4)
os.close(read)
os.close(write)
os.closerange(5, 256)
try:
    os.execv(sys.argv[5], sys.argv[5:])
except OSError as error:
    sys.exit(f"cannot run {sys.argv[5]}: {error.strerror}")
"""


class Started(NamedTuple):
    """A browser that was started, with our ends of its pipes."""

    process: subprocess.Popen[bytes]
    read: int
    write: int


def start(
    executable: Path,
    options: BrowserOptions,
    profile: Profile,
    *,
    sandbox: bool,
    display: Mapping[str, str] | None = None,
) -> Started:
    """Start the program, in a process group and session of its own.

    Args:
        executable: The program.
        options: How it is started.
        profile: Its folder.
        sandbox: Whether it uses its sandbox.
        display: Environment that leads to its virtual display; None is no such display.

    Raises:
        BrowserError: It cannot be started.
    """
    flags = chromium_flags(
        headless=options.headless and display is None,
        sandbox=sandbox,
        width=options.width,
        height=options.height,
        display_scale=None if display is None else options.device_scale_factor,
        extra=[
            f"--user-data-dir={profile.path}",
            *([f"--lang={options.locale}"] if options.locale else []),
            *(_through(options.proxy, options.proxy_bypass) if options.proxy else []),
            *options.extra_flags,
        ],
    )
    cpus = ",".join(map(str, options.cpu_affinity))
    child_read, our_write = os.pipe()
    our_read, child_write = os.pipe()
    starter = [sys.executable, "-I", "-S", "-c", _STARTER]
    try:
        process = subprocess.Popen(
            [*starter, str(os.getpid()), str(child_read), str(child_write), cpus, str(executable), *flags],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(child_read, child_write),
            start_new_session=True,
            env=_environment(profile, options) | dict(display or {}),
        )
    except OSError as error:
        os.close(our_read)
        os.close(our_write)
        raise BrowserError(f"cannot start {executable}: {error.strerror}") from error
    finally:
        os.close(child_read)
        os.close(child_write)
    _live[process.pid] = os.getpid(), process, profile
    return Started(process, our_read, our_write)


def _through(proxy: str, bypass: Sequence[str]) -> list[str]:
    return [
        f"--proxy-server={proxy}",
        f"--proxy-bypass-list={';'.join(['<-loopback>', *bypass])}",
        # WebRTC would send UDP past the proxy. The flag's name differs between versions.
        "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
        "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    ]


def _environment(profile: Profile, options: BrowserOptions) -> dict[str, str]:
    """What Chromium sees of our environment: none of our secrets, and folders that go with the profile."""
    kept = (
        "PATH",
        "LANG",
        "LC_ALL",
        "DISPLAY",
        "XAUTHORITY",
        "LD_LIBRARY_PATH",
        "FONTCONFIG_PATH",
        "FONTCONFIG_FILE",
    )
    env = {name: os.environ[name] for name in kept if name in os.environ}
    env["HOME"] = env["TMPDIR"] = env["XDG_RUNTIME_DIR"] = str(profile.path)
    env["XDG_CONFIG_HOME"] = env["XDG_CACHE_HOME"] = str(profile.path)
    if options.timezone:
        env["TZ"] = options.timezone
    if options.locale:
        env["LANGUAGE"] = options.locale
    return env


_live: dict[int, tuple[int, subprocess.Popen[bytes], Profile]] = {}
"""Browsers that were not stopped, by process group: the process that started them, theirs, the profile."""


@atexit.register
def _end_what_is_left() -> None:
    # A forked child holds a copy of the list; the browsers are its parent's.
    for owner, process, profile in list(_live.values()):
        if owner == os.getpid():
            finish(process, profile, 0.0)


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the browser's whole process group."""
    # Only while the leader is not reaped is the group's number sure to be ours.
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def finish(process: subprocess.Popen[bytes], profile: Profile, patience: float) -> None:
    """Wait ``patience`` seconds for the browser to leave, kill what is left of it, reap it, clean up."""
    wait_for_exit(process, patience)
    kill(process)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    _live.pop(process.pid, None)
    profile.remove()


class StderrTail(asyncio.Protocol):
    """Keeps the last that Chromium wrote, so that a failed start can say why, and its pipe never fills."""

    def __init__(self) -> None:
        self._tail = b""
        self._ended = False
        self._news = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        """Keep the end of the stream."""
        self._tail = (self._tail + data)[-STDERR_BYTES:]
        self._news.set()

    def connection_lost(self, error: Exception | None) -> None:
        """Let nobody wait for more."""
        self._ended = True
        self._news.set()

    async def said(self, pattern: bytes) -> re.Match[bytes]:
        """What matches a pattern, as soon as Chromium has written it.

        Raises:
            BrowserError: It has ended without it.
        """
        while (found := re.search(pattern, self._tail)) is None:
            if self._ended:
                raise BrowserError(f"the browser has ended: {self.cause() or 'it said nothing'}")
            self._news.clear()
            await self._news.wait()
        return found

    def cause(self) -> str:
        """The line that best says why Chromium did not start; empty if it said nothing."""
        lines = [line for line in self._tail.decode("utf-8", "replace").splitlines() if line.strip()]
        for pattern in (
            r"error while loading shared libraries",
            r"cannot run",
            r"FATAL|No usable sandbox",
            r"ERROR",
        ):
            for line in lines:
                if re.search(pattern, line):
                    return _plain(line)
        return _plain(lines[-1]) if lines else ""


def _plain(line: str) -> str:
    text = re.sub(r"^\[[^\]]*\]\s*", "", line)[:300]
    if "error while loading shared libraries" in text:
        text += " (`playwright install-deps chromium` or `apt-get install chromium` brings what it needs)"
    return text
