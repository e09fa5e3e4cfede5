"""One Chromium process: started with its debugging pipe on descriptors 3 and 4, ended without a trace.

Nothing of a browser outlives us, however we end. Chromium leaves when its pipe closes; on Linux the kernel kills it
when we die (``PR_SET_PDEATHSIG``), which also ends one that hangs; :meth:`ChromiumProcess.stop` kills its process
group. Its profile folder is removed by :meth:`~ChromiumProcess.stop`, at interpreter exit, or, when we were killed, by
the next launch on this machine.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from webgym.errors import BrowserError
from webgym_workers.browser.cdp import CDPClient, open_pipe
from webgym_workers.browser.faults import BrowserFault, BrowserGone
from webgym_workers.browser.find import find_chromium
from webgym_workers.browser.flags import chromium_flags
from webgym_workers.browser.sandbox import sandbox_obstacle

__all__ = ["BrowserOptions", "ChromiumProcess", "SandboxMode"]

log = logging.getLogger(__name__)

SandboxMode = Literal["Require", "Prefer", "Disabled"]

PROFILE_PREFIX = "webgym-chromium-"
LAUNCH_SECONDS = 30.0
"""Deadline of a start; 0.2 s is usual, but fifty browsers on two cores start slowly."""
STOP_SECONDS = 3.0

# Runs in a fresh interpreter (8 ms) between us and Chromium. A preexec_fn would do the same in a fork of this process,
# which is unsafe beside threads, and descriptors 3 and 4 are often taken here (the event loop's own).
_STARTER = """
import fcntl, os, sys
parent, read, write = map(int, sys.argv[1:4])
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
    if os.getppid() != parent:
        sys.exit(1)
read, write = fcntl.fcntl(read, fcntl.F_DUPFD, 10), fcntl.fcntl(write, fcntl.F_DUPFD, 10)
os.dup2(read, 3)
os.dup2(write, 4)
os.close(read)
os.close(write)
os.closerange(5, 256)
try:
    os.execv(sys.argv[4], sys.argv[4:])
except OSError as error:
    sys.exit(f"cannot run {sys.argv[4]}: {error.strerror}")
"""


@dataclass(frozen=True)
class BrowserOptions:
    """How browsers are started. Mirrors the manifest's ``browser`` part.

    Attributes:
        executable: The program; None looks for one (:func:`~webgym_workers.browser.find.find_chromium`).
        sandbox: ``Require`` fails without Chromium's sandbox, ``Prefer`` goes on without it, ``Disabled`` never
            uses it.
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


