"""What every program of a run has in common, process and container alike.

Environment in, SIGTERM as drain, documented exit codes, a last word where Kubernetes shows it. A program is
a function::

    def main(context: ProgramContext, drain: Drain) -> int: ...

    sys.exit(run_program(main))
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import math
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from webgym.errors import ExitCode, UsageError, WebGymError
from webgym.process import LIFELINE_VARIABLE
from webgym.telemetry import configure_logging, last_word

if TYPE_CHECKING:
    from webgym.broker import BrokerConfig
    from webgym.spec import RunManifest

__all__ = ["Drain", "ProgramContext", "run_program", "watch_lifeline"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProgramContext:
    """What a program is told through its environment."""

    spec_path: Path
    """``WEBGYM_SPEC``: the resolved manifest."""
    run_uid: str
    """``WEBGYM_RUN_UID``: names the run's keys in Redis."""
    redis_url: str
    """``WEBGYM_REDIS_URL``: ``unix:///path``, ``redis://`` or ``rediss://``."""
    out: Path
    """``WEBGYM_OUT``: the run directory."""
    id: str
    """``WEBGYM_ID``: this program among its like, such as ``worker-0``."""
    termination_log: Path | None = None
    """``WEBGYM_TERMINATION_LOG``: where the last word goes; unset: nowhere."""
    metrics_port: int = 0
    """``WEBGYM_METRICS_PORT``: 0 picks a free one."""
    metrics_host: str = "127.0.0.1"
    """``WEBGYM_METRICS_HOST``: ``0.0.0.0`` in a pod, whose probes come from outside."""
    log_format: str | None = None
    """``WEBGYM_LOG``: ``json`` or ``text``; unset: text on a terminal, JSON elsewhere."""
    task_path: tuple[Path, ...] = ()
    """``WEBGYM_TASK_PATH``: folders, parted like those of PYTHONPATH, that may hold the modules of tasks."""
    trace_memory: bool = False
    """``WEBGYM_TRACE_MEMORY``: whether to find out where memory grows (:mod:`webgym.memory_trace`)."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str] = os.environ) -> ProgramContext:
        """Read and check the environment.

        Raises:
            UsageError: a variable is missing or wrong; the message names it.
        """

        def required(name: str, meaning: str) -> str:
            value = environ.get(name, "")
            if not value:
                raise UsageError(f"environment variable {name} is not set: it must hold {meaning}")
            return value

        port = environ.get("WEBGYM_METRICS_PORT") or "0"
        if not (port.isascii() and port.isdigit() and int(port) < 65536):
            raise UsageError(
                f"environment variable WEBGYM_METRICS_PORT is {port!r}: it must be a port, 0 to 65535"
            )
        log_format = environ.get("WEBGYM_LOG") or None
        if log_format not in (None, "json", "text"):
            raise UsageError(f"environment variable WEBGYM_LOG is {log_format!r}: it must be json or text")
        termination_log = environ.get("WEBGYM_TERMINATION_LOG")
        return cls(
            spec_path=Path(required("WEBGYM_SPEC", "the path of the run's manifest")),
            run_uid=required("WEBGYM_RUN_UID", "the run's uid"),
            redis_url=required("WEBGYM_REDIS_URL", "the address of the run's Redis"),
            out=Path(required("WEBGYM_OUT", "the run directory")),
            id=required("WEBGYM_ID", "this program's name, such as worker-0"),
            termination_log=Path(termination_log) if termination_log else None,
            metrics_port=int(port),
            metrics_host=environ.get("WEBGYM_METRICS_HOST") or "127.0.0.1",
            log_format=log_format,
            task_path=tuple(Path(p) for p in environ.get("WEBGYM_TASK_PATH", "").split(os.pathsep) if p),
            trace_memory=environ.get("WEBGYM_TRACE_MEMORY", "") not in ("", "0"),
        )

    def environ(self) -> dict[str, str]:
        """The variables that make :meth:`from_env` return this again: what a parent hands its children."""
        return {
            "WEBGYM_SPEC": str(self.spec_path),
            "WEBGYM_RUN_UID": self.run_uid,
            "WEBGYM_REDIS_URL": self.redis_url,
            "WEBGYM_OUT": str(self.out),
            "WEBGYM_ID": self.id,
            "WEBGYM_TERMINATION_LOG": str(self.termination_log or ""),
            "WEBGYM_METRICS_PORT": str(self.metrics_port),
            "WEBGYM_METRICS_HOST": self.metrics_host,
            "WEBGYM_LOG": self.log_format or "",
            "WEBGYM_TASK_PATH": os.pathsep.join(map(str, self.task_path)),
            "WEBGYM_TRACE_MEMORY": "1" if self.trace_memory else "",
        }

    @cached_property
    def manifest(self) -> RunManifest:
        """The run's manifest, read once.

        Raises:
            ManifestError: it cannot be read or is not valid.
        """
        from webgym.manifest import load_manifest

        return load_manifest(self.spec_path, [])

    @cached_property
    def broker_config(self) -> BrokerConfig:
        """How to reach the run's Redis: the address from the environment, the credentials by the manifest.

        Raises:
            ManifestError: the manifest cannot be read or is not valid.
            UsageError: the password's source or a certificate is missing.
        """
        from webgym.connection import broker_config

        return broker_config(self.manifest.spec.redis, self.redis_url)


class Drain:
    """The wish that this program end in good order: made by a signal or any thread, never taken back.

    It is a pipe that becomes readable and stays so, because a signal handler may interrupt the main thread
    anywhere, also while it holds the lock inside a :class:`threading.Event`: setting one from the handler
    could deadlock.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self.reason = ""
        """Who asked first, such as ``SIGTERM``."""

    @property
    def requested(self) -> bool:
        """Whether anyone has asked."""
        return bool(self.reason)

    def request(self, reason: str) -> None:
        """Ask; safe in signal handlers and in any thread. Asking again changes nothing."""
        if not self.reason:
            self.reason = reason
            os.write(self._write, b"!")

    def fileno(self) -> int:
        """Readable from the request on, for ``select`` and its like. Do not read from it."""
        return self._read

    def wait(self, timeout: float | None = None) -> bool:
        """Block until asked, at most ``timeout`` seconds; whether it was asked."""
        end = math.inf if timeout is None else time.monotonic() + timeout
        while not self.requested and (left := end - time.monotonic()) > 0:
            select.select([self._read], [], [], min(left, 1.0))
        return self.requested

    async def wait_async(self) -> None:
        """Return once asked. Any number of tasks may wait."""
        loop = asyncio.get_running_loop()
        asked = asyncio.Event()
        descriptor = os.dup(self._read)  # A loop knows one reader per descriptor.
        loop.add_reader(descriptor, asked.set)
        try:
            await asked.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)

    def install(self) -> None:
        """Ask on SIGTERM, SIGINT and SIGHUP. A second SIGINT is Python's own KeyboardInterrupt.

        Raises:
            ValueError: not in the main thread.
        """
        asking = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

        def handle(number: int, frame: FrameType | None) -> None:
            self.request(signal.Signals(number).name)
            if number == signal.SIGINT:
                signal.signal(signal.SIGINT, signal.default_int_handler)

        for number in asking:
            signal.signal(number, handle)

        # Python runs a handler between two steps of the main thread only. A signal that comes just before
        # that thread blocks in a system call would wait as long as the call does, so a thread learns of it
        # as well.
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)

        def listen() -> None:
            while True:
                for number in os.read(wake_read, 64):
                    if number in asking:
                        self.request(signal.Signals(number).name)

        threading.Thread(target=listen, name="signals", daemon=True).start()


