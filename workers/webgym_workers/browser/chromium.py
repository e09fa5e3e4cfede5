"""One Chromium process: started with its debugging pipe on descriptors 3 and 4, ended without a trace.

Nothing of a browser outlives us, however we end. Chromium leaves when its pipe closes; on Linux the kernel
kills it when we die (``PR_SET_PDEATHSIG``), which also ends one that hangs; :meth:`ChromiumProcess.stop`
kills its process group. Its profile folder is removed by :meth:`~ChromiumProcess.stop`, at interpreter exit,
or, when we were killed, by the next launch on this machine.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from webgym.errors import BrowserError
from webgym_workers.browser.cdp import CDPClient, open_pipe
from webgym_workers.browser.faults import BrowserFault, BrowserGone
from webgym_workers.browser.find import find_chromium
from webgym_workers.browser.flags import chromium_flags
from webgym_workers.browser.profile import Profile
from webgym_workers.browser.sandbox import sandbox_obstacle

__all__ = ["BrowserOptions", "ChromiumProcess", "SandboxMode"]

log = logging.getLogger(__name__)

SandboxMode = Literal["Require", "Prefer", "Disabled"]

LAUNCH_SECONDS = 30.0
"""Deadline of a start; 0.2 s is usual, but fifty browsers on two cores start slowly."""
STOP_SECONDS = 3.0
STDERR_BYTES = 16384
TREE_SECONDS = 5.0
"""How long a list of a browser's processes is good for."""

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


@dataclass(frozen=True)
class BrowserOptions:
    """How browsers are started. Mirrors the manifest's ``browser`` part.

    Attributes:
        executable: The program; None looks for one (:func:`~webgym_workers.browser.find.find_chromium`).
        sandbox: ``Require`` fails without Chromium's sandbox, ``Prefer`` goes on without it, ``Disabled``
            never uses it.
        headless: No window.
        width: Width of a page, CSS pixels.
        height: Height of a page, CSS pixels.
        device_scale_factor: Device pixels per CSS pixel.
        locale: Language of pages (``en-US``).
        timezone: Time zone of pages (``Europe/Berlin``); None is the machine's.
        action_timeout: Deadline of a command, seconds.
        navigation_timeout: Deadline of a page load, seconds.
        extra_flags: Further command-line flags.
        proxy: Address of the proxy that all traffic goes through (``http://127.0.0.1:3128``).
        cpu_affinity: Cores that the browser may run on (Linux); empty is all.
    """

    executable: str | None = None
    sandbox: SandboxMode = "Prefer"
    headless: bool = True
    width: int = 800
    height: int = 600
    device_scale_factor: float = 1.0
    locale: str | None = None
    timezone: str | None = None
    action_timeout: float = 2.0
    navigation_timeout: float = 15.0
    extra_flags: tuple[str, ...] = ()
    proxy: str | None = None
    cpu_affinity: tuple[int, ...] = ()


