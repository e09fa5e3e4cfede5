"""A run of the command line and a server of its own, with ways to hurt them: for ``webgym bench faults``."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from webgym.broker import BrokerConfig, connect
from webgym.deathsig import die_with_parent
from webgym.embedded import find_server
from webgym.errors import BrokerError, RunError
from webgym.keys import Keys
from webgym.run.summary import newest_checkpoint, read_json
from webgym.rundir import RunDirectory, last_json_line

__all__ = ["ROLES", "RunUnderFire", "TcpServer", "Victim"]

ROLES = {
    "worker": ("-m webgym worker",),
    "actor": ("webgym_workers.browser_process",),
    "inference": ("webgym_workers.inference",),
    "learner": ("-m webgym learner",),
    "browser": ("--remote-debugging-pipe",),
}
"""Words that the command line of each kind of process of a run holds."""

_LOOK_SECONDS = 0.1
"""Between two looks at what tells nobody when it changes: files that a run writes, processes that are not ours."""
_CONFIGURATION = """
bind 127.0.0.1
port {port}
dir {folder}
save ""
appendonly yes
appendfsync everysec
user default on nopass ~* &* +@all -scan
"""
# Without SCAN a run that is over cannot clear up after itself: its keys stay to be read.


@dataclass(frozen=True)
class Victim:
    """A process of a run that was hurt."""

    role: str
    process: psutil.Process

    def alive(self) -> bool:
        """Whether it is still there, running or stopped."""
        try:
            return self.process.is_running() and self.process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False


class TcpServer:
    """A Valkey or Redis server on a port of 127.0.0.1, with an append-only file; a context manager.

    Args:
        folder: for its files; made.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._log = folder / "log"
        self._configuration = folder / "server.conf"
        self._configuration.write_text(_CONFIGURATION.format(port=self.port, folder=folder))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """``redis://127.0.0.1:PORT/0``."""
        return f"redis://127.0.0.1:{self.port}/0"

    @cached_property
    def client(self) -> redis.Redis:
        """Of the bench itself."""
        return connect(BrokerConfig(self.url))

    def start(self, seconds: float = 60.0) -> None:
        """Start it, and wait until it has loaded its file.

        Raises:
            BrokerError: it does not come up.
        """
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(find_server()), str(self._configuration)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
                preexec_fn=die_with_parent(os.getpid()),
            )
        process, deadline = self._process, time.monotonic() + seconds

        def give_up(error: Exception) -> None:
            if time.monotonic() > deadline or process.poll() is not None:
                raise BrokerError(f"the server does not come up: {error}; see {self._log}") from None

        Retry(ConstantBackoff(_LOOK_SECONDS), -1, (redis.RedisError,)).call_with_retry(
            self.client.ping, give_up
        )

    def kill(self) -> None:
        """SIGKILL. Harmless where it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Stands still inside the block: connections stay open, and nobody answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> TcpServer:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()
        self.kill()


class RunUnderFire:
    """``webgym run`` of ``under-fire.yaml`` in a folder, on a server; a context manager that ends it.

    Args:
        folder: holds the manifest, and will hold the run and what it prints.
        server: where its keys are.
    """

    def __init__(self, folder: Path, server: TcpServer) -> None:
        self.out = folder / "run"
        self._folder = folder
        self._server = server

    def __enter__(self) -> RunUnderFire:
        command = [sys.executable, "-P", "-m", "webgym", "run", "under-fire.yaml", "--out", "run", "--json"]
        with (self._folder / "stdout").open("wb") as out, (self._folder / "stderr").open("wb") as err:
            self._process = subprocess.Popen(
                command, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err, process_group=0
            )
        self._started = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            # It takes everything that it started with it.
            self._process.terminate()
            try:
                self._process.wait(60.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    @cached_property
    def keys(self) -> Keys:
        """Of the run, once it has begun."""
        return Keys(RunDirectory.open(self.out).uid)

    def check(self) -> None:
        """Make sure that it still runs.

        Raises:
            RunError: it has ended.
        """
        if self._process.poll() is not None:
            lines = (self._folder / "stderr").read_text(errors="replace").strip().splitlines()
            raise RunError(
                f"the run ended with {self._process.returncode}: {lines[-1] if lines else 'no word'}"
            )

    def rest(self, seconds: float) -> None:
        """Leave it alone for a while.

        Raises:
            RunError: it ends meanwhile.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self.check()

    def progress(self) -> tuple[int, int]:
        """Episodes in the ledger (its bytes, which is as good), and updates of the present learner's last report."""
        ledger = self.out / "episodes.jsonl"
        last = last_json_line(self.out / "metrics.jsonl") or {}
        return ledger.stat().st_size if ledger.exists() else 0, int(last.get("updates") or 0)

    def wait_for_progress(self, patience: float, *, learning: bool, victim: Victim | None = None) -> float:
        """Wait until another episode has counted.

        Args:
            patience: seconds.
            learning: wait until there were further updates as well.
            victim: has to be gone first, and others of its kind there.

        Returns:
            Seconds that it took.

        Raises:
            RunError: it does not happen, or the run ends.
        """
        began, (episodes, updates) = time.monotonic(), self.progress()
        while True:
            self.check()
            now = self.progress()
            if victim is not None:
                episodes, updates = now
                if not victim.alive() and self._processes(victim.role):
                    victim = None
            # A learner that takes over counts on from its checkpoint.
            updates = min(updates, now[1])
            if now[0] > episodes and (not learning or now[1] > updates):
                return time.monotonic() - began
            if time.monotonic() - began > patience:
                raise RunError(f"nothing has moved for {patience:g} s; see {self.out} (--keep keeps it)")
            time.sleep(_LOOK_SECONDS)

    def checkpoint_age(self) -> float:
        """Seconds since the newest checkpoint was written; since the run began where there is none."""
        newest = newest_checkpoint(self.out / "checkpoints")
        with contextlib.suppress(OSError):
            if newest is not None:
                return time.time() - newest.stat().st_mtime
        return time.monotonic() - self._started

    def kill(self, role: str, rng: random.Random) -> Victim | None:
        """SIGKILL a process of a kind; None where there is none at the moment."""
        found = self._processes(role)
        if not found:
            return None
        process = rng.choice(found)
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
        return Victim(role, process)

    def stop(self, role: str, patience: float) -> Victim:
        """SIGSTOP a process of a kind, for good.

        Raises:
            RunError: there is none for so many seconds.
        """
        deadline = time.monotonic() + patience
        while not (found := self._processes(role)):
            self.check()
            if time.monotonic() > deadline:
                raise RunError(f"the run has had no {role} for {patience:g} s")
            time.sleep(_LOOK_SECONDS)
        with contextlib.suppress(psutil.NoSuchProcess):
            found[0].suspend()
        return Victim(role, found[0])

    def end(self, seconds: float) -> dict[str, Any]:
        """Wait until it has ended by itself; its summary.

        Raises:
            RunError: it does not end.
        """
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise RunError(f"the run had not ended {seconds:g} s after the last fault") from None
        return read_json(self.out / "summary.json") or {}

    def _processes(self, role: str) -> list[psutil.Process]:
        found = []
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self._process.pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    line = " ".join(child.cmdline())
                    if child.status() != psutil.STATUS_ZOMBIE and all(word in line for word in ROLES[role]):
                        found.append(child)
        return found