class ChromiumProcess:
    """A running Chromium; made by :meth:`launch`.

    Attributes:
        client: The DevTools connection.
        pid: Process id of the browser process, also its process group.
        sandboxed: Whether Chromium's sandbox is on.
        sandbox_obstacle: Why it is not, or None.
        version: Such as ``Chrome/156.0.8078.114``.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], client: CDPClient, profile: Path, stderr: _StderrTail
    ) -> None:
        self.client = client
        self.pid = process.pid
        self.sandboxed = False
        self.sandbox_obstacle: str | None = None
        self.version = ""
        self._process = process
        self._profile = profile
        self._stderr = stderr

    @classmethod
    async def launch(cls, options: BrowserOptions, *, timeout: float = LAUNCH_SECONDS) -> ChromiumProcess:
        """Start a browser and wait until it answers.

        Raises:
            BrowserError: There is no Chromium, it cannot start here (the message has its own last line on that), or
                ``sandbox`` is ``Require`` and cannot be had.
        """
        loop = asyncio.get_running_loop()
        executable = await loop.run_in_executor(None, find_chromium, options.executable)
        obstacle = "browser.sandbox is Disabled"
        if options.sandbox != "Disabled":
            found = _failed_sandbox.get(executable) or await loop.run_in_executor(None, sandbox_obstacle, executable)
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
                    f"browser.sandbox is Require, but Chromium's sandbox cannot work here: {found}; run as another user "
                    "with user namespaces allowed, or set browser.sandbox to Prefer"
                )
            _failed_sandbox[executable] = obstacle = found
        return await cls._start(executable, options, obstacle, timeout)

    @classmethod
    async def _start(
        cls, executable: Path, options: BrowserOptions, obstacle: str | None, timeout: float
    ) -> ChromiumProcess:
        try:
            profile = _make_profile()
        except OSError as error:
            raise BrowserError(
                f"cannot make a profile folder in {tempfile.gettempdir()}: {error.strerror}; set TMPDIR to a writable folder"
            ) from error
        flags = chromium_flags(
            headless=options.headless,
            sandbox=obstacle is None,
            width=options.width,
            height=options.height,
            extra=[
                f"--user-data-dir={profile}",
                *([f"--lang={options.locale}"] if options.locale else []),
                *([f"--proxy-server={options.proxy}", "--proxy-bypass-list=<-loopback>"] if options.proxy else []),
                *options.extra_flags,
            ],
        )
        child_read, our_write = os.pipe()
        our_read, child_write = os.pipe()
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _STARTER]
                + [str(os.getpid()), str(child_read), str(child_write), str(executable), *flags],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(child_read, child_write),
                start_new_session=True,
                env=_environment(profile, options),
            )
        except OSError as error:
            for fd in (our_read, our_write):
                os.close(fd)
            shutil.rmtree(profile, ignore_errors=True)
            raise BrowserError(f"cannot start {executable}: {error.strerror}") from error
        finally:
            os.close(child_read)
            os.close(child_write)
        _live[process.pid] = profile
        stderr = _StderrTail(process)
        client = await open_pipe(our_read, our_write)
        browser = cls(process, client, profile, stderr)
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
        return self.client.gone is None and self._process.poll() is None

    @property
    def profile(self) -> Path:
        """The temporary profile folder."""
        return self._profile

    def resident_bytes(self) -> int:
        """Memory of the whole process tree: private pages of each process, and the largest shared part once."""
        total, shared = 0, 0
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(self.pid)
            for process in (root, *root.children(recursive=True)):
                with contextlib.suppress(psutil.Error):
                    memory = process.memory_info()
                    common = int(getattr(memory, "shared", 0))
                    total += int(memory.rss) - common
                    shared = max(shared, common)
        return total + shared

    def kill(self) -> None:
        """SIGKILL to the whole process group, at once; :meth:`stop` is still needed for the rest."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    async def stop(self, *, graceful: bool = True) -> None:
        """End the browser, reap it, remove its profile. Safe to call twice; bounded whatever state it is in."""
        if graceful and self.alive:
            # The answer may lose the race against the closing pipe; either way it is on its way out.
            with contextlib.suppress(BrowserFault):
                await self.client.browser.call("Browser.close", timeout=STOP_SECONDS)
        self.client.close()
        loop = asyncio.get_running_loop()
        await asyncio.shield(loop.run_in_executor(None, self._finish, STOP_SECONDS if graceful else 0.0))

    def _finish(self, patience: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            if patience:
                self._process.wait(patience)
        # The leader is not reaped yet or its group is not empty: the number is still ours to signal.
        self.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        self._stderr.join()
        _live.pop(self.pid, None)
        _remove_profile(self._profile)


class _StderrTail(threading.Thread):
    """Keeps the last lines that Chromium wrote, so that a failed start can say why, and its pipe never fills."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        super().__init__(name=f"chromium-stderr-{process.pid}", daemon=True)
        self._process = process
        self._lines: deque[str] = deque(maxlen=50)
        self.start()

    def run(self) -> None:
        """Read until end-of-file."""
        stream = self._process.stderr
        assert stream is not None
        with contextlib.suppress(OSError, ValueError):
            while line := stream.readline(4096):
                self._lines.append(line.decode("utf-8", "replace").rstrip())

    def join(self, timeout: float | None = 1.0) -> None:
        """Wait for end-of-file, then drop the pipe."""
        super().join(timeout)
        if self._process.stderr is not None and not self.is_alive():
            self._process.stderr.close()

    def cause(self) -> str:
        """The line that best says why Chromium did not start, without its timestamp; empty if it said nothing."""
        lines = [line for line in self._lines if line.strip()]
        for pattern in (r"error while loading shared libraries", r"cannot run", r"FATAL|No usable sandbox", r"ERROR"):
            for line in lines:
                if re.search(pattern, line):
                    return _plain(line)
        return _plain(lines[-1]) if lines else ""


def _plain(line: str) -> str:
    text = re.sub(r"^\[[^\]]*\]\s*", "", line)[:300]
    if "error while loading shared libraries" in text:
        text += " (`playwright install-deps chromium` or `apt-get install chromium` brings what it needs)"
    return text


_failed_sandbox: dict[Path, str] = {}
_live: dict[int, Path] = {}
"""Browsers of this process that were not stopped: process group and profile."""


@atexit.register
def _end_what_is_left() -> None:
    for pid, profile in list(_live.items()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
        _remove_profile(profile)


def _make_profile() -> Path:
    """A fresh profile folder that names its owner; those whose owner is gone are removed on the way."""
    root = Path(tempfile.gettempdir())
    for old in root.glob(f"{PROFILE_PREFIX}*"):
        match = re.match(rf"{PROFILE_PREFIX}(\d+)-", old.name)
        if match and not psutil.pid_exists(int(match[1])):
            shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{PROFILE_PREFIX}{os.getpid()}-"))


def _remove_profile(profile: Path) -> None:
    # A dying child process may still write into it: a second look a moment later catches that.
    for _ in range(3):
        shutil.rmtree(profile, ignore_errors=True)
        if not profile.exists():
            return


def _environment(profile: Path, options: BrowserOptions) -> dict[str, str]:
    """What Chromium sees of our environment: not our credentials, and a TMPDIR that goes away with the profile."""
    kept = ("PATH", "LANG", "LC_ALL", "DISPLAY", "XAUTHORITY", "LD_LIBRARY_PATH", "FONTCONFIG_PATH", "FONTCONFIG_FILE")
    env = {name: os.environ[name] for name in kept if name in os.environ}
    env["HOME"] = env["TMPDIR"] = env["XDG_RUNTIME_DIR"] = str(profile)
    env["XDG_CONFIG_HOME"] = env["XDG_CACHE_HOME"] = str(profile)
    if options.timezone:
        env["TZ"] = options.timezone
    if options.locale:
        env["LANGUAGE"] = options.locale
    return env