class ChromiumProcess:
    """A running Chromium; made by :meth:`launch`.

    Attributes:
        client: The DevTools connection.
        pid: Process id of the browser process, also its process group.
        sandboxed: Whether Chromium's sandbox is on.
        sandbox_obstacle: Why it is not, or None.
        version: Such as ``Chrome/156.0.8078.114``.
    """

    def __init__(self, process: subprocess.Popen[bytes], client: CDPClient, profile: Profile) -> None:
        self.client = client
        self.pid = process.pid
        self.sandboxed = False
        self.sandbox_obstacle: str | None = None
        self.version = ""
        self._process = process
        self._profile = profile
        self._tree: list[psutil.Process] = []
        self._tree_until = 0.0

    @classmethod
    async def launch(cls, options: BrowserOptions, *, timeout: float = LAUNCH_SECONDS) -> ChromiumProcess:
        """Start a browser and wait until it answers.

        Raises:
            BrowserError: There is no Chromium, it cannot start here (the message has its own last line on
                that), or ``sandbox`` is ``Require`` and cannot be had.
        """
        loop = asyncio.get_running_loop()
        executable = await loop.run_in_executor(None, find_chromium, options.executable)
        obstacle = "browser.sandbox is Disabled"
        if options.sandbox != "Disabled":
            found = _failed_sandbox.get(executable) or await loop.run_in_executor(
                None, sandbox_obstacle, executable
            )
            if found is None:
                try:
                    return await cls._start(executable, options, None, timeout)
                except BrowserError as error:
                    if "sandbox" not in str(error).lower():
                        raise
                    # The probe saw nothing in its way, Chromium did.
                    found = str(error)
            if options.sandbox == "Require":
                raise BrowserError(
                    f"browser.sandbox is Require, but Chromium's sandbox cannot work here: {found}; "
                    "run as another user with user namespaces allowed, or set browser.sandbox to Prefer"
                )
            _failed_sandbox[executable] = obstacle = found
        return await cls._start(executable, options, obstacle, timeout)

    @classmethod
    async def _start(
        cls, executable: Path, options: BrowserOptions, obstacle: str | None, timeout: float
    ) -> ChromiumProcess:
        profile = Profile()
        try:
            process, our_read, our_write = _spawn(executable, options, profile, sandbox=obstacle is None)
        except BaseException:
            profile.remove()
            raise
        _live[process.pid] = process, profile
        assert process.stderr is not None
        client = await open_pipe(our_read, our_write)
        _, stderr = await asyncio.get_running_loop().connect_read_pipe(_StderrTail, process.stderr)
        browser = cls(process, client, profile)
        browser.sandboxed, browser.sandbox_obstacle = obstacle is None, obstacle
        try:
            answer = await client.browser.call("Browser.getVersion", timeout=timeout)
            browser.version = str(answer.get("product", ""))
            await client.browser.call("Target.setDiscoverTargets", {"discover": True}, timeout=timeout)
        except BrowserFault as error:
            await browser.stop(graceful=False)
            why = stderr.cause() or (
                "it ended at once" if isinstance(error, BrowserGone) else f"no answer in {timeout:g} s"
            )
            raise BrowserError(f"cannot start {executable}: {why}") from error
        except BaseException:
            await asyncio.shield(browser.stop(graceful=False))
            raise
        return browser

    @property
    def alive(self) -> bool:
        """Whether the process runs and the pipe stands."""
        return self.client.gone is None and not self._exited

    @property
    def profile(self) -> Path:
        """The temporary profile folder."""
        return self._profile.path

    def resident_bytes(self) -> int:
        """Memory of the process tree: private pages of each process, and the largest shared part once."""
        total, shared = 0, 0
        for process in self._processes():
            with contextlib.suppress(psutil.Error):
                memory = process.memory_info()
                common = int(getattr(memory, "shared", 0))
                total += int(memory.rss) - common
                shared = max(shared, common)
        return total + shared

    def _processes(self) -> list[psutil.Process]:
        # Finding children reads the table of all processes of the machine; a browser's seldom change.
        now = time.monotonic()
        if now >= self._tree_until:
            self._tree, self._tree_until = [], now + TREE_SECONDS
            with contextlib.suppress(psutil.Error):
                root = psutil.Process(self.pid)
                self._tree = [root, *root.children(recursive=True)]
        return self._tree

    def kill(self) -> None:
        """SIGKILL to the whole process group, at once; :meth:`stop` is still needed for the rest."""
        if self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    async def stop(self, *, graceful: bool = True) -> None:
        """End the browser, reap it, remove its profile. Safe to call twice; bounded in any state."""
        if graceful and self.alive:
            # The answer may lose the race against the closing pipe; either way it is on its way out.
            with contextlib.suppress(BrowserFault):
                await self.client.browser.call("Browser.close", timeout=STOP_SECONDS)
        self.client.close()
        loop = asyncio.get_running_loop()
        await asyncio.shield(loop.run_in_executor(None, self._finish, STOP_SECONDS if graceful else 0.0))

    def _finish(self, patience: float) -> None:
        deadline = time.monotonic() + patience
        while not self._exited and time.monotonic() < deadline:
            time.sleep(0.005)
        # The leader is not reaped before this, so the group's number cannot belong to anybody else yet.
        if self._process.returncode is None:
            self.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
        _live.pop(self.pid, None)
        self._profile.remove()

    @property
    def _exited(self) -> bool:
        """Whether the process has ended; leaves it to :meth:`_finish` to be reaped."""
        if self._process.returncode is not None:
            return True
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True


class _StderrTail(asyncio.Protocol):
    """Keeps the last that Chromium wrote, so that a failed start can say why, and its pipe never fills."""

    def __init__(self) -> None:
        self._tail = b""
        self.transport: asyncio.ReadTransport | None = None

    def data_received(self, data: bytes) -> None:
        """Keep the end of the stream."""
        self._tail = (self._tail + data)[-STDERR_BYTES:]

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


def _spawn(
    executable: Path, options: BrowserOptions, profile: Profile, *, sandbox: bool
) -> tuple[subprocess.Popen[bytes], int, int]:
    """Start the program; returns it with our ends of its pipes: the one to read, the one to write."""
    flags = chromium_flags(
        headless=options.headless,
        sandbox=sandbox,
        width=options.width,
        height=options.height,
        extra=[
            f"--user-data-dir={profile.path}",
            *([f"--lang={options.locale}"] if options.locale else []),
            *(
                [f"--proxy-server={options.proxy}", "--proxy-bypass-list=<-loopback>"]
                if options.proxy
                else []
            ),
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
            env=_environment(profile, options),
        )
    except OSError as error:
        os.close(our_read)
        os.close(our_write)
        raise BrowserError(f"cannot start {executable}: {error.strerror}") from error
    finally:
        os.close(child_read)
        os.close(child_write)
    return process, our_read, our_write


def _plain(line: str) -> str:
    text = re.sub(r"^\[[^\]]*\]\s*", "", line)[:300]
    if "error while loading shared libraries" in text:
        text += " (`playwright install-deps chromium` or `apt-get install chromium` brings what it needs)"
    return text


_failed_sandbox: dict[Path, str] = {}
_live: dict[int, tuple[subprocess.Popen[bytes], Profile]] = {}
"""Browsers of this process that were not stopped, by process group."""


@atexit.register
def _end_what_is_left() -> None:
    for pid, (process, profile) in list(_live.items()):
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
            process.wait(STOP_SECONDS)
        profile.remove()


def _environment(profile: Profile, options: BrowserOptions) -> dict[str, str]:
    """What Chromium sees of our environment: not our credentials, and a TMPDIR that goes away with the
    profile.
    """
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
