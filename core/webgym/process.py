"""Child processes that never outlive their parent, watched without polling, restarted with backoff.

Three things together keep a machine clean however the parent ends:

* Linux kills the child with SIGKILL the moment its parent is gone (``PR_SET_PDEATHSIG``). SIGKILL and not
  SIGTERM: it also ends a child that hangs, and what a learner loses by it is bounded by its last checkpoint.
* The child's stdin is a pipe whose writing end only the parent holds. Where there is no ``PR_SET_PDEATHSIG``
  our own programs see end-of-file on it and leave (:func:`webgym.program.watch_lifeline`).
* A child leads its own process group, and whatever is left of the group is killed when its leader ends.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import math
import os
import signal
import subprocess
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path

from webgym.child_exit import until_exit
from webgym.deathsig import die_with_parent
from webgym.errors import ExitCode, RunError
from webgym.restart import Exit, RestartPolicy, describe_exit

__all__ = ["Exit", "ManagedProcess", "ProcessState", "RestartPolicy", "describe_exit", "drain_all"]

logger = logging.getLogger(__name__)

LIFELINE_VARIABLE = "WEBGYM_LIFELINE"
"""Set for children: their stdin is a lifeline. Without it stdin is nothing special, such as a terminal."""

_live_groups: set[int] = set()
"""Process groups led by children that have not been reaped: their numbers cannot have been reused yet."""

os.register_at_fork(after_in_child=_live_groups.clear)


@atexit.register
def _kill_live_groups() -> None:
    for group in list(_live_groups):
        _kill_group(group)


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


class ProcessState(Enum):
    """Where a :class:`ManagedProcess` stands."""

    NEW = "new"
    RUNNING = "running"
    BACKOFF = "backoff"
    """Failed, and will be started again."""
    FINISHED = "finished"
    """Ended with exit 0, or was asked to."""
    FAILED = "failed"
    """Ended for good; :attr:`ManagedProcess.failure` says why."""


class ManagedProcess:
    """One child program: started, watched, restarted, drained.

    All methods belong to the event loop's thread, and that thread must live as long as the parent does:
    Linux ties ``PR_SET_PDEATHSIG`` to the thread that started the child, not to the process.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] | Callable[[], Sequence[int]] = (),
        log: Path | None = None,
        cwd: Path | None = None,
        restart: RestartPolicy | None = None,
        grace_seconds: float = 10.0,
        last_word: Path | None = None,
        on_exit: Callable[[ManagedProcess, Exit, float | None], None] | None = None,
    ) -> None:
        """Describe the child; :meth:`start` starts it.

        Args:
            name: for messages, such as ``worker-0``.
            argv: program and arguments.
            env: added to this process's environment.
            pass_fds: descriptors the child inherits; a callable is asked anew before each start.
            log: file that stdout and stderr are appended to; None sends both to this process's stderr.
            cwd: working directory; None for this process's.
            restart: None for :class:`RestartPolicy`'s defaults.
            grace_seconds: how long :meth:`drain` waits between SIGTERM and SIGKILL.
            last_word: the child's termination message file, quoted in :attr:`Exit.reason`.
            on_exit: called after each exit with the process, how it ended, and the seconds until it is
                started again (None: it is not).
        """
        self.name = name
        self.argv = list(argv)
        self.env = dict(env or {})
        self.pass_fds = pass_fds
        self.log = log
        self.cwd = cwd
        self.restart = restart or RestartPolicy()
        self.grace_seconds = grace_seconds
        self.last_word = last_word
        self.on_exit = on_exit
        self.state = ProcessState.NEW
        self.restarts = 0
        """How often it was started again after a failure."""
        self.exits: deque[Exit] = deque(maxlen=64)
        """How the latest incarnations ended, oldest first."""
        self.failure = ""
        """One line, set with :attr:`ProcessState.FAILED`."""
        self._popen: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._why = ""
        self._gone = asyncio.Event()
        self._failures: deque[float] = deque(maxlen=max(1, self.restart.max_failures + 1))
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[Exit] | None = None

    @property
    def pid(self) -> int | None:
        """The running child's process id; None while there is none."""
        return None if self._popen is None else self._popen.pid

    @property
    def started(self) -> float | None:
        """When the running child was started (:func:`time.monotonic`); None while there is none."""
        return None if self._popen is None else self._started

    @property
    def running(self) -> bool:
        """Whether a child is running now."""
        return self._popen is not None

    @property
    def ended(self) -> bool:
        """Whether it ended for good."""
        return self.state in (ProcessState.FINISHED, ProcessState.FAILED)

    async def start(self) -> None:
        """Start the child and watch it from now on.

        Raises:
            RunError: the program cannot be started at all (not found, not executable).
        """
        if self._task is not None:
            raise RuntimeError(f"{self.name} was started before")
        self._spawn()
        self._task = asyncio.create_task(self._supervise(), name=f"process {self.name}")
        self._task.add_done_callback(lambda _: self._clear())

    async def wait(self) -> Exit:
        """Wait until it has ended for good; how the last incarnation ended."""
        if self._task is None:
            raise RuntimeError(f"{self.name} was not started")
        return await asyncio.shield(self._task)

    async def drain(self, grace_seconds: float | None = None) -> Exit | None:
        """SIGTERM, a grace period, then SIGKILL for the group; no restart. Harmless when it has ended
        already.

        Returns:
            How it ended, or None if it was never started.
        """
        if self._task is None:
            return None
        self._stopping.set()
        if self._popen is not None:
            # Only the leader: it ends its own children in the order that suits it.
            self._popen.send_signal(signal.SIGTERM)
        grace = self.grace_seconds if grace_seconds is None else grace_seconds
        done, _ = await asyncio.wait({self._task}, timeout=grace)
        if not done:
            logger.warning("%s did not end within %.3g s of SIGTERM: killed", self.name, grace)
            self.kill()
        return await asyncio.shield(self._task)

    def kill(self) -> None:
        """SIGKILL the whole group at once; no restart."""
        self._stopping.set()
        if self._popen is not None:
            _kill_group(self._popen.pid)

    async def fail(self, why: str, patience: float = 1.0) -> None:
        """End a child that hangs, as if it had failed: it is started again, if its policy says so.

        Our own programs write where they stand into their log first (:mod:`faulthandler`, on SIGABRT).

        Args:
            why: what :attr:`Exit.reason` says of it.
            patience: seconds between SIGABRT and SIGKILL; a stopped process does not hear the first.
        """
        popen = self._popen
        if popen is None:
            return
        self._why = why
        popen.send_signal(signal.SIGABRT)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._gone.wait()
        if self._popen is popen:
            popen.send_signal(signal.SIGKILL)

    def note_progress(self) -> None:
        """What failed before is forgiven: the child does what it is there for."""
        self._failures.clear()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the child, if it is running."""
        if self._popen is not None:
            self._popen.send_signal(number)

    def _spawn(self) -> None:
        if self.last_word is not None:
            self.last_word.unlink(missing_ok=True)  # What an earlier incarnation said explains nothing now.
        fds = self.pass_fds() if callable(self.pass_fds) else self.pass_fds
        with contextlib.ExitStack() as stack, warnings.catch_warnings():
            # From 3.12 on Python warns of forking with threads. The function run in the child makes one
            # system call through a library bound beforehand: it takes no lock that another thread could have
            # held.
            warnings.simplefilter("ignore", DeprecationWarning)
            output = (
                sys.stderr.fileno() if self.log is None else stack.enter_context(self.log.open("ab")).fileno()
            )
            try:
                self._popen = subprocess.Popen(
                    self.argv,
                    env={**os.environ, **self.env, LIFELINE_VARIABLE: str(os.getpid())},
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    cwd=self.cwd,
                    pass_fds=tuple(fds),
                    process_group=0,
                    preexec_fn=die_with_parent(os.getpid()),
                )
            except OSError as e:
                raise RunError(f"{self.name} cannot be started: {self.argv[0]}: {e.strerror or e}") from e
        self._started = time.monotonic()
        self._gone.clear()
        self.state = ProcessState.RUNNING
        _live_groups.add(self._popen.pid)

    async def _supervise(self) -> Exit:
        while True:
            ended = await self._watch()
            delay = self._decide(ended)
            if self.on_exit is not None:
                self.on_exit(self, ended, delay)
            if delay is None:
                return ended
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._stopping.wait()
            if self._stopping.is_set():
                self.state = ProcessState.FINISHED
                return ended
            try:
                self._spawn()
            except RunError as e:
                self.state, self.failure = ProcessState.FAILED, str(e)
                return ended
            self.restarts += 1

    async def _watch(self) -> Exit:
        """Wait for the running child to end, clear its group, reap it."""
        popen = self._popen
        assert popen is not None
        try:
            await until_exit(popen)
        finally:
            code = self._clear()
        why, self._why = self._why, ""
        word = why or (self._read_last_word() if code > 0 else "")
        reason = why or (f"{describe_exit(code)}: {word}" if word else describe_exit(code))
        ended = Exit(code, reason, time.monotonic() - self._started, time.time(), word)
        self.exits.append(ended)
        return ended

    def _read_last_word(self) -> str:
        if self.last_word is None:
            return ""
        try:
            lines = self.last_word.read_text(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return lines[0] if lines else ""

    def _clear(self) -> int:
        """Leave neither the child nor anything of its group; its exit code, 0 when there is none."""
        popen, self._popen = self._popen, None
        if popen is None:
            return 0
        # Before the leader is reaped its number cannot be another group's, so this hits only what it left.
        _kill_group(popen.pid)
        code = popen.wait()
        self._gone.set()
        _live_groups.discard(popen.pid)
        if popen.stdin is not None:
            popen.stdin.close()
        return code

    def _decide(self, ended: Exit) -> float | None:
        if self._stopping.is_set() or ended.code == ExitCode.OK:
            self.state = ProcessState.FINISHED
            return None
        now = time.monotonic()
        self._failures.append(now)
        unproven = self.restarts == 0 and ended.seconds < self.restart.proving_seconds
        final = ended.code in self.restart.final_codes or (unproven and ended.code == ExitCode.FAILURE)
        delay = None if final else self.restart.delay(self._failures, now)
        if delay is None:
            self.state = ProcessState.FAILED
            times = sum(1 for t in self._failures if now - t <= self.restart.window_seconds)
            if times > 3:
                span = self.restart.window_seconds
                often = f"for the {times}th time {f'in {span:.0f} s' if span < math.inf else 'in a row'}"
                self.failure = f"{self.name} ended {often}: {ended.reason}"
            else:
                self.failure = f"{self.name}: {ended.word or ended.reason}"
        else:
            self.state = ProcessState.BACKOFF
        return delay


async def drain_all(processes: Iterable[ManagedProcess], grace_seconds: float | None = None) -> None:
    """Drain several at the same time."""
    await asyncio.gather(*(p.drain(grace_seconds) for p in processes))
