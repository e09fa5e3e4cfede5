"""A virtual display: one Xvfb whose screen lies in shared memory, and our connection to it.

One for each browser and not one for several: a page is only drawn where its window is in front, a grab holds up nobody
else, and whatever kills or stops a display costs one browser. It is 40 MB of resident memory, four fifths of them
shared with the other displays.

Nothing of a display outlives us. The kernel kills it when we die; the file with its screen loses its name as soon as
both sides have mapped it; what a kill in between leaves behind is swept at the next start.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import secrets
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import IO

from webgym.deathsig import die_with_parent
from webgym.errors import BrowserError
from webgym_workers.browser.faults import DisplayGone
from webgym_workers.frames.framebuffer import Framebuffer
from webgym_workers.frames.x11 import SOCKETS, DamageEvent, XConnection
from webgym_workers.last_work import finish_aside
from webgym_workers.locked_folder import LockedFolder, sweep
from webgym_workers.sharedmem import memory_folder

__all__ = ["Display", "display_obstacle"]

START_SECONDS = 20.0
"""Deadline of a start; 0.1 s is usual."""
STOP_SECONDS = 2.0
ANSWER_SECONDS = 2.0
"""Deadline of an answer of the display; it takes some 50 us, and a display that has none hangs."""

_STILL_TRIES = 10
PREFIX = "webgym-display-"
"""Of the folders that screens lie in until they are mapped."""
_MOST_PIXELS = 32767
_MEND = "apt-get install xvfb, or set browser.frames to Screenshot"


def display_obstacle() -> str | None:
    """Why there can be no virtual display on this machine, or None."""
    if sys.platform != "linux":
        # XQuartz brings an Xvfb to macOS, but Chromium does not draw by X11 there.
        return "browsers draw on virtual displays on Linux only"
    return None if shutil.which("Xvfb") else "no Xvfb on this machine"


class Display:
    """A running Xvfb; made by :meth:`start`.

    Attributes:
        number: N of ``:N``.
        framebuffer: Its screen.
        serial: Counts what is drawn inside the watched rectangle, as of the last :meth:`sync`. Between :meth:`still`
            and the next :meth:`watch` two equal values say that nothing was drawn in between.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        number: int,
        framebuffer: Framebuffer,
        connection: XConnection,
        auth: Path,
    ) -> None:
        self.number = number
        self.framebuffer = framebuffer
        self.serial = 0
        self._process = process
        self._connection = connection
        self._auth = auth
        self._region = (0, 0, framebuffer.layout.width, framebuffer.layout.height)
        self._drawn = asyncio.Event()
        connection.on_damage = self._on_damage
        _live[process.pid] = os.getpid(), self

    @classmethod
    async def start(
        cls, width: int, height: int, auth: Path, *, cpus: Collection[int] = (), folder: Path | None = None
    ) -> Display:
        """Start a display under a number that is free.

        Args:
            width: Of its screen, pixels.
            height: Of its screen, pixels.
            auth: File to write the display's secret to; without it nobody can connect.
            cpus: Cores it may run on; empty is all.
            folder: Where its screen lies until it is mapped; by default shared memory.

        Raises:
            BrowserError: There is no Xvfb, no room for the screen, or it cannot start here.
        """
        obstacle = display_obstacle()
        if obstacle:
            raise BrowserError(f"{obstacle}: {_MEND}")
        place = folder or memory_folder()
        _check_room(width, height, place)
        sweep(place, PREFIX)
        try:
            private = LockedFolder(place, PREFIX)
        except OSError as error:
            raise BrowserError(f"cannot make a folder in {place} for a display: {error.strerror}") from error
        cookie = secrets.token_bytes(16)
        number_read, number_write = os.pipe()
        os.set_blocking(number_read, False)
        complaints = tempfile.TemporaryFile()  # noqa: SIM115  closed below; Xvfb keeps its own descriptor
        process: subprocess.Popen[bytes] | None = None
        try:
            _write_authority(auth, cookie)
            process = _spawn(width, height, private.path, auth, number_write, complaints)
            os.close(number_write)
            number_write = -1
            if cpus and hasattr(os, "sched_setaffinity"):
                os.sched_setaffinity(process.pid, cpus)
            number = await _number(number_read, process, START_SECONDS)
            framebuffer = Framebuffer(private.path / "Xvfb_screen0")
            connection = await XConnection.open(number, cookie, START_SECONDS)
        except (OSError, ProcessLookupError, DisplayGone) as error:
            # Waits for the process, so that its last words are there.
            _end(process, 0.0)
            raise BrowserError(f"cannot start Xvfb: {_last_words(complaints) or error}") from error
        except BaseException:
            _end(process, 0.0)
            raise
        finally:
            # From here on the screen has no name; or it failed, and nothing may stay.
            private.remove()
            complaints.close()
            os.close(number_read)
            if number_write >= 0:
                os.close(number_write)
        return cls(process, number, framebuffer, connection, auth)

    @property
    def environment(self) -> dict[str, str]:
        """What a program needs in its environment to show on this display."""
        return {"DISPLAY": f":{self.number}", "XAUTHORITY": str(self._auth)}

    @property
    def pid(self) -> int:
        """Process id of the Xvfb."""
        return self._process.pid

    @property
    def gone(self) -> DisplayGone | None:
        """Why it shows nothing any more, or None."""
        return self._connection.gone

    def watch(self, x: int, y: int, width: int, height: int) -> None:
        """Count from now on what is drawn inside a rectangle of the screen; takes effect with :meth:`sync`."""
        self._region = (x, y, x + width, y + height)
        self._drawn.clear()
        self._connection.clear_damage()

    async def still(self) -> int | None:
        """Count anew, from a moment when nothing is being drawn; returns the serial, or None when there is none soon.

        Raises:
            DisplayGone: It ended, or does not answer.
        """
        for _ in range(_STILL_TRIES):
            # Damage is reported when its bounding box grows. What is drawn after the server forgot the damage and
            # before it answers would hide what is drawn in the same place later: then it has to forget again.
            self._connection.clear_damage()
            before = self.serial
            await self.sync()
            if self.serial == before:
                return before
        return None

    async def sync(self) -> None:
        """Wait until the server has caught up: all that it drew before is in the framebuffer and in ``serial``.

        Raises:
            DisplayGone: It ended, or does not answer.
        """
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._connection.sync()
        except TimeoutError:
            raise DisplayGone(f"the display :{self.number} does not answer") from None

    async def drawn(self, timeout: float) -> bool:
        """Wait until something is drawn inside the watched rectangle; False if nothing was in ``timeout`` seconds.

        Raises:
            DisplayGone: It ended.
        """
        if self._connection.gone is not None:
            raise self._connection.gone
        try:
            async with asyncio.timeout(timeout):
                await self._drawn.wait()
        except TimeoutError:
            return False
        return True

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Let the server draw nothing inside the block."""
        self._connection.grab()
        try:
            await self.sync()
            yield
        finally:
            # A display that is gone has let go already.
            with contextlib.suppress(DisplayGone):
                self._connection.ungrab()

    def kill(self) -> None:
        """End it at once; :meth:`stop` is still needed for the rest."""
        _kill(self._process)

    def close(self) -> None:
        """End it and reap it, here and now."""
        self._connection.close()
        self.finish(0.0)

    async def stop(self) -> None:
        """End it and reap it, without holding up the loop; safe to call twice."""
        self._connection.close()
        await finish_aside(self.finish, STOP_SECONDS)

    def finish(self, patience: float) -> None:
        """Ask it to end, kill it after ``patience`` seconds, reap it, and remove what it leaves when killed."""
        _end(self._process, patience)
        _live.pop(self._process.pid, None)
        with contextlib.suppress(OSError):
            lock = Path(f"/tmp/.X{self.number}-lock")
            # The number may be another server's by now.
            if int(lock.read_text()) == self._process.pid:
                lock.unlink()
                (SOCKETS / f"X{self.number}").unlink()

    def _on_damage(self, event: DamageEvent) -> None:
        x0, y0, x1, y1 = self._region
        if event.x < x1 and event.x + event.width > x0 and event.y < y1 and event.y + event.height > y0:
            self.serial += 1
            self._drawn.set()


_live: dict[int, tuple[int, Display]] = {}
"""Displays that were not stopped, by process id, with the process that started them."""


@atexit.register
def _end_what_is_left() -> None:
    # A forked child holds a copy of the list; the displays are its parent's.
    for owner, display in list(_live.values()):
        if owner == os.getpid():
            display.finish(STOP_SECONDS)


def _check_room(width: int, height: int, place: Path) -> None:
    if max(width, height) > _MOST_PIXELS:
        raise BrowserError(
            f"a display of {width}x{height} pixels is too large (at most {_MOST_PIXELS} each way): "
            "lower browser.width, height or deviceScaleFactor"
        )
    need = width * height * 4 + 8192
    status = os.statvfs(place)
    free = status.f_bavail * status.f_frsize
    if need > free:
        raise BrowserError(
            f"a display of {width}x{height} pixels needs {need / 2**20:.1f} MiB in {place}, which has "
            f"{free / 2**20:.1f} MiB free: give the container a larger memory volume, or run fewer or smaller browsers"
        )


def _write_authority(path: Path, cookie: bytes) -> None:
    """An Xauthority file with one entry that fits every display: family, address, number, name, data."""
    wild = 65535
    entry = struct.pack(">H", wild)
    for part in (b"", b"", b"MIT-MAGIC-COOKIE-1", cookie):
        entry += struct.pack(">H", len(part)) + part
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(entry)


def _spawn(
    width: int, height: int, folder: Path, auth: Path, number_fd: int, complaints: IO[bytes]
) -> subprocess.Popen[bytes]:
    # From the loop's own thread, which lives as long as displays do: the kernel kills the child when the thread that
    # forked it ends.
    return subprocess.Popen(
        [
            "Xvfb", "-displayfd", str(number_fd), "-screen", "0", f"{width}x{height}x24",
            "-fbdir", str(folder), "-auth", str(auth), "-nolisten", "tcp", "-noreset", "-nocursor",
            # No screen saver: it would make the screen black after ten minutes without a key.
            "-s", "0", "-dpms",
        ],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=complaints,
        pass_fds=(number_fd,), start_new_session=True, cwd="/", preexec_fn=die_with_parent(os.getpid()),
    )  # fmt: skip


async def _number(fd: int, process: subprocess.Popen[bytes], timeout: float) -> int:
    """The number that the server chose, which it writes once it takes connections."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(fd, readable.set)
    text = b""
    try:
        async with asyncio.timeout(timeout):
            while not text.endswith(b"\n"):
                await readable.wait()
                readable.clear()
                with contextlib.suppress(BlockingIOError):
                    more = os.read(fd, 64)
                    if not more:
                        raise DisplayGone("it ended at once")
                    text += more
    except TimeoutError:
        raise DisplayGone(f"it was not ready in {timeout:g} s") from None
    finally:
        loop.remove_reader(fd)
    return int(text)


def _last_words(complaints: IO[bytes]) -> str:
    complaints.seek(0)
    lines = [line.strip() for line in complaints.read().decode("utf-8", "replace").splitlines()]
    # What the keyboard compiler says is never the reason.
    lines = [
        line for line in lines if line and not line.startswith((">", "The XKEYBOARD", "Errors from xkbcomp"))
    ]
    return " ".join(lines)[-300:]


def _kill(process: subprocess.Popen[bytes]) -> None:
    # Only while it is not reaped is the group's number sure to be its.
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def _end(process: subprocess.Popen[bytes] | None, patience: float) -> None:
    if process is None:
        return
    deadline = time.monotonic() + patience
    if process.poll() is None and patience:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
    _kill(process)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