def watch_lifeline(drain: Drain, grace_seconds: float = 5.0) -> bool:
    """Leave when the parent is gone: end-of-file on stdin asks for a drain, and forces the exit after the
    grace.

    Does nothing unless a :class:`webgym.process.ManagedProcess` started this program: elsewhere stdin is a
    terminal or /dev/null, whose end means nothing.

    Returns:
        Whether stdin is watched.
    """
    # Removed, lest a child of ours that gets another stdin believe it.
    if os.environ.pop(LIFELINE_VARIABLE, None) is None:
        return False

    def watch() -> None:
        while True:
            try:
                if not os.read(0, 4096):
                    break
            except OSError:
                break
        drain.request("the parent is gone")
        threading.Event().wait(grace_seconds)
        os._exit(ExitCode.FAILURE)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()
    return True


def run_program(
    main: Callable[[ProgramContext, Drain], int], environ: Mapping[str, str] | None = None
) -> int:
    """Run a program by the contract and return its exit code.

    Sets up logging, signals and the lifeline. A :class:`WebGymError` becomes one line, the last word and its
    exit code; any other exception a stack trace, a last word naming it, and exit code 1.

    Args:
        main: the program; returns its exit code.
        environ: None for this process's own.
    """
    drain = Drain()
    drain.install()
    watch_lifeline(drain)
    faulthandler.enable()
    termination_log: Path | None = None
    try:
        context = ProgramContext.from_env(os.environ if environ is None else environ)
        termination_log = context.termination_log
        configure_logging(context.log_format, run=context.run_uid, worker=context.id)
        from webgym.broker import redact_url

        logger.info("begins, with its Redis at %s", redact_url(context.redis_url))
        with _traced(context):
            return main(context, drain)
    except WebGymError as e:
        message, code = str(e), e.exit_code
        _log_or_print(message)
    except KeyboardInterrupt:
        message, code = "interrupted", ExitCode.INTERRUPTED
        _log_or_print(message)
    except Exception as e:
        message, code = f"unexpected {type(e).__name__}: {e}", ExitCode.FAILURE
        logger.exception(message)
    if termination_log is not None:
        last_word(termination_log, message)
    return code


def _traced(context: ProgramContext) -> contextlib.AbstractContextManager[None]:
    if not context.trace_memory:
        return contextlib.nullcontext()
    from webgym.memory_trace import program_name, trace_memory

    return trace_memory(context.out, program_name(context.id))


def _log_or_print(message: str) -> None:
    """Errors in the environment itself come before logging is set up."""
    if logging.getLogger().handlers:
        logger.error("%s", message)
    else:
        print(f"webgym: {message}", file=sys.stderr)
