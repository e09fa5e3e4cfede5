"""The end of a child process, noticed when it happens and without reaping it: until then its number stays its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import subprocess
import threading
import time

__all__ = ["exited", "until_exit", "wait_for_exit"]


def exited(process: subprocess.Popen[bytes]) -> bool:
    """Whether a child has ended."""
    if process.returncode is not None:
        return True
    if not hasattr(os, "waitid"):  # macOS, before Python 3.13: there it is reaped.
        return process.poll() is not None
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def wait_for_exit(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait until a child has ended, at most so many seconds; whether it has."""
    deadline = time.monotonic() + seconds
    if exited(process):
        return True
    descriptor = _pidfd(process)
    if descriptor is None:
        # waitid takes no deadline, and whoever ends children as the interpreter ends can start no thread for it.
        while not exited(process) and time.monotonic() < deadline:
            time.sleep(0.005)
        return exited(process)
    try:
        # Not select.select: the descriptor's number may be large.
        end = select.poll()
        end.register(descriptor, select.POLLIN)
        return bool(end.poll(max(0.0, seconds) * 1e3))
    finally:
        os.close(descriptor)


async def until_exit(process: subprocess.Popen[bytes]) -> None:
    """Return once a child has ended.

    Where the system has no process descriptors, the child is reaped by then.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def resolve() -> None:
        if not future.done():
            future.set_result(None)

    descriptor = _pidfd(process)
    if descriptor is not None:
        loop.add_reader(descriptor, resolve)
        try:
            await future
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)
        return

    def wait() -> None:
        process.wait()
        with contextlib.suppress(RuntimeError):  # The loop is closed: nobody waits any more.
            loop.call_soon_threadsafe(resolve)

    threading.Thread(target=wait, name=f"wait for {process.pid}", daemon=True).start()
    await future


def _pidfd(process: subprocess.Popen[bytes]) -> int | None:
    """A descriptor that is readable once the process has ended; None where there are none."""
    if hasattr(os, "pidfd_open"):
        # A kernel before 5.3, or a sandbox that forbids it.
        with contextlib.suppress(OSError):
            return os.pidfd_open(process.pid)
    return None
